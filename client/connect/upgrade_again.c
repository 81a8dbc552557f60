/* upgrade_again.c - see upgrade_again.h. */
#include "client/connect/upgrade_again.h"

#include "client/connect/reconnect.h"
#include "client/core/session.h"
#include "client/credentials/connect.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/sync/adaptive.h"
#include "common/sync/scoped_lock.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"
#include "transport/upgrade/upgrade.h"

#include <time.h>

enum { CONNECT_MS = 5000, ANSWER_MS = 10000 };

static const struct rg_adaptive_range pause_ns = {
    .least = 1000000000u, .first = 1000000000u, .most = 60000000000u};
static const uint64_t holds_ns = 30000000000u;

/* One a session. */
struct returning {
    pthread_mutex_t lock;
    bool runs;            /* the thread */
    struct rg_conn *conn; /* ready to be gone on by; NULL: none */
    struct rg_conn *control_conn;
    uint64_t upgraded_ns; /* when it was taken the last time; 0: never */
    struct rg_adaptive pause;
};
static struct returning returnings[RG_SERVERS_MAX] = {
    [0 ... RG_SERVERS_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* Asks the server for an upgrade, by a connection of its own, and makes it. */
static enum rg_status upgrade(struct rg_session *session, struct rg_conn **conn,
                              struct rg_conn **control_conn, char *why, size_t why_size)
{
    const struct rg_transport_options options = {.connect_timeout_ms = CONNECT_MS};
    struct rg_control hello, answer = {0};
    RG_TRY(rg_client_connect_again(session->peer, &options, &session->credentials, why, why_size, conn));
    rg_reconnect_hello(session, 0, &hello);
    rg_upgrade_offer(RG_TRANSPORT_RDMA, &hello.client_hello.transports);
    enum rg_status status = rg_control_ask(*conn, &hello, ANSWER_MS, &answer);
    if (status != RG_OK) {
        rg_explain(why, why_size, "no answer: %s", rg_status_string(status));
    } else if (answer.kind == RG_CONTROL_SERVER_HELLO) {
        status =
            rg_upgrade_follow(RG_TRANSPORT_RDMA, &answer.server_hello, conn, control_conn, why, why_size);
    } else {
        rg_explain(why, why_size, "%s",
                   answer.kind == RG_CONTROL_REFUSAL ? answer.refusal.reason
                                                     : "its answer was something else");
        status = RG_ERR_REFUSED;
    }
    rg_control_fini(&answer);
    if (status != RG_OK)
        rg_conn_destroy(*conn);
    return status;
}

/* One attempt. Whether the session goes back. */
static bool attempt(struct rg_session *session, struct returning *returning)
{
    struct rg_conn *conn, *control_conn = NULL;
    char why[512] = "";
    if (!rg_upgrade_has_port(&session->hello)) {
        rg_debug("%s: not back to RDMA: no active port leads there", session->server);
        return false;
    }
    if (upgrade(session, &conn, &control_conn, why, sizeof why) != RG_OK) {
        rg_info("%s: not back to RDMA yet: %s", session->server, why);
        return false;
    }
    pthread_mutex_lock(&returning->lock);
    returning->conn = conn;
    returning->control_conn = control_conn;
    returning->runs = false; /* from now on the next loss begins this anew */
    pthread_mutex_unlock(&returning->lock);
    rg_resumable_drop(session->conn);
    return true;
}

static void *returning_main(void *argument)
{
    struct rg_session *session = argument;
    struct returning *returning = &returnings[session->number];
    rg_thread_expect_little();
    for (;;) {
        rg_pause(rg_adaptive_raise(&returning->pause, &pause_ns));
        if (!rg_session_goes_on(session) || attempt(session, returning))
            return NULL;
    }
}

void rg_upgrade_again_begin(struct rg_session *session)
{
    struct returning *returning = &returnings[session->number];
    if (!(session->hello.capabilities & RG_CONTROL_CAP_UPGRADE))
        return;
    RG_SCOPED_LOCK(&returning->lock);
    if (returning->runs || returning->conn)
        return;
    if (returning->upgraded_ns && rg_now_ns() - returning->upgraded_ns >= holds_ns)
        rg_adaptive_reset(&returning->pause);
    returning->runs = rg_thread_create_detached("rg-upgrade", returning_main, session) == RG_OK;
}

bool rg_upgrade_again_take(struct rg_session *session, struct rg_conn **conn, struct rg_conn **control_conn)
{
    struct returning *returning = &returnings[session->number];
    RG_SCOPED_LOCK(&returning->lock);
    if (!returning->conn)
        return false;
    *conn = returning->conn;
    *control_conn = returning->control_conn;
    returning->conn = returning->control_conn = NULL;
    returning->upgraded_ns = rg_now_ns();
    return true;
}
