/*
 * query.c - one question to one server over a connection of its own.
 */
#include "client/query/query.h"

#include "client/credentials/connect.h"
#include "client/query/lease.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "common/base/thread.h"
#include "transport/control.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static enum rg_status exchange_here(const char *server, const struct rg_control *hello,
                                    enum rg_control_kind wanted, uint64_t timeout_ns, struct rg_control *out,
                                    char *why, size_t why_size)
{
    uint64_t milliseconds = timeout_ns / 1000000u;
    int timeout_ms = milliseconds > INT_MAX ? INT_MAX : milliseconds < 1 ? 1 : (int)milliseconds;
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = timeout_ms};
    char reason[768] = "";
    struct rg_credentials credentials;
    struct rg_conn *conn;
    enum rg_status status = rg_client_connect(server, &options, &credentials, reason, sizeof reason, &conn);
    if (status != RG_OK) {
        rg_servers_unreached(server, status, reason, "check the address, and that remote-gpud runs there",
                             why, why_size);
        return status;
    }
    status = rg_control_ask(conn, hello, timeout_ms, out);
    rg_conn_destroy(conn);
    if (status == RG_ERR_TIMEOUT) {
        rg_explain(
            why, why_size,
            "the server %s accepted the connection but did not answer within %g s; is it a remote-gpud?",
            server, timeout_ms / 1000.0);
    } else if (status == RG_ERR_CLOSED || status == RG_ERR_LOST) {
        rg_explain(
            why, why_size,
            "%s closed the connection without an answer: it is not a remote-gpud, or one that has no more "
            "threads, descriptors or memory (its log says so)",
            server);
    } else if (status != RG_OK) {
        rg_explain(why, why_size,
                   "what answers at %s is not a remote-gpud (%s); check the address and the port", server,
                   rg_status_string(status));
    } else if (out->kind == RG_CONTROL_REFUSAL) {
        rg_explain(why, why_size, "the server %s refused: %s", server, out->refusal.reason);
        rg_control_fini(out);
        status = RG_ERR_REFUSED;
    } else if (out->kind != wanted) {
        rg_explain(why, why_size, "the server %s gave an answer that was not asked for", server);
        rg_control_fini(out);
        status = RG_ERR_PROTOCOL;
    }
    return status;
}

struct exchange {
    const char *server;
    const struct rg_control *hello;
    enum rg_control_kind wanted;
    uint64_t timeout_ns;
    struct rg_control *out;
    char *why;
    size_t why_size;
    enum rg_status status;
};

static void run_exchange(void *arg)
{
    struct exchange *e = arg;
    e->status = exchange_here(e->server, e->hello, e->wanted, e->timeout_ns, e->out, e->why, e->why_size);
}

static enum rg_status exchange(const char *server, const struct rg_control *hello,
                               enum rg_control_kind wanted, uint64_t timeout_ns, struct rg_control *out,
                               char *why, size_t why_size)
{
    struct exchange e = {server, hello, wanted, timeout_ns, out, why, why_size, RG_ERR_NO_MEMORY};
    rg_thread_with_room(run_exchange, &e);
    return e.status;
}

enum rg_status rg_query(const char *server, enum rg_purpose purpose, uint64_t timeout_ns,
                        struct rg_control *out, char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *hello = malloc(sizeof *hello);
    if (!hello)
        return RG_ERR_NO_MEMORY;
    rg_client_hello_init(hello, purpose);
    RG_TRY(exchange(server, hello, RG_CONTROL_INVENTORY, timeout_ns, out, why, why_size));
    rg_lease_narrow(server, &out->inventory);
    return RG_OK;
}

enum rg_status rg_query_management(const char *server, const void *question, size_t size, uint64_t timeout_ns,
                                   struct rg_control *out, char *why, size_t why_size)
{
    return rg_query_accounts(server, RG_PURPOSE_MANAGEMENT, question, size, timeout_ns, out, why, why_size);
}

enum rg_status rg_query_accounts(const char *server, enum rg_purpose purpose, const void *question,
                                 size_t size, uint64_t timeout_ns, struct rg_control *out, char *why,
                                 size_t why_size)
{
    if (size > RG_QUESTION_SIZE_MAX)
        return RG_ERR_LIMIT;
    RG_CLEANUP_FREE struct rg_control *hello = malloc(sizeof *hello);
    if (!hello)
        return RG_ERR_NO_MEMORY;
    rg_client_hello_init(hello, purpose);
    if (size)
        memcpy(hello->client_hello.question, question, size);
    hello->client_hello.question_size = (uint32_t)size;
    return exchange(server, hello, RG_CONTROL_ANSWER, timeout_ns, out, why, why_size);
}
