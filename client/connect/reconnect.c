/*
 * reconnect.c - connecting again, and what the user gets to read of it.
 *
 * A session is tried again at the address that it began at, over TCP, whatever transport it had moved to; if that was
 * RDMA, it goes back there later (upgrade_again.h). The
 * worker is known by the session's number and secret, which its hello has told. There is no use in trying
 * when the server says that the session has ended. That nobody listens may have two reasons: the server has ended, and its
 * workers with it, or something in between refuses in its place for a while (a firewall that is loaded anew, a load
 * balancer, the near end of a tunnel). The control connection tells them
 * apart: the kernel of a worker that has ended has closed it.
 */
#include "client/connect/reconnect.h"

#include "client/connect/control_conn.h"
#include "client/connect/multipath.h"
#include "client/connect/rails.h"
#include "client/connect/upgrade_again.h"
#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/poll.h"
#include "transport/control.h"
#include "transport/liveness.h"
#include "transport/resumable/resumable.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_S = 60,
    CONNECT_MS = 5000,
    ANSWER_MS = 10000,
    /* as long as a worker waits for a client that seems to have gone, and for one of which nothing is known (server/handshake/resume.c) */
    GONE_S = 1,
    UNKNOWN_S = 5,
    CONTROL_MS = 300, /* the end of the control connection may be noticed so much later than the link's */
};

/* One a session; the reconnector's thread, once it has begun. */
static struct state {
    bool multipath;      /* it was on TCP at its beginning */
    bool moved;          /* to RDMA, on which it is now */
    bool upgraded_again; /* it has just gone back there */
    bool told_lost;
} states[RG_SERVERS_MAX];

static uint64_t patience(void)
{
    const char *text = secure_getenv("REMOTE_GPU_RECONNECT");
    uint64_t wanted;
    char why[256];
    if (!text || !*text)
        return PATIENCE_S * 1000000000ull;
    if (rg_parse_duration(text, &wanted, why, sizeof why) == RG_OK)
        return wanted;
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        rg_warn("REMOTE_GPU_RECONNECT: %s; taking %d s", why, PATIENCE_S);
    return PATIENCE_S * 1000000000ull;
}

bool rg_reconnect_wanted(void)
{
    return patience() != 0;
}

static bool nobody_listens(const char *why)
{
    return strcmp(why, RG_WHY_REFUSED) == 0 || strcmp(why, RG_WHY_NO_SOCKET) == 0;
}

/* Whether the session goes through a tunnel, whose near end is on this machine and the server is not. */
static bool is_tunnelled(const struct rg_session *session)
{
    char own[RG_CONTROL_TEXT] = "";
    const char *peer = session->peer;
    const bool loopback = strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0;
    return loopback && (gethostname(own, sizeof own - 1) != 0 || strcmp(own, session->hello.host) != 0);
}

/* Nobody listens at the session's address: for how long that may pass. */
static void wait_less(const struct rg_session *session, struct rg_resumable_loss *loss)
{
    struct pollfd control = {.fd = loss->control_fd, .events = POLLRDHUP};
    if (is_tunnelled(session))
        return;
    if (loss->control_fd >= 0 && rg_poll(&control, 1, CONTROL_MS) >= 0)
        loss->peer = rg_resumable_peer(loss->control_fd);
    uint64_t until = loss->until_ns;
    if (loss->peer == RG_PEER_GONE) {
        until = loss->since_ns + GONE_S * 1000000000ull;
        rg_explain(loss->why, sizeof loss->why, "its process there has ended, and nothing listens there");
    } else if (loss->peer == RG_PEER_UNKNOWN && loss->ended)
        until = loss->since_ns + UNKNOWN_S * 1000000000ull;
    loss->until_ns = until < loss->until_ns ? until : loss->until_ns;
}

void rg_reconnect_hello(const struct rg_session *session, uint64_t received, struct rg_control *hello)
{
    rg_client_hello_init(hello, RG_PURPOSE_RESUME);
    hello->client_hello.resume_session = session->hello.session;
    memcpy(hello->client_hello.resume_token, session->hello.resume_token, RG_RESUME_TOKEN);
    hello->client_hello.resume_received = received;
}

static enum rg_status say_resume(const struct rg_session *session, struct rg_conn *conn, uint64_t received,
                                 uint64_t *peer_received, char *why, size_t why_size)
{
    struct rg_control hello, answer = {0};
    rg_reconnect_hello(session, received, &hello);
    enum rg_status status = rg_control_ask(conn, &hello, ANSWER_MS, &answer);
    if (status != RG_OK)
        return RG_FAILED(RG_ERR_UNREACHABLE, why, why_size, "no answer: %s", rg_status_string(status));
    status = RG_ERR_REFUSED;
    if (answer.kind == RG_CONTROL_RESUMED) {
        *peer_received = answer.resumed.received;
        status = RG_OK;
    } else if (answer.kind == RG_CONTROL_REFUSAL) {
        rg_explain(why, why_size, "%s", answer.refusal.reason);
        if (answer.refusal.code == RG_REFUSAL_FULL)
            status = RG_ERR_UNREACHABLE; /* it is there, and may have time later */
    } else {
        rg_explain(why, why_size, "its answer was something else");
    }
    rg_control_fini(&answer);
    return status;
}

/* By what the session has been upgraded to again, and waits for it. False: nothing does, or it has failed. */
static bool renew_upgraded(struct rg_session *session, struct rg_resumable_loss *loss, uint64_t received,
                           struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received)
{
    struct rg_conn *conn, *control;
    if (!rg_upgrade_again_take(session, &conn, &control))
        return false;
    if (say_resume(session, conn, received, peer_received, loss->why, sizeof loss->why) != RG_OK) {
        rg_info("%s: not back to RDMA: %s", session->server, loss->why);
        rg_conn_destroy(conn);
        rg_conn_destroy(control);
        return false;
    }
    *out = conn;
    *control_conn = control;
    return true;
}

static enum rg_status renew(void *user, struct rg_resumable_loss *loss, uint64_t received,
                            struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received)
{
    struct rg_session *session = user;
    struct rg_conn *conn;
    unsigned way;
    struct state *state = &states[session->number];
    state->upgraded_again = renew_upgraded(session, loss, received, out, control_conn, peer_received);
    if (state->upgraded_again)
        return RG_OK;
    enum rg_status status = rg_rails_renew(session, CONNECT_MS, loss->why, sizeof loss->why, &way, &conn);
    if (status != RG_OK) {
        if (nobody_listens(loss->why))
            wait_less(session, loss);
        return RG_ERR_UNREACHABLE;
    }
    status = say_resume(session, conn, received, peer_received, loss->why, sizeof loss->why);
    if (status == RG_OK)
        rg_rails_use(session, way);
    if (status == RG_OK && state->multipath && !rg_multipath_begin(session, &conn))
        status = RG_ERR_NO_MEMORY;
    if (status == RG_OK)
        *out = conn;
    else
        rg_conn_destroy(conn);
    return status;
}

static double seconds_since(uint64_t since_ns)
{
    return (double)(rg_now_ns() - since_ns) / 1e9;
}

/* The session goes on: over what it was upgraded to again, or over TCP. */
static void tell_resumed(struct rg_session *session, const struct rg_resumable_loss *loss)
{
    struct state *state = &states[session->number];
    if (state->upgraded_again) {
        state->moved = true;
        session->stats.upgraded_again++;
        rg_stats_link(session, "rdma", rg_now_ns());
        rg_warn("%s: RDMA works again; the session is back on it", session->server);
        return;
    }
    if (rg_rails_returned(session)) {
        rg_warn("%s: its own address works again; calls are back on it", session->server);
        return;
    }
    session->stats.resumed++;
    session->stats.without_ns += rg_now_ns() - loss->since_ns;
    if (state->moved)
        rg_stats_link(session, "tcp", loss->since_ns);
    rg_warn("lost the connection to %s%s; the session goes on%s after %.1f s", session->server,
            state->moved ? " (rdma)" : "", state->moved ? " over TCP" : "", seconds_since(loss->since_ns));
    state->moved = false;
    if (!state->multipath)
        rg_upgrade_again_begin(session);
}

static void report(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss)
{
    struct rg_session *session = user;
    struct state *state = &states[session->number];
    switch (event) {
    case RG_RESUMABLE_LOST:
        state->told_lost = true;
        rg_warn("lost the connection to %s (%s): trying again for %.0f s", session->server, loss->why,
                (double)(loss->until_ns - loss->since_ns) / 1e9);
        break;
    case RG_RESUMABLE_RESUMED:
        state->told_lost = false;
        tell_resumed(session, loss);
        break;
    case RG_RESUMABLE_GAVE_UP:
        if (state->told_lost)
            rg_warn("gave up on %s after %.1f s: %s", session->server, seconds_since(loss->since_ns),
                    loss->why);
        else
            rg_warn("the session on %s cannot go on: %s", session->server, loss->why);
        break;
    }
}

bool rg_reconnect_begin(struct rg_session *session)
{
    const struct rg_server_hello *hello = &session->hello;
    snprintf(session->peer, sizeof session->peer, "%s",
             rg_conn_peer(session->control_conn ? session->control_conn : session->conn));
    if (!(hello->capabilities & RG_CONTROL_CAP_RESUME))
        return true;
    if (!session->control_conn)
        rg_liveness_watch_closely(session->conn);
    const uint64_t theirs = hello->resume_seconds * 1000000000ull, ours = patience();
    const struct rg_resumable_options options = {
        .user = session,
        .patience_ns = theirs && theirs < ours ? theirs : ours,
        .renew = renew,
        .report = report,
        .settled = hello->capabilities & RG_CONTROL_CAP_CONTROL ? rg_control_conn_begin : NULL,
    };
    const bool moved = session->control_conn != NULL;
    states[session->number] = (struct state){.multipath = !moved, .moved = moved};
    struct rg_conn *resumable = rg_resumable_create(session->conn, session->control_conn, &options);
    if (!resumable)
        return false;
    session->conn = resumable;
    session->control_conn = NULL;
    return true;
}
