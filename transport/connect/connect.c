/*
 * connect.c - making connections: an address names a transport, the options the filters around it.
 *
 * What can fail is explained in `why` for whoever asked to connect. Threads: as the callers' are.
 */
#include "transport/connect/connect.h"

#include "common/base/limits.h"
#include "transport/connect/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_TIMEOUT_MS = 10000 };

/* The caller's options made whole, and the chain that they name; `fallback` is that of who does not name any.
 */
static enum rg_status prepare(const struct rg_transport_options *given, const char *fallback,
                              struct rg_transport_options *options, struct rg_filter_chain *chain, char *why,
                              size_t why_size)
{
    *options = given ? *given : (struct rg_transport_options){0};
    if (options->wait == RG_WAIT_DEFAULT) {
        struct rg_adaptive_wait wait;
        rg_adaptive_wait_init(&wait, RG_WAIT_DEFAULT);
        options->wait = wait.mode;
    }
    if (options->connect_timeout_ms <= 0)
        options->connect_timeout_ms = CONNECT_TIMEOUT_MS;
    return rg_filter_chain_parse(options->filters ? options->filters : fallback, chain, why, why_size);
}

/* The name of the part. */
static const char *part_of(const struct rg_address *address, bool tls)
{
    return tls && strcmp(address->scheme, "tcp") == 0 ? "tls" : address->transport;
}

void rg_transport_load(const char *address, bool tls)
{
    struct rg_address parsed;
    if (rg_address_parse(address, &parsed, NULL, 0) == RG_OK)
        (void)rg_transport_find(part_of(&parsed, tls), NULL, 0);
}

void rg_transport_look_up(const char *address, bool tls)
{
    struct rg_address parsed;
    if (rg_address_parse(address, &parsed, NULL, 0) != RG_OK)
        return;
    const struct rg_transport_ops *ops = rg_transport_find(part_of(&parsed, tls), NULL, 0);
    if (ops)
        ops->look_up(&parsed);
}

enum rg_status rg_transport_connect(const char *address, const struct rg_transport_options *given, char *why,
                                    size_t why_size, struct rg_conn **out)
{
    struct rg_address parsed;
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    RG_TRY(rg_address_parse(address, &parsed, why, why_size));
    if (*parsed.host && parsed.port == 0)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "nothing listens at port 0; leave it out for port %d, or give the server's",
                         RG_DEFAULT_PORT);
    RG_TRY(prepare(given, secure_getenv("REMOTE_GPU_FILTER"), &options, &chain, why, why_size));
    const struct rg_transport_ops *ops =
        rg_transport_find(part_of(&parsed, options.tls != NULL), why, why_size);
    if (!ops)
        return RG_ERR_UNREACHABLE;
    struct rg_conn *conn = NULL;
    enum rg_status status = ops->connect(&parsed, &options, why, why_size, &conn);
    if (status != RG_OK)
        return status == RG_ERR_INVALID || status == RG_ERR_REFUSED ? status : RG_ERR_UNREACHABLE;
    conn->ops = ops;
    status = rg_filter_chain_apply(&chain, &conn);
    if (status != RG_OK)
        return RG_FAILED(RG_ERR_UNREACHABLE, why, why_size, "a filter failed: %s", rg_status_string(status));
    *out = conn;
    return RG_OK;
}

enum rg_status rg_transport_listen(const char *address, const struct rg_transport_options *given, char *why,
                                   size_t why_size, struct rg_listener **out)
{
    struct rg_address parsed;
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    RG_TRY(rg_address_parse(address, &parsed, why, why_size));
    RG_TRY(prepare(given, "", &options, &chain, why, why_size));
    const struct rg_transport_ops *ops = rg_transport_find(parsed.transport, why, why_size);
    if (!ops)
        return RG_ERR_UNREACHABLE;
    struct rg_listener *listener = NULL;
    enum rg_status status = ops->listen(&parsed, &options, why, why_size, &listener);
    if (status != RG_OK)
        return status == RG_ERR_INVALID ? status : RG_ERR_UNREACHABLE;
    listener->ops = ops;
    listener->filters = chain;
    *out = listener;
    return RG_OK;
}

enum rg_status rg_transport_adopt_listener(int fd, const struct rg_transport_options *given, char *why,
                                           size_t why_size, struct rg_listener **out)
{
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    RG_TRY(prepare(given, "", &options, &chain, why, why_size));
    const struct rg_transport_ops *ops = rg_transport_find("tcp", why, why_size);
    if (!ops)
        return RG_ERR_UNREACHABLE;
    struct rg_listener *listener = NULL;
    RG_TRY(ops->adopt_listener(fd, &options, why, why_size, &listener));
    listener->ops = ops;
    listener->filters = chain;
    *out = listener;
    return RG_OK;
}

enum rg_status rg_transport_adopt_fd(int fd, const struct rg_transport_options *given, struct rg_conn **out)
{
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    char why[256];
    if (prepare(given, "", &options, &chain, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_ERR_INVALID;
    }
    const struct rg_transport_ops *ops = rg_transport_find(options.tls_keys ? "tls" : "tcp", why, sizeof why);
    if (!ops) {
        rg_error("%s", why);
        return RG_ERR_NOT_FOUND;
    }
    struct rg_conn *conn = NULL;
    RG_TRY(ops->adopt_fd(fd, &options, &conn));
    conn->ops = ops;
    enum rg_status status = rg_filter_chain_apply(&chain, &conn);
    if (status == RG_OK)
        *out = conn;
    return status;
}

const struct rg_tls_tools *rg_transport_tls_tools(char *why, size_t why_size)
{
    const struct rg_transport_ops *ops = rg_transport_find("tls", why, why_size);
    return ops ? ops->tls_tools : NULL;
}

enum rg_status rg_listener_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    struct rg_conn *conn = NULL;
    RG_TRY(listener->ops->accept(listener, timeout_ms, &conn));
    conn->ops = listener->ops;
    enum rg_status status = rg_filter_chain_apply(&listener->filters, &conn);
    if (status == RG_OK)
        *out = conn;
    return status;
}

const char *rg_listener_address(const struct rg_listener *listener)
{
    return listener->address;
}

int rg_listener_fd(const struct rg_listener *listener)
{
    return listener->ops->listener_fd(listener);
}

void rg_listener_interrupt(struct rg_listener *listener)
{
    listener->ops->listener_interrupt(listener);
}

void rg_listener_destroy(struct rg_listener *listener)
{
    if (listener)
        listener->ops->listener_destroy(listener);
}
