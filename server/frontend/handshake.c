/*
 * handshake.c - the thread of one handshake: who the client is, its hello, and which way that goes. See handshake_internal.h.
 */
#include "server/frontend/handshake_internal.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/daemon/shared/audit.h"
#include "server/frontend/introduce.h"
#include "server/frontend/pool.h"
#include "server/frontend/questions.h"
#include "server/frontend/usage.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a refused client may take to read why before its connection is closed under it. */
#define LINGER_MS 1000
/* Of a handshake's time, what is left to say why not. */
#define TIME_TO_REFUSE_NS 1000000000u

static void say_refused(const struct rg_handshake *handshake, const struct rg_control *refusal)
{
    const struct rg_monitor_peer *peer = &handshake->secured.peer;
    char user[32] = "";
    rg_monitor_count_refused(&handshake->owner->frontend->link, refusal->refusal.code);
    if (refusal->refusal.code == RG_REFUSAL_SUSPENDED)
        return; /* it asks again every second, until it is granted, or refused: each time, lines of others would be left out for it */
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

void rg_handshake_refuse(const struct rg_handshake *handshake, const struct rg_control *refusal)
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
                 : message.size > RG_HELLO_MAX
                     ? RG_ERR_LIMIT
                     : rg_control_unpack(message.data, message.size, &handshake->hello);
    if (status == RG_OK && handshake->hello.kind == RG_CONTROL_CLIENT_HELLO)
        return true;
    if (status == RG_OK || status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_refusal_init(&refusal, RG_REFUSAL_MALFORMED,
                        "this is a remote-gpu server, and what was sent is no greeting of a remote-gpu "
                        "client; check which program was pointed at this address");
        rg_handshake_refuse(handshake, &refusal);
    } else if (status == RG_ERR_CLOSED || status == RG_ERR_LOST) {
        rg_debug("%s: left before the handshake", rg_conn_peer(conn));
    } else {
        rg_log_limited(&handshake->owner->refusals, rg_now_ns(), RG_LOG_INFO, "%s: no greeting came: %s",
                       rg_conn_peer(conn), rg_status_string(status));
    }
    return false;
}

/* Whether another question may be asked now, and by that address. The lock is held. */
static bool has_room(const struct rg_handshake *handshake)
{
    const struct rg_handshakes *owner = handshake->owner;
    uint32_t n = 0;
    for (const struct rg_handshake *at = owner->running; at; at = at->next)
        n += at->asking && rg_origin_is(&at->origin, &handshake->origin);
    return owner->n_asking < RG_QUESTIONS_MAX && n < RG_QUESTIONS_PER_ADDRESS;
}

/*
 * Waits for room for another question, as which it is counted from then on. False: there has been none for as long as there is still time
 * to say so, or it has been cut off.
 */
static bool may_ask(struct rg_handshake *handshake)
{
    struct rg_handshakes *owner = handshake->owner;
    const struct timespec until = rg_timespec(handshake->deadline_ns - TIME_TO_REFUSE_NS);
    RG_SCOPED_LOCK(&owner->lock);
    while (!has_room(handshake) && !handshake->cut &&
           pthread_cond_timedwait(&owner->room, &owner->lock, &until) != ETIMEDOUT)
        ;
    handshake->asking = has_room(handshake) && !handshake->cut;
    owner->n_asking += handshake->asking;
    return handshake->asking;
}

static void refuse_question(const struct rg_handshake *handshake)
{
    struct rg_control refusal;
    rg_refusal_init(&refusal, RG_REFUSAL_FULL,
                    "the server has too many questions to answer just now; try again");
    rg_handshake_refuse(handshake, &refusal);
}

static void answer_question(struct rg_handshake *handshake)
{
    struct rg_frontend *frontend = handshake->owner->frontend;
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    struct rg_control refusal;
    if (!may_ask(handshake)) {
        refuse_question(handshake);
    } else if (hello->purpose == RG_PURPOSE_MANAGEMENT) {
        rg_answer_management(frontend, handshake->conn, hello);
    } else if (hello->purpose == RG_PURPOSE_USAGE || hello->purpose == RG_PURPOSE_QUOTA ||
               hello->purpose == RG_PURPOSE_PAGE) {
        struct rg_monitor_question question = {.peer = handshake->secured.peer};
        snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
        if ((hello->purpose == RG_PURPOSE_PAGE ? rg_answer_page : rg_answer_accounts)(
                frontend, handshake->conn, hello, &question, &refusal) != RG_OK)
            rg_handshake_refuse(handshake, &refusal);
    } else {
        const struct rg_viewer viewer = {.proof = handshake->secured.peer.proof,
                                         .name = handshake->secured.peer.name,
                                         .uid = handshake->uid};
        rg_answer_inventory(frontend, handshake->conn, hello->purpose == RG_PURPOSE_STATUS, &viewer);
    }
}

static void ask_pool(struct rg_handshake *handshake)
{
    struct rg_monitor_question question = {.peer = handshake->secured.peer};
    struct rg_control refusal;
    snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
    const char *full = rg_handshake_begin_waiting(handshake);
    if (full) {
        rg_refusal_init(&refusal, RG_REFUSAL_FULL, "%s", full);
        rg_handshake_refuse(handshake, &refusal);
    } else if (rg_answer_pool(handshake->owner->frontend, handshake->conn, &handshake->hello.client_hello,
                              &question, &refusal) != RG_OK) {
        rg_handshake_refuse(handshake, &refusal);
    }
}

static void introduce(struct rg_handshake *handshake)
{
    struct rg_control refusal, message = {.kind = RG_CONTROL_ANSWER};
    const uint64_t until = handshake->deadline_ns - TIME_TO_REFUSE_NS;
    struct rg_monitor_question question = {.peer = handshake->secured.peer};
    snprintf(question.peer.address, sizeof question.peer.address, "%s", rg_conn_peer(handshake->conn));
    const bool has_room = may_ask(handshake);
    const uint64_t now = rg_now_ns();
    if (!has_room) {
        refuse_question(handshake);
    } else if (rg_introduce(handshake->owner->frontend, rg_conn_fd(handshake->conn), &question,
                            &handshake->hello.client_hello, now < until ? (int)((until - now) / 1000000u) : 1,
                            &refusal) != RG_OK) {
        rg_handshake_refuse(handshake, &refusal);
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
        rg_handshake_refuse(handshake, &refusal);
        return;
    }
    /* Another server has no certificate for clients: it shows the session's worker a secret. */
    if (handshake->secured.may_only_join && hello->purpose != RG_PURPOSE_JOIN &&
        hello->purpose != RG_PURPOSE_PEER) {
        rg_refusal_init(
            &refusal, RG_REFUSAL_UNAUTHORISED,
            "where other machines reach it, this server takes nobody without a certificate: get a token "
            "from its operator (remote-gpud token) and run 'remote-gpu join TOKEN' once");
        rg_handshake_refuse(handshake, &refusal);
        return;
    }
    switch (hello->purpose) {
    case RG_PURPOSE_SESSION:
    case RG_PURPOSE_NETPERF:
        rg_handshake_begin_session(handshake);
        break;
    case RG_PURPOSE_POOL:
        ask_pool(handshake);
        break;
    case RG_PURPOSE_BULK:
    case RG_PURPOSE_RESUME:
    case RG_PURPOSE_PEER:
    case RG_PURPOSE_INVITE:
        rg_handshake_join_session(handshake);
        break;
    case RG_PURPOSE_INTRODUCE:
        introduce(handshake);
        break;
    case RG_PURPOSE_JOIN:
    case RG_PURPOSE_RENEW:
        rg_handshake_give_certificate(handshake);
        break;
    case RG_PURPOSE_STAY:
        rg_handshake_let_stay(handshake);
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
            rg_handshake_refuse(handshake, &refusal);
        }
    }
}

void *rg_handshake_main(void *argument)
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
