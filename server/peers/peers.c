/* peers.c - invitations, connections and their end. See peers.h. */
#include "server/peers/peers.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/transfer/deferred.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { AWAIT_S = 5 };

static pthread_mutex_t *lock_of(struct rg_worker *worker)
{
    return &rg_deferred_of(worker)->lock;
}

struct rg_peer *rg_peer_find(struct rg_worker *worker, unsigned number)
{
    struct rg_peer *peer = number < RG_SERVERS_MAX ? &rg_peers_of(worker)->peers[number] : NULL;
    return peer && peer->state == RG_PEER_OPEN ? peer : NULL;
}

/* --- the client's questions ------------------------------------------------------------------------------- */

CUresult rg_execute_rgPeerInvite(struct rg_request *request, unsigned int number, unsigned char *secret)
{
    struct rg_worker *worker = request->worker;
    if (number >= RG_SERVERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_peer *peer = &rg_peers_of(worker)->peers[number];
    RG_SCOPED_LOCK(lock_of(worker));
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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += AWAIT_S;
    if (number >= RG_SERVERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rg_peer *peer = &rg_peers_of(worker)->peers[number];
    RG_SCOPED_LOCK(lock_of(worker));
    while ((peer->state == RG_PEER_INVITED || peer->state == RG_PEER_OPENING) && !rg_worker_over(worker) &&
           pthread_cond_timedwait(&rg_peers_of(worker)->changed, lock_of(worker), &until) == 0)
        ;
    *open = peer->state == RG_PEER_OPEN;
    return CUDA_SUCCESS;
}

/* --- the connection --------------------------------------------------------------------------------------- */

static void lose(struct rg_peer *peer)
{
    struct rg_worker *worker = peer->worker;
    pthread_mutex_lock(lock_of(worker));
    const bool first = peer->state == RG_PEER_OPEN;
    if (first) {
        peer->state = RG_PEER_LOST;
        rg_peer_copies_fail(peer);
    }
    pthread_mutex_unlock(lock_of(worker));
    if (!first)
        return;
    rg_conn_interrupt(peer->conn);
    if (rg_worker_over(worker))
        return;
    rg_info("session %llu: the connection to another server of its client (%s) has ended",
            (unsigned long long)worker->session, rg_conn_peer(peer->conn));
    rg_deferred_notice(worker, RG_NOTICE_PEER_LOST, peer->number, 0, 0, 0);
}

enum rg_status rg_peer_send(struct rg_peer *peer, const struct rg_peer_message *message, const void *bulk,
                            size_t size)
{
    const struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
    const struct iovec data = {.iov_base = (void *)(uintptr_t)bulk, .iov_len = size};
    struct rg_send send = {.msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = size ? 1 : 0};
    pthread_mutex_lock(&peer->send_lock);
    const enum rg_status status = rg_conn_send(peer->conn, &send);
    pthread_mutex_unlock(&peer->send_lock);
    if (status != RG_OK)
        lose(peer);
    return status;
}

static void *reader_main(void *argument)
{
    struct rg_peer *peer = argument;
    struct rg_message received;
    struct rg_peer_message message;
    while (rg_conn_recv(peer->conn, -1, &received) == RG_OK) {
        if (received.size != sizeof message)
            break;
        memcpy(&message, received.data, sizeof message);
        if (!rg_peer_copy_message(peer, &message, received.bulk_size))
            break;
    }
    lose(peer);
    return NULL;
}

/* Whose secret it is; from then on the secret is nobody's. In a time that does not tell where they differ. */
static struct rg_peer *redeem(struct rg_worker *worker, const uint8_t secret[RG_PEER_SECRET])
{
    struct rg_peer *found = NULL;
    RG_SCOPED_LOCK(lock_of(worker));
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++) {
        struct rg_peer *peer = &rg_peers_of(worker)->peers[i];
        unsigned difference = peer->state != RG_PEER_INVITED;
        for (unsigned j = 0; j < RG_PEER_SECRET; j++)
            difference |= peer->secret[j] ^ secret[j];
        if (!difference)
            found = peer;
    }
    if (found) {
        explicit_bzero(found->secret, sizeof found->secret);
        found->state = RG_PEER_OPENING;
        found->number = (unsigned)(found - rg_peers_of(worker)->peers);
        found->worker = worker;
    }
    return found;
}

static enum rg_status answer(struct rg_conn *conn, const struct rg_client_hello *hello, bool good)
{
    struct rg_control message = {.kind = RG_CONTROL_ANSWER};
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
    const enum rg_status answered = answer(conn, hello, peer != NULL);
    if (!peer) {
        rg_warn("session %llu: %s wanted to be another server of its client, and has no secret that is good",
                (unsigned long long)worker->session, rg_conn_peer(conn));
        rg_conn_destroy(conn);
        return;
    }
    pthread_mutex_lock(lock_of(worker));
    peer->conn = conn;
    peer->state = answered == RG_OK ? RG_PEER_OPEN : RG_PEER_LOST;
    peer->reader_runs =
        answered == RG_OK && rg_thread_create(&peer->reader, "rg-peer", reader_main, peer) == RG_OK;
    if (!peer->reader_runs)
        peer->state = RG_PEER_LOST;
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    pthread_mutex_unlock(lock_of(worker));
    if (rg_worker_over(worker))
        rg_conn_interrupt(conn);
    rg_info("session %llu: connected to another server of its client, %s",
            (unsigned long long)worker->session, rg_conn_peer(conn));
}

/* --- beginning and end ------------------------------------------------------------------------------------ */

static void init(struct rg_worker *worker)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&rg_peers_of(worker)->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++)
        pthread_mutex_init(&rg_peers_of(worker)->peers[i].send_lock, NULL);
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(lock_of(worker));
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++)
        if (rg_peers_of(worker)->peers[i].conn)
            rg_conn_interrupt(rg_peers_of(worker)->peers[i].conn);
}

static void fini(struct rg_worker *worker)
{
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++) {
        struct rg_peer *peer = &rg_peers_of(worker)->peers[i];
        if (peer->reader_runs)
            pthread_join(peer->reader, NULL);
        rg_conn_destroy(peer->conn);
        pthread_mutex_destroy(&peer->send_lock);
    }
    rg_peer_copies_end(worker);
    pthread_cond_destroy(&rg_peers_of(worker)->changed);
}

const struct rg_server_module rg_peers_module = {
    .size = sizeof(struct rg_peers),
    .init = init,
    .wake = wake,
    .fini = fini,
};
