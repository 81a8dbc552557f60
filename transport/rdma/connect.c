/*
 * connect.c - connecting by rdma_cm.
 *
 * Resolve address and route, make the queue pair, post all receives, connect, run the self-test. If that finds no one-sided writes,
 * once more with the flag RG_RDMA_TWO_SIDED. The other end is listen.c.
 */
#include "transport/rdma/endpoint.h"
#include "transport/rdma/verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { EVENT_LATE_MS = 500 }; /* behind the time that the connection manager was given */

enum rg_status rg_rdma_resolve_name(const struct rg_address *address, bool passive, struct addrinfo **out,
                                    char *why, size_t why_size)
{
    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    bool any = strcmp(address->host, "*") == 0;
    int error = getaddrinfo(any ? NULL : address->host, port, &hints, out);
    if (error) {
        rg_explain(why, why_size, "%s: %s", address->host, gai_strerror(error));
        return RG_ERR_UNREACHABLE;
    }
    return RG_OK;
}

enum rg_status rg_rdma_make_id(struct rdma_event_channel *events, struct rdma_cm_id **out, char *why,
                               size_t why_size)
{
    if (rdma_create_id(events, out, NULL, RDMA_PS_TCP) == 0)
        return RG_OK;
    rg_explain(why, why_size, "no RDMA here: %s (is the module rdma_ucm loaded?)", strerror(errno));
    return RG_ERR_UNREACHABLE;
}

static enum rg_status establish(struct rg_rdma_conn *c, struct sockaddr *to,
                                const struct rg_transport_options *options, char *why, size_t why_size)
{
    const int timeout_ms = options->connect_timeout_ms < INT_MAX - EVENT_LATE_MS ? options->connect_timeout_ms
                                                                                 : INT_MAX - EVENT_LATE_MS;
    RG_TRY(rg_rdma_make_id(c->events, &c->id, why, why_size));
    if (rdma_resolve_addr(c->id, NULL, to, timeout_ms) != 0) {
        rg_explain(why, why_size, "the address is not reached by an RDMA device: %s", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    enum rg_status status =
        rg_rdma_expect_event(c, RDMA_CM_EVENT_ADDR_RESOLVED, timeout_ms + EVENT_LATE_MS, NULL, why, why_size);
    if (status != RG_OK)
        return status;
    rg_rdma_set_patience(c->id);
    if (rdma_resolve_route(c->id, timeout_ms) != 0)
        return rg_rdma_no_resource("a route", errno, why, why_size);
    status = rg_rdma_expect_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED, timeout_ms + EVENT_LATE_MS, NULL, why,
                                  why_size);
    if (status == RG_OK)
        status = rg_rdma_make_resources(c, why, why_size);
    if (status != RG_OK)
        return status;
    struct rg_rdma_private mine = rg_rdma_make_private(c, options->token), theirs;
    struct rdma_conn_param param = rg_rdma_parameters(&mine);
    if (rdma_connect(c->id, &param) != 0)
        return rg_rdma_no_resource("connecting", errno, why, why_size);
    status = rg_rdma_expect_event(c, RDMA_CM_EVENT_ESTABLISHED, timeout_ms, &theirs, why, why_size);
    if (status == RG_OK && !rg_rdma_is_ours(&theirs)) {
        rg_explain(why, why_size,
                   "what listens there does not speak this version of remote-gpu's RDMA protocol");
        status = RG_ERR_UNREACHABLE;
    }
    return status;
}

static enum rg_status connect_once(struct sockaddr *to, const struct rg_transport_options *options,
                                   bool two_sided, char *why, size_t why_size, struct rg_conn **out)
{
    struct rg_rdma_conn *c = rg_rdma_conn_create(options->wait, two_sided);
    if (!c) {
        rg_explain(why, why_size, "no RDMA here: %s", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    c->delivers = options->bulk;
    enum rg_status status = establish(c, to, options, why, why_size);
    if (status == RG_OK) {
        status = rg_rdma_complete(c, why, why_size);
        if (status != RG_OK)
            rdma_disconnect(c->id);
    }
    if (status != RG_OK)
        rg_rdma_conn_free(c);
    else
        *out = &c->head;
    return status;
}

enum rg_status rg_rdma_connect(const struct rg_address *address, const struct rg_transport_options *options,
                               char *why, size_t why_size, struct rg_conn **out)
{
    struct addrinfo *list;
    RG_TRY(rg_rdma_verbs_open(why, why_size));
    RG_TRY(rg_rdma_resolve_name(address, false, &list, why, why_size));
    enum rg_status status = RG_ERR_UNREACHABLE;
    for (struct addrinfo *at = list; at && status != RG_OK; at = at->ai_next) {
        bool two_sided = rg_rdma_restricted("two-sided");
        status = connect_once(at->ai_addr, options, two_sided, why, why_size, out);
        if (status != RG_OK && status != RG_ERR_UNREACHABLE && !two_sided)
            status = connect_once(at->ai_addr, options, true, why, why_size, out);
    }
    freeaddrinfo(list);
    return status;
}
