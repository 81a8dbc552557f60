/* control_conn.c - see control_conn.h. */
#include "client/connect/control_conn.h"

#include "client/connect/rails.h"
#include "client/connect/reconnect.h"
#include "client/core/session.h"
#include "client/credentials/connect.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"

enum { CONNECT_MS = 5000 };

/*
 * There is no answer to its hello unless it is refused: what this process had not read yet when it was killed would make
 * the kernel reset the connection.
 */
static enum rg_status open_one(const struct rg_session *session, struct rg_conn **out, char *why,
                               size_t why_size)
{
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = CONNECT_MS};
    struct rg_control hello;
    struct rg_conn *conn;
    RG_TRY(rg_client_connect_again(rg_rails_address(session), &options, &session->credentials, why, why_size,
                                   &conn));
    rg_reconnect_hello(session, 0, &hello);
    hello.client_hello.capabilities |= RG_CONTROL_CAP_CONTROL;
    const enum rg_status status = rg_control_send(conn, &hello);
    if (status == RG_OK) {
        *out = conn;
        return RG_OK;
    }
    rg_explain(why, why_size, "%s", rg_status_string(status));
    rg_conn_destroy(conn);
    return status;
}

static void *open_main(void *argument)
{
    struct rg_session *session = argument;
    struct rg_conn *conn;
    char why[512] = "";
    if (!rg_session_goes_on(session))
        return NULL;
    if (open_one(session, &conn, why, sizeof why) == RG_OK)
        rg_resumable_set_control(session->conn, conn);
    else
        rg_info("%s: no control connection: %s", session->server, why);
    return NULL;
}

void rg_control_conn_begin(void *session)
{
    if (rg_thread_create_detached("rg-control", open_main, session) != RG_OK)
        rg_info("no thread for a control connection");
}
