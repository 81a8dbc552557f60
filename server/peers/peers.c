/* peers.c - invitations, connections that come, and the end of all. See peers.h. */
#include "server/peers/peers.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/peers/upgrade.h"
#include "server/transfer/deferred.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/upgrade/upgrade.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { AWAIT_S = 20 }; /* also until a way over RDMA that leads nowhere has been given up */
#define INVITED_NS 60000000000ull

/* The place of a number; NULL: there is none. */
static struct rg_peer *place(struct rg_worker *worker, unsigned number)
{
    struct rg_peers *peers = rg_peers_of(worker);
    if (number < RG_SERVERS_MAX)
        return &peers->peers[number];
    return number - RG_SERVERS_MAX < RG_PEERS_OTHERS_MAX ? peers->others[number - RG_SERVERS_MAX] : NULL;
}

struct rg_peer *rg_peer_find(struct rg_worker *worker, unsigned number)
{
    struct rg_peer *peer = number < RG_SERVERS_MAX ? place(worker, number) : NULL;
    return peer && peer->state == RG_PEER_OPEN ? peer : NULL;
}

/* --- the client's questions ------------------------------------------------------------------------------- */

CUresult rg_execute_rgPeerInvite(struct rg_request *request, unsigned int number, unsigned char *secret)
{
    struct rg_worker *worker = request->worker;
    if (number >= RG_SERVERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_peer *peer = &rg_peers_of(worker)->peers[number];
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    if (peer->state != RG_PEER_NONE && peer->state != RG_PEER_INVITED)
        return CUDA_ERROR_INVALID_VALUE; /* one for each pair of sessions, once */
    if (getrandom(peer->secret, sizeof peer->secret, 0) != sizeof peer->secret)
        return CUDA_ERROR_OUT_OF_MEMORY;
    peer->state = RG_PEER_INVITED;
    memcpy(secret, peer->secret, sizeof peer->secret);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgPeerAwait(struct rg_request *request, unsigned int number, unsigned int *open)
{
    struct rg_worker *worker = request->worker;
    const struct timespec until = rg_timespec(rg_now_ns() + AWAIT_S * 1000000000ull);
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    const struct rg_peer *peer = place(worker, number);
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    while ((peer->state == RG_PEER_INVITED || peer->state == RG_PEER_OPENING) && !rg_worker_over(worker) &&
           pthread_cond_timedwait(&rg_peers_of(worker)->changed, rg_deferred_lock(worker), &until) == 0)
        ;
    *open = peer->state != RG_PEER_OPEN ? 0
            : peer->control_conn        ? RG_PEER_IS_OPEN | RG_PEER_BY_RDMA
                                        : RG_PEER_IS_OPEN;
    return CUDA_SUCCESS;
}

/* --- invitations of other processes ----------------------------------------------------------------------- */

/* All that it was connected by. */
static void disconnect(struct rg_peer *peer)
{
    rg_conn_destroy(peer->conn);
    rg_conn_destroy(peer->control_conn); /* which the first one looks at */
    peer->conn = peer->control_conn = NULL;
}

/* Its place is for another one: nobody took the invitation up for so long, or its connection is over. The lock is held. */
static bool is_free(struct rg_peer *peer, uint64_t now)
{
    if (peer->state == RG_PEER_OVER) {
        pthread_join(peer->reader, NULL); /* which has nothing left to do */
        disconnect(peer);
        peer->reader_runs = false;
        peer->state = RG_PEER_NONE;
    }
    return peer->state == RG_PEER_NONE ||
           (peer->state == RG_PEER_INVITED && now - peer->invited_ns > INVITED_NS);
}

bool rg_peers_invite(struct rg_worker *worker, unsigned *number, uint8_t secret[RG_PEER_SECRET])
{
    struct rg_peers *peers = rg_peers_of(worker);
    const uint64_t now = rg_now_ns();
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    for (unsigned i = 0; i < RG_PEERS_OTHERS_MAX; i++) {
        struct rg_peer *peer = peers->others[i];
        if (peer && !is_free(peer, now))
            continue;
        if (!peer && (peer = calloc(1, sizeof *peer)) == NULL)
            return false;
        if (!peers->others[i]) {
            rg_priority_lock_init(&peer->send_lock);
            pthread_mutex_init(&peer->receive_lock, NULL);
        }
        peers->others[i] = peer;
        peer->worker = worker;
        peer->number = RG_SERVERS_MAX + i;
        peer->invited_ns = now;
        peer->state = RG_PEER_INVITED;
        if (getrandom(peer->secret, sizeof peer->secret, 0) != sizeof peer->secret) {
            peer->state = RG_PEER_NONE;
            return false;
        }
        *number = peer->number;
        memcpy(secret, peer->secret, sizeof peer->secret);
        return true;
    }
    return false;
}

void rg_peers_answer_invite(struct rg_worker *worker, int fd, const struct rg_tls_keys *keys)
{
    const struct rg_transport_options options = {.filters = "", .wait = RG_WAIT_BLOCK, .tls_keys = keys};
    uint8_t secret[RG_PEER_SECRET];
    struct rg_control message = {.kind = RG_CONTROL_ANSWER,
                                 .answer = {.data = secret, .size = sizeof secret}};
    struct rg_conn *conn = NULL;
    unsigned number;
    if (rg_transport_adopt_fd(fd, &options, &conn) != RG_OK) {
        close(fd);
        return;
    }
    if (!rg_peers_are_served())
        rg_refusal_init(&message, RG_REFUSAL_UNSUPPORTED,
                        "session %llu is connected to no others: its NCCL opens its own connections",
                        (unsigned long long)worker->session);
    else if (!rg_peers_invite(worker, &number, secret))
        rg_refusal_init(&message, RG_REFUSAL_FULL, "session %llu is connected to %u others, and to no more",
                        (unsigned long long)worker->session, RG_PEERS_OTHERS_MAX);
    (void)!rg_control_send(conn, &message);
    explicit_bzero(secret, sizeof secret);
    rg_conn_destroy(conn);
}

/* --- connections that come -------------------------------------------------------------------------------- */

/* Whose secret it is; from then on the secret is nobody's. In a time that does not tell where they differ. */
static struct rg_peer *redeem(struct rg_worker *worker, const uint8_t secret[RG_PEER_SECRET])
{
    struct rg_peer *found = NULL;
    unsigned number = 0;
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    for (unsigned i = 0; i < RG_SERVERS_MAX + RG_PEERS_OTHERS_MAX; i++) {
        struct rg_peer *peer = place(worker, i);
        if (!peer)
            continue;
        unsigned difference = peer->state != RG_PEER_INVITED;
        for (unsigned j = 0; j < RG_PEER_SECRET; j++)
            difference |= peer->secret[j] ^ secret[j];
        if (!difference) {
            found = peer;
            number = i;
        }
    }
    if (found) {
        explicit_bzero(found->secret, sizeof found->secret);
        found->state = RG_PEER_OPENING;
        found->number = number;
        found->worker = worker;
    }
    return found;
}

void rg_peers_allow_rdma(struct rg_worker *worker)
{
    rg_peers_of(worker)->rdma = true;
}

static enum rg_status answer(struct rg_conn *conn, const struct rg_client_hello *hello, bool good,
                             bool upgrades)
{
    static const char rdma[] = RG_PEER_RDMA;
    struct rg_control message = {
        .kind = RG_CONTROL_ANSWER,
        .answer = {.data = upgrades ? (const uint8_t *)rdma : NULL, .size = upgrades ? sizeof rdma - 1 : 0}};
    if (!good)
        rg_refusal_init(&message, RG_REFUSAL_UNAUTHORISED,
                        "the secret is none of an invitation that is still open");
    if (good && hello->purpose == RG_PURPOSE_INTRODUCE)
        return RG_OK; /* the frontend has heard the other server's answer, which was the last word */
    return rg_control_send(conn, &message);
}

void rg_peers_take(struct rg_worker *worker, const struct rg_client_hello *hello, int fd,
                   const struct rg_tls_keys *keys)
{
    const struct rg_transport_options options = {
        .filters = "", .bulk = true, .wait = RG_WAIT_BLOCK, .tls_keys = keys};
    struct rg_conn *conn = NULL;
    if (rg_transport_adopt_fd(fd, &options, &conn) == RG_OK)
        rg_peers_connect(worker, hello, conn);
    else
        close(fd);
}

void rg_peers_connect(struct rg_worker *worker, const struct rg_client_hello *hello, struct rg_conn *conn)
{
    struct rg_peer *peer = redeem(worker, hello->peer_secret);
    const bool connects = hello->purpose == RG_PURPOSE_INTRODUCE;
    /* Who connects has been told by its server that the other one can, and tells it that this one cannot if that is so. */
    const bool upgrades = connects ? rg_upgrade_is_offered(&hello->transports)
                                   : rg_peer_upgrade_may(rg_peers_of(worker)->rdma, &hello->transports);
    const enum rg_status answered = answer(conn, hello, peer != NULL, upgrades);
    if (!peer) {
        rg_warn("session %llu: %s wanted to be another server of its client, and has no secret that is good",
                (unsigned long long)worker->session, rg_conn_peer(conn));
        rg_conn_destroy(conn);
        return;
    }
    pthread_mutex_lock(rg_deferred_lock(worker));
    peer->conn = conn;
    peer->connects = connects;
    peer->target_session = hello->target_session;
    memcpy(peer->target_address, hello->target_address, sizeof peer->target_address);
    peer->upgrades = upgrades;
    peer->state = upgrades ? RG_PEER_OPENING : RG_PEER_OPEN;
    peer->reader_runs = answered == RG_OK && rg_peer_start_reader(peer);
    if (!peer->reader_runs)
        peer->state = RG_PEER_LOST;
    const bool is_void = !peer->reader_runs && peer->number >= RG_SERVERS_MAX;
    if (is_void) { /* no reader will ever give its place back */
        peer->conn = NULL;
        peer->state = RG_PEER_NONE;
    }
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    if (!is_void && rg_worker_over(worker))
        rg_conn_interrupt(conn);
    pthread_mutex_unlock(rg_deferred_lock(worker));
    if (is_void)
        rg_conn_destroy(conn);
}

/* --- beginning and end ------------------------------------------------------------------------------------ */

static void init(struct rg_worker *worker)
{
    rg_cond_init(&rg_peers_of(worker)->changed);
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++)
        rg_priority_lock_init(&rg_peers_of(worker)->peers[i].send_lock);
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    for (unsigned i = 0; i < RG_SERVERS_MAX + RG_PEERS_OTHERS_MAX; i++) {
        const struct rg_peer *peer = place(worker, i);
        if (peer && peer->state == RG_PEER_OPEN)
            rg_peer_tell_statistics(peer);
        if (peer && peer->conn)
            rg_conn_interrupt(peer->conn);
    }
}

static void fini(struct rg_worker *worker)
{
    for (unsigned i = 0; i < RG_SERVERS_MAX + RG_PEERS_OTHERS_MAX; i++) {
        struct rg_peer *peer = place(worker, i);
        if (!peer)
            continue;
        if (peer->reader_runs)
            pthread_join(peer->reader, NULL);
        disconnect(peer);
        rg_priority_lock_fini(&peer->send_lock);
        if (i >= RG_SERVERS_MAX) {
            pthread_mutex_destroy(&peer->receive_lock);
            free(peer);
        }
    }
    rg_peer_transfers_end(worker);
    pthread_cond_destroy(&rg_peers_of(worker)->changed);
}

const struct rg_server_module rg_peers_module = {
    .size = sizeof(struct rg_peers),
    .init = init,
    .wake = wake,
    .fini = fini,
};
