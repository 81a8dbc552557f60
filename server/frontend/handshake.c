/*
 * handshake.c - see handshake.h.
 *
 * Life of a handshake: the main thread creates it and puts it into `running`; its thread receives one message and answers, or
 * has the monitor start or continue a session, then moves it to `done` and writes the eventfd; the main thread joins the thread
 * and destroys it. Only the main thread touches `running` and the deadline; cutting a handshake off wakes its thread wherever
 * it waits for the client.
 */
#include "server/frontend/handshake.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/daemon/audit.h"
#include "server/frontend/introduce.h"
#include "server/frontend/pool.h"
#include "server/frontend/questions.h"
#include "server/frontend/security.h"
#include "server/frontend/usage.h"
#include "server/identity/identity.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* A hello is small; what is larger is not worth taking apart. */
#define HELLO_SIZE_MAX 16384
/* How long a refused client may take to read why before its connection is closed under it. */
#define LINGER_MS 1000
/* How long a client waits for a session to end where there are too many, and how often that is looked at. */
#define ROOM_PATIENCE_MS 2000
#define ROOM_STEP_MS     10
/* The agent of the pool tries each endpoint of etcd before it gives up. */
#define LEASE_TIMEOUT_MS 8000

/* Where a client comes from, as far as it is counted: an IPv4 address, an IPv6 network, a user of this machine. */
struct origin {
    uint32_t family;
    uint8_t bytes[8];
};

struct rg_handshake {
    struct rg_handshake *next, *next_done;
    struct rg_handshakes *owner;
    pthread_t thread;
    enum rg_listener_reach reach;
    struct origin origin;
    uid_t uid; /* RG_REACH_UNIX: whose process it is */
    uint64_t deadline_ns;
    int fd;               /* until there is a connection */
    struct rg_conn *conn; /* owner->lock; it has the descriptor */
    bool cut;             /* main thread: interrupted already */
    bool asking;          /* owner->lock: counted as a question */
    bool waiting;         /* owner->lock: it waits for the pool, or holds a lease: there is no deadline */
    bool handed;          /* owner->lock: somebody else may have the connection, which is left alone */
    struct rg_secured secured;
    struct rg_control hello;
};

enum rg_status rg_handshakes_init(struct rg_handshakes *handshakes, struct rg_frontend *frontend)
{
    *handshakes = (struct rg_handshakes){.frontend = frontend, .refusals = RG_LOG_LIMIT_INIT};
    pthread_mutex_init(&handshakes->lock, NULL);
    handshakes->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (handshakes->wake < 0) {
        rg_error("eventfd: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    return RG_OK;
}

/* --- the thread of one handshake ---------------------------------------------------------------------------
 */

static void say_refused(const struct rg_handshake *handshake, const struct rg_control *refusal)
{
    const struct rg_monitor_peer *peer = &handshake->secured.peer;
    char user[32] = "";
    rg_monitor_count_refused(&handshake->owner->frontend->link, refusal->refusal.code);
    if (peer->proof == RG_PROOF_USER)
        snprintf(user, sizeof user, "uid %u", handshake->uid);
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_REFUSE,
                                .user = peer->proof == RG_PROOF_CERTIFICATE ? peer->name : user,
                                .serial = peer->serial,
                                .serial_size = peer->serial_size,
                                .from = rg_conn_peer(handshake->conn),
                                .encrypted = peer->encrypted,
                                .why = refusal->refusal.reason});
}

/* Sends a refusal, then waits for the client to close first: data that it has sent and that nobody read would
 * make the kernel reset the connection, and the refusal would be lost with it. */
static void refuse(const struct rg_handshake *handshake, const struct rg_control *refusal)
{
    struct rg_conn *conn = handshake->conn;
    say_refused(handshake, refusal);
    if (rg_control_send(conn, refusal) != RG_OK)
        return;
    int fd = rg_conn_fd(conn);
    if (fd < 0 || shutdown(fd, SHUT_WR) != 0)
        return;
    uint64_t deadline = rg_now_ns() + LINGER_MS * 1000000ull;
    for (uint64_t now; (now = rg_now_ns()) < deadline;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char rest[4096];
        if (poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1) <= 0 ||
            recv(fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
            return;
    }
}

/* Receives the hello. False: the connection is of no use, or was refused. */
static bool receive_hello(struct rg_handshake *handshake)
{
    struct rg_conn *conn = handshake->conn;
    struct rg_control refusal;
    struct rg_message message;
    enum rg_status status = rg_conn_recv(conn, RG_HELLO_TIMEOUT_MS, &message);
    if (status == RG_OK)
        status = message.bulk_size != 0 ? RG_ERR_PROTOCOL
                 : message.size > HELLO_SIZE_MAX
                     ? RG_ERR_LIMIT
                     : rg_control_unpack(message.data, message.size, &handshake->hello);
    if (status == RG_OK && handshake->hello.kind == RG_CONTROL_CLIENT_HELLO)
        return true;
    if (status == RG_OK || status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_refusal_init(&refusal, RG_REFUSAL_MALFORMED,
                        "this is a remote-gpu server, and what was sent is no greeting of a remote-gpu "
                        "client; check which program was pointed at this address");
        refuse(handshake, &refusal);
    } else if (status == RG_ERR_CLOSED || status == RG_ERR_LOST) {
        rg_debug("%s: left before the handshake", rg_conn_peer(conn));
    } else {
        rg_log_limited(&handshake->owner->refusals, rg_now_ns(), RG_LOG_INFO, "%s: no greeting came: %s",
                       rg_conn_peer(conn), rg_status_string(status));
    }
    return false;
}

/*
 * A program that has just ended may still have its worker: the one that starts next, as the next line of a
 * script does, must not be refused for it. Waits a moment for a session to end if there are as many as there
 * may be, or for the client to go.
 */
static void wait_for_room(const struct rg_handshake *handshake)
{
    const struct rg_board *board = handshake->owner->frontend->board;
    const uint64_t end = rg_now_ns() + ROOM_PATIENCE_MS * 1000000ull;
    while (rg_board_running(board) >= board->max_sessions && rg_now_ns() < end) {
        struct pollfd client = {.fd = rg_conn_fd(handshake->conn), .events = POLLRDHUP};
        if (poll(&client, 1, ROOM_STEP_MS) != 0)
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

static void describe(const struct rg_handshake *handshake, struct rg_monitor_question *question)
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

/* A lease that was granted elsewhere is perhaps not known here yet. False: it was refused. */
static bool check_lease(struct rg_handshake *handshake)
{
    struct rg_monitor_question question = {.kind = RG_ASK_LEASE};
    struct rg_monitor_answer answer;
    struct rg_control refusal;
    question.pool.lease = handshake->hello.client_hello.pool_lease;
    if (!question.pool.lease)
        return true;
    if (rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, LEASE_TIMEOUT_MS, &answer,
                       NULL) != RG_OK)
        rg_refusal_init(&refusal, RG_REFUSAL_INTERNAL,
                        "the pool cannot be asked about the lease now; try again later");
    else if (answer.status != RG_OK)
        rg_refusal_init(&refusal, answer.code, "%s", answer.why);
    else
        return true;
    refuse(handshake, &refusal);
    return false;
}

/* The client asked for a session, or brings a connection for one: has the monitor give it to a worker, or says why not. */
static void ask_for_session(struct rg_handshake *handshake)
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
    describe(handshake, &question);
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
    refuse(handshake, &refusal);
}

/* Whether the client may ask for a certificate, and has the key that it wants one for. */
static bool may_have_certificate(const struct rg_handshake *handshake, struct rg_control *refusal)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    const struct rg_secured *secured = &handshake->secured;
    if (!handshake->owner->frontend->settings.gives)
        rg_refusal_init(refusal, RG_REFUSAL_UNSUPPORTED,
                        "this server gives no certificates; ask its operator how to get one");
    else if (!secured->peer.encrypted)
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED, "certificates are given over TLS alone");
    else if (hello->purpose == RG_PURPOSE_RENEW && secured->peer.proof != RG_PROOF_CERTIFICATE)
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED,
                        "only who has a certificate can renew it; join again");
    else if (!rg_tls_verify_proof(hello->join_public_key, secured->exporter, hello->join_proof,
                                  hello->join_proof_size))
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED,
                        "the client did not prove that it has the key that it wants a certificate for");
    else
        return true;
    return false;
}

/* Sends what the monitor has made, in a file. */
static bool send_grant(struct rg_handshake *handshake, int file)
{
    RG_CLEANUP_FREE struct rg_identity_grant *grant = calloc(1, sizeof *grant);
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    if (!grant || !message || file < 0 || pread(file, grant, sizeof *grant, 0) != (ssize_t)sizeof *grant)
        return false;
    message->kind = RG_CONTROL_JOINED;
    snprintf(message->joined.certificate, sizeof message->joined.certificate, "%s", grant->certificate);
    snprintf(message->joined.authority, sizeof message->joined.authority, "%s", grant->authority);
    snprintf(message->joined.user, sizeof message->joined.user, "%s", grant->user);
    if (rg_control_send(handshake->conn, message) != RG_OK)
        rg_info("%s left before it had its certificate; it can join again with a token that is not used up",
                rg_conn_peer(handshake->conn));
    return true;
}

static void give_certificate(struct rg_handshake *handshake)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    struct rg_control refusal;
    RG_CLEANUP_FD int file = -1;
    if (!may_have_certificate(handshake, &refusal)) {
        refuse(handshake, &refusal);
        return;
    }
    memset(&question, 0, sizeof question);
    describe(handshake, &question);
    question.kind = hello->purpose == RG_PURPOSE_JOIN ? RG_ASK_JOIN : RG_ASK_RENEW;
    memset(&question.join, 0, sizeof question.join);
    memcpy(question.join.secret, hello->join_secret, sizeof question.join.secret);
    memcpy(question.join.public_key, hello->join_public_key, sizeof question.join.public_key);
    const enum rg_status asked =
        rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, -1, &answer, &file);
    rg_tls_wipe(&question.join, sizeof question.join);
    if (asked == RG_OK && answer.status == RG_OK && send_grant(handshake, file))
        return;
    rg_refusal_init(
        &refusal, asked == RG_OK && answer.status != RG_OK ? answer.code : RG_REFUSAL_INTERNAL, "%s",
        asked == RG_OK && answer.status != RG_OK ? answer.why
                                                 : "the server is out of memory; try again later");
    refuse(handshake, &refusal);
}

/* The client shows a renewed certificate for a session that runs. */
static void let_stay(struct rg_handshake *handshake)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    struct rg_control refusal, message = {.kind = RG_CONTROL_ANSWER};
    if (handshake->secured.peer.proof != RG_PROOF_CERTIFICATE) {
        rg_refusal_init(&refusal, RG_REFUSAL_UNAUTHORISED, "no certificate was shown");
        refuse(handshake, &refusal);
        return;
    }
    memset(&question, 0, sizeof question);
    describe(handshake, &question);
    question.kind = RG_ASK_STAY;
    memset(&question.start, 0, sizeof question.start);
    question.stay.session = handshake->hello.client_hello.resume_session;
    if (rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, -1, &answer, NULL) != RG_OK)
        rg_refusal_init(&refusal, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    else if (answer.status != RG_OK)
        rg_refusal_init(&refusal, answer.code, "%s", answer.why);
    else {
        if (rg_control_send(handshake->conn, &message) != RG_OK)
            rg_debug("%s: left before it was answered", rg_conn_peer(handshake->conn));
        return;
    }
    refuse(handshake, &refusal);
}

/* Whether there is room for another question; if so it is counted as one from now on. */
static bool may_ask(struct rg_handshake *handshake)
{
    struct rg_handshakes *owner = handshake->owner;
    RG_SCOPED_LOCK(&owner->lock);
    handshake->asking = owner->n_asking < RG_QUESTIONS_MAX;
    owner->n_asking += handshake->asking;
    return handshake->asking;
}

static void answer_question(struct rg_handshake *handshake)
{
    struct rg_frontend *frontend = handshake->owner->frontend;
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    struct rg_control refusal;
    if (!may_ask(handshake)) {
        rg_refusal_init(&refusal, RG_REFUSAL_FULL,
                        "the server has too many questions to answer just now; try again");
        refuse(handshake, &refusal);
    } else if (hello->purpose == RG_PURPOSE_MANAGEMENT) {
        rg_answer_management(frontend, handshake->conn, hello);
    } else if (hello->purpose == RG_PURPOSE_USAGE || hello->purpose == RG_PURPOSE_QUOTA ||
               hello->purpose == RG_PURPOSE_PAGE) {
        struct rg_monitor_question question = {.peer = handshake->secured.peer};
        snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
        if ((hello->purpose == RG_PURPOSE_PAGE ? rg_answer_page : rg_answer_accounts)(
                frontend, handshake->conn, hello, &question, &refusal) != RG_OK)
            refuse(handshake, &refusal);
    } else {
        const struct rg_viewer viewer = {.proof = handshake->secured.peer.proof,
                                         .name = handshake->secured.peer.name,
                                         .uid = handshake->uid};
        rg_answer_inventory(frontend, handshake->conn, hello->purpose == RG_PURPOSE_STATUS, &viewer);
    }
}

/* Whether there is room for another client of the pool; if so it may take its time. */
static bool may_wait(struct rg_handshake *handshake)
{
    struct rg_handshakes *owner = handshake->owner;
    RG_SCOPED_LOCK(&owner->lock);
    handshake->waiting = owner->n_waiting < RG_POOL_CLIENTS_MAX;
    owner->n_waiting += handshake->waiting;
    return handshake->waiting;
}

static void ask_pool(struct rg_handshake *handshake)
{
    struct rg_monitor_question question = {.peer = handshake->secured.peer};
    struct rg_control refusal;
    snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
    if (!may_wait(handshake)) {
        rg_refusal_init(&refusal, RG_REFUSAL_FULL,
                        "this server has too many clients of the pool; ask another of its servers");
        refuse(handshake, &refusal);
    } else if (rg_answer_pool(handshake->owner->frontend, handshake->conn, &handshake->hello.client_hello,
                              &question, &refusal) != RG_OK) {
        refuse(handshake, &refusal);
    }
}

static void introduce(struct rg_handshake *handshake)
{
    struct rg_control refusal, message = {.kind = RG_CONTROL_ANSWER};
    const uint64_t now = rg_now_ns(), reserve = 1000000000u; /* to say why not */
    const uint64_t until = handshake->deadline_ns - reserve;
    struct rg_monitor_question question = {.peer = handshake->secured.peer};
    snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
    if (!may_ask(handshake)) {
        rg_refusal_init(&refusal, RG_REFUSAL_FULL,
                        "the server has too many questions to answer just now; try again");
        refuse(handshake, &refusal);
    } else if (rg_introduce(handshake->owner->frontend, rg_conn_fd(handshake->conn), &question,
                            &handshake->hello.client_hello, now < until ? (int)((until - now) / 1000000u) : 1,
                            &refusal) != RG_OK) {
        refuse(handshake, &refusal);
    } else if (rg_control_send(handshake->conn, &message) != RG_OK) {
        rg_debug("%s: left before it was answered", rg_conn_peer(handshake->conn));
    }
}

static void serve(struct rg_handshake *handshake)
{
    struct rg_control refusal;
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    if (!receive_hello(handshake))
        return;
    if (hello->protocol_major != RG_PROTOCOL_MAJOR) {
        rg_refusal_init(&refusal, RG_REFUSAL_VERSION,
                        "the client (%s) speaks version %u of the protocol and the server (remote-gpu %s) "
                        "version %u; install the same release on both sides",
                        hello->software, hello->protocol_major, RG_VERSION, RG_PROTOCOL_MAJOR);
        refuse(handshake, &refusal);
        return;
    }
    /* Another server has no certificate for clients: it shows the session's worker a secret. */
    if (handshake->secured.may_only_join && hello->purpose != RG_PURPOSE_JOIN &&
        hello->purpose != RG_PURPOSE_PEER) {
        rg_refusal_init(&refusal, RG_REFUSAL_UNAUTHORISED,
                        "this server takes nobody from other machines without a certificate: get a token "
                        "from its operator (remote-gpud token) and run 'remote-gpu join TOKEN' once");
        refuse(handshake, &refusal);
        return;
    }
    switch (hello->purpose) {
    case RG_PURPOSE_SESSION:
    case RG_PURPOSE_NETPERF:
        if (!check_lease(handshake))
            break;
        wait_for_room(handshake);
        ask_for_session(handshake);
        break;
    case RG_PURPOSE_POOL:
        ask_pool(handshake);
        break;
    case RG_PURPOSE_BULK:
    case RG_PURPOSE_RESUME:
    case RG_PURPOSE_PEER:
    case RG_PURPOSE_INVITE:
        ask_for_session(handshake);
        break;
    case RG_PURPOSE_INTRODUCE:
        introduce(handshake);
        break;
    case RG_PURPOSE_JOIN:
    case RG_PURPOSE_RENEW:
        give_certificate(handshake);
        break;
    case RG_PURPOSE_STAY:
        let_stay(handshake);
        break;
    case RG_PURPOSE_INVENTORY:
    case RG_PURPOSE_STATUS:
    case RG_PURPOSE_MANAGEMENT:
    case RG_PURPOSE_USAGE:
    case RG_PURPOSE_QUOTA:
    case RG_PURPOSE_PAGE:
        answer_question(handshake);
        break;
    }
}

/* From now on the connection has the descriptor. */
static bool adopt(struct rg_handshake *handshake)
{
    struct rg_secured *secured = &handshake->secured;
    const struct rg_transport_options options = {.filters = "",
                                                 .tls_keys = secured->peer.encrypted ? &secured->keys : NULL};
    struct rg_conn *conn;
    const enum rg_status status = rg_transport_adopt_fd(handshake->fd, &options, &conn);
    rg_tls_wipe(&secured->keys, sizeof secured->keys);
    if (status != RG_OK)
        return false;
    RG_SCOPED_LOCK(&handshake->owner->lock);
    handshake->conn = conn;
    return true;
}

/* Who it is comes first, then what it wants. */
static void converse(struct rg_handshake *handshake)
{
    struct rg_handshakes *owner = handshake->owner;
    struct rg_control refusal;
    const uint64_t now = rg_now_ns();
    const int left = handshake->deadline_ns > now ? (int)((handshake->deadline_ns - now) / 1000000u) : 1;
    const enum rg_status status = rg_frontend_secure(owner->frontend, handshake->fd, handshake->reach,
                                                     handshake->uid, left, &handshake->secured);
    if (status == RG_ERR_CLOSED || status == RG_ERR_LOST) {
        rg_debug("a client left before the handshake");
    } else if (status != RG_OK && status != RG_ERR_REFUSED) {
        if (adopt(handshake)) /* for its name */
            rg_log_limited(&owner->refusals, now, RG_LOG_INFO, "%s: no handshake: %s",
                           rg_conn_peer(handshake->conn), handshake->secured.why);
    } else if (adopt(handshake)) {
        if (status == RG_OK) {
            serve(handshake);
        } else {
            rg_refusal_init(&refusal, RG_REFUSAL_UNAUTHORISED, "%s", handshake->secured.why);
            refuse(handshake, &refusal);
        }
    }
}

static void *handshake_main(void *argument)
{
    struct rg_handshake *handshake = argument;
    struct rg_handshakes *owner = handshake->owner;
    converse(handshake);
    pthread_mutex_lock(&owner->lock);
    handshake->next_done = owner->done;
    owner->done = handshake;
    pthread_mutex_unlock(&owner->lock);
    uint64_t one = 1;
    if (write(owner->wake, &one, sizeof one) < 0)
        rg_error("eventfd: %s", strerror(errno)); /* cannot be: the counter does not overflow */
    return NULL;
}

/* --- main thread -------------------------------------------------------------------------------------------
 */

static struct origin origin_of(int fd, uid_t *uid)
{
    struct origin origin = {0};
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    struct ucred peer;
    *uid = (uid_t)-1;
    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0)
        return origin;
    origin.family = address.ss_family;
    size = sizeof peer;
    if (address.ss_family == AF_INET) {
        memcpy(origin.bytes, &((const struct sockaddr_in *)&address)->sin_addr, 4);
    } else if (address.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&address)->sin6_addr;
        memcpy(origin.bytes, IN6_IS_ADDR_V4MAPPED(v6) ? v6->s6_addr + 8 : v6->s6_addr, 8);
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
        memcpy(origin.bytes, &peer.uid, sizeof peer.uid);
        *uid = peer.uid;
    }
    return origin;
}

static bool is_same(const struct origin *a, const struct origin *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void cut(struct rg_handshake *handshake)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    handshake->cut = true;
    if (handshake->handed)
        return;
    if (handshake->conn)
        rg_conn_interrupt(handshake->conn);
    else
        (void)shutdown(handshake->fd, SHUT_RDWR);
}

/* Those of one origin of which it is not known what they want, and not cut off already; *oldest: the last of the list. */
static uint32_t count_of(struct rg_handshakes *handshakes, const struct origin *origin,
                         struct rg_handshake **oldest)
{
    uint32_t n = 0;
    RG_SCOPED_LOCK(&handshakes->lock);
    for (struct rg_handshake *at = handshakes->running; at; at = at->next)
        if (!at->cut && !at->asking && !at->waiting && !at->handed && is_same(&at->origin, origin)) {
            *oldest = at;
            n++;
        }
    return n;
}

/* The oldest of the origin that has most of them. */
static struct rg_handshake *find_greediest(struct rg_handshakes *handshakes)
{
    struct rg_handshake *found = NULL, *oldest = NULL;
    uint32_t most = 0;
    for (const struct rg_handshake *at = handshakes->running; at; at = at->next) {
        const uint32_t n = count_of(handshakes, &at->origin, &oldest);
        if (n > most) {
            most = n;
            found = oldest;
        }
    }
    return found;
}

/* Those that hold up others. */
static uint32_t unfinished(struct rg_handshakes *handshakes)
{
    RG_SCOPED_LOCK(&handshakes->lock);
    return handshakes->n - handshakes->n_asking - handshakes->n_waiting;
}

bool rg_handshakes_full(struct rg_handshakes *handshakes)
{
    return unfinished(handshakes) > RG_HANDSHAKES_MAX;
}

static void make_room(struct rg_handshakes *handshakes, const struct origin *origin)
{
    struct rg_handshake *oldest = NULL;
    if (count_of(handshakes, origin, &oldest) >= RG_HANDSHAKES_PER_ADDRESS)
        cut(oldest);
    else if (unfinished(handshakes) >= RG_HANDSHAKES_MAX && (oldest = find_greediest(handshakes)) != NULL)
        cut(oldest);
}

static bool start_thread(struct rg_handshake *handshake)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, 512 * 1024);
    const int error = pthread_create(&handshake->thread, &attributes, handshake_main, handshake);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        rg_error("no thread for a handshake: %s", strerror(error));
    return error == 0;
}

void rg_handshakes_start(struct rg_handshakes *handshakes, int fd, enum rg_listener_reach reach)
{
    struct rg_handshake *handshake = calloc(1, sizeof *handshake);
    if (!handshake) {
        close(fd);
        return;
    }
    handshake->owner = handshakes;
    handshake->fd = fd;
    handshake->reach = reach;
    handshake->origin = origin_of(fd, &handshake->uid);
    handshake->deadline_ns = rg_now_ns() + RG_HELLO_TIMEOUT_MS * 1000000ull;
    make_room(handshakes, &handshake->origin);
    if (!start_thread(handshake)) {
        close(fd);
        free(handshake);
        return;
    }
    RG_SCOPED_LOCK(&handshakes->lock);
    handshake->next = handshakes->running;
    handshakes->running = handshake;
    handshakes->n++;
}

static void destroy(struct rg_handshakes *handshakes, struct rg_handshake *handshake)
{
    struct rg_handshake **link = &handshakes->running;
    while (*link != handshake)
        link = &(*link)->next;
    *link = handshake->next;
    pthread_mutex_lock(&handshakes->lock);
    handshakes->n--;
    handshakes->n_asking -= handshake->asking;
    handshakes->n_waiting -= handshake->waiting;
    pthread_mutex_unlock(&handshakes->lock);
    if (handshake->conn)
        rg_conn_destroy(handshake->conn);
    else
        close(handshake->fd);
    rg_control_fini(&handshake->hello);
    rg_tls_wipe(handshake, sizeof *handshake); /* it may have the secret of a token */
    free(handshake);
}

void rg_handshakes_finish(struct rg_handshakes *handshakes)
{
    uint64_t count;
    if (read(handshakes->wake, &count, sizeof count) < 0)
        return; /* nobody is done */
    pthread_mutex_lock(&handshakes->lock);
    struct rg_handshake *done = handshakes->done;
    handshakes->done = NULL;
    pthread_mutex_unlock(&handshakes->lock);
    while (done) {
        struct rg_handshake *handshake = done;
        done = handshake->next_done;
        pthread_join(handshake->thread, NULL);
        destroy(handshakes, handshake);
    }
}

static bool is_waiting(struct rg_handshake *handshake)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    return handshake->waiting;
}

int rg_handshakes_expire(struct rg_handshakes *handshakes)
{
    const uint64_t now = rg_now_ns();
    uint64_t next = UINT64_MAX;
    for (struct rg_handshake *at = handshakes->running; at; at = at->next) {
        if (at->cut || is_waiting(at))
            continue;
        if (at->deadline_ns <= now)
            cut(at);
        else if (at->deadline_ns < next)
            next = at->deadline_ns;
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000u) + 1;
}
