/*
 * session_request.c - a client asks for a session, or brings a connection for one. The monitor gets the connection, a file with the hello
 * and, of TLS, one with its keys; somebody else then goes on with it, and its end here says nothing to the peer. Of the handshake's thread.
 */
#include "server/frontend/handshake_internal.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "transport/connect/connect.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a client waits for a session to end where there are too many, and how often that is looked at. */
#define FULL_PATIENCE_MS 2000
#define FULL_STEP_MS     10
/* The agent of the pool tries each endpoint of etcd before it gives up. */
#define LEASE_TIMEOUT_MS 8000

/*
 * A program that has just ended may still have its worker: the one that starts next, as the next line of a
 * script does, must not be refused for it. Waits a moment for a session to end if there are as many as there
 * may be, or for the client to go.
 */
static void wait_while_full(const struct rg_handshake *handshake)
{
    const struct rg_board *board = handshake->owner->frontend->board;
    const uint64_t end = rg_now_ns() + FULL_PATIENCE_MS * 1000000ull;
    while (rg_board_running(board) >= board->max_sessions && rg_now_ns() < end) {
        struct pollfd client = {.fd = rg_conn_fd(handshake->conn), .events = POLLRDHUP};
        if (poll(&client, 1, FULL_STEP_MS) != 0)
            return;
    }
}

/* A worker is not started for somebody who has left, which costs who does it often next to nothing. */
static bool has_left(const struct rg_conn *conn)
{
    struct pollfd client = {.fd = rg_conn_fd(conn), .events = POLLRDHUP};
    return poll(&client, 1, 0) > 0;
}

/* A file that holds the packed hello, at its beginning. */
static int hello_file(const struct rg_control *hello)
{
    void *data;
    size_t size;
    if (rg_control_pack(hello, &data, &size) != RG_OK)
        return -1;
    const int fd = rg_file_in_memory("client-hello", data, size);
    free(data);
    return fd;
}

void rg_handshake_describe(const struct rg_handshake *handshake, struct rg_monitor_question *question)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    question->peer = handshake->secured.peer;
    snprintf(question->peer.address, sizeof question->peer.address, "%s", rg_conn_peer(handshake->conn));
    if (hello->purpose == RG_PURPOSE_BULK || hello->purpose == RG_PURPOSE_RESUME ||
        hello->purpose == RG_PURPOSE_PEER || hello->purpose == RG_PURPOSE_INVITE) {
        question->kind = RG_ASK_HAND_OVER;
        question->hand_over.purpose = hello->purpose;
        question->hand_over.session = hello->purpose == RG_PURPOSE_BULK     ? hello->bulk_session
                                      : hello->purpose == RG_PURPOSE_RESUME ? hello->resume_session
                                                                            : hello->peer_session;
        return;
    }
    struct rg_monitor_start *start = &question->start;
    question->kind = RG_ASK_START;
    start->purpose = hello->purpose;
    start->gpus = hello->gpus;
    start->n_gpu_indices = hello->n_gpu_indices;
    memcpy(start->gpu_indices, hello->gpu_indices, sizeof start->gpu_indices);
    start->share = hello->share;
    start->pool_lease = hello->pool_lease;
    start->beside = hello->peer_session;
    start->shape = rg_shape_of(hello);
    start->contexts = hello->contexts;
    start->claimed = hello->identity;
}

static void replace_connection(struct rg_handshake *handshake, struct rg_conn *conn)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    rg_conn_destroy(handshake->conn);
    handshake->conn = conn;
}

/*
 * A connection by TLS, as it goes on elsewhere: a file with its keys. From then on it is another one here, by the same keys, for
 * the case that it does not. -1: it cannot.
 */
static int export_connection(struct rg_handshake *handshake)
{
    struct rg_tls_keys keys;
    const int copy = fcntl(rg_conn_fd(handshake->conn), F_DUPFD_CLOEXEC, 3);
    const struct rg_transport_options options = {.filters = "", .tls_keys = &keys};
    struct rg_conn *conn = NULL;
    if (copy < 0 || rg_conn_tls_export(handshake->conn, &keys) != RG_OK ||
        rg_transport_adopt_fd(copy, &options, &conn) != RG_OK) {
        if (copy >= 0)
            close(copy);
        rg_tls_wipe(&keys, sizeof keys);
        return -1;
    }
    replace_connection(handshake, conn);
    const int file = rg_file_in_memory("tls-keys", &keys, sizeof keys);
    rg_tls_wipe(&keys, sizeof keys);
    return file;
}

static void set_handed(struct rg_handshake *handshake, bool handed)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    handshake->handed = handed;
}

/* Somebody else goes on with the connection: its end here says nothing to the peer. */
static void forget_connection(struct rg_handshake *handshake)
{
    struct rg_tls_keys keys;
    if (rg_conn_tls_export(handshake->conn, &keys) == RG_OK)
        rg_tls_wipe(&keys, sizeof keys);
}

/*
 * A lease that was granted elsewhere is perhaps not known here yet. False: it was refused. Where another session's may do (peer_session), the
 * monitor decides when it begins.
 */
static bool check_lease(struct rg_handshake *handshake)
{
    struct rg_monitor_question question = {.kind = RG_ASK_LEASE};
    struct rg_monitor_answer answer;
    struct rg_control refusal;
    struct rg_client_hello *hello = &handshake->hello.client_hello;
    question.pool.lease = hello->pool_lease;
    if (!question.pool.lease)
        return true;
    if (rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, LEASE_TIMEOUT_MS, &answer,
                       NULL) != RG_OK)
        rg_refusal_init(&refusal, RG_REFUSAL_INTERNAL,
                        "the pool cannot be asked about the lease now; try again later");
    else if (answer.status != RG_OK && !hello->peer_session)
        rg_refusal_init(&refusal, answer.code, "%s", answer.why);
    else {
        if (answer.status != RG_OK)
            hello->pool_lease = 0;
        return true;
    }
    rg_handshake_refuse(handshake, &refusal);
    return false;
}

void rg_handshake_join_session(struct rg_handshake *handshake)
{
    struct rg_frontend *frontend = handshake->owner->frontend;
    const bool tls = handshake->secured.peer.encrypted;
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    struct rg_control refusal;
    if (has_left(handshake->conn)) {
        rg_debug("%s: left before its session began", rg_conn_peer(handshake->conn));
        return;
    }
    memset(&question, 0, sizeof question);
    rg_handshake_describe(handshake, &question);
    RG_CLEANUP_FD int file = hello_file(&handshake->hello);
    RG_CLEANUP_FD int keys = tls ? export_connection(handshake) : -1;
    const int fds[] = {rg_conn_fd(handshake->conn), file, keys};
    set_handed(handshake, true);
    const bool asked =
        file >= 0 && (!tls || keys >= 0) &&
        rg_monitor_ask(&frontend->link, &question, fds, tls ? 3 : 2, -1, &answer, NULL) == RG_OK;
    if (asked && answer.status == RG_OK) {
        if (tls)
            forget_connection(handshake);
        return;
    }
    set_handed(handshake, false);
    if (asked)
        rg_refusal_init(&refusal, answer.code, "%s", answer.why);
    else
        rg_refusal_init(&refusal, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    rg_handshake_refuse(handshake, &refusal);
}

void rg_handshake_begin_session(struct rg_handshake *handshake)
{
    if (!check_lease(handshake))
        return;
    wait_while_full(handshake);
    rg_handshake_join_session(handshake);
}
