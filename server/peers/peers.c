/* peers.c - invitations, connections and their end. See peers.h. */
#include "server/peers/peers.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/transfer/deferred.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    AWAIT_S = 5,
    READ_MS = 1,      /* who reads in the reader's place waits so long */
    LEFT_NS = 200000, /* the reader leaves it to others for so long */
};
#define INVITED_NS 60000000000ull

static pthread_mutex_t *lock_of(struct rg_worker *worker)
{
    return &rg_deferred_of(worker)->lock;
}

static const struct rg_peer_service *service;

void rg_peers_serve(const struct rg_peer_service *served)
{
    service = served;
}

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
    RG_SCOPED_LOCK(lock_of(worker));
    const struct rg_peer *peer = place(worker, number);
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    while ((peer->state == RG_PEER_INVITED || peer->state == RG_PEER_OPENING) && !rg_worker_over(worker) &&
           pthread_cond_timedwait(&rg_peers_of(worker)->changed, lock_of(worker), &until) == 0)
        ;
    *open = peer->state == RG_PEER_OPEN;
    return CUDA_SUCCESS;
}

/* --- invitations of other processes ----------------------------------------------------------------------- */

/* Its place is for another one: nobody took the invitation up for so long, or its connection is over. The lock is held. */
static bool is_free(struct rg_peer *peer, uint64_t now)
{
    if (peer->state == RG_PEER_OVER) {
        pthread_join(peer->reader, NULL); /* which has nothing left to do */
        rg_conn_destroy(peer->conn);
        peer->reader_runs = false;
        peer->conn = NULL;
        peer->state = RG_PEER_NONE;
    }
    return peer->state == RG_PEER_NONE ||
           (peer->state == RG_PEER_INVITED && now - peer->invited_ns > INVITED_NS);
}

bool rg_peers_invite(struct rg_worker *worker, unsigned *number, uint8_t secret[RG_PEER_SECRET])
{
    struct rg_peers *peers = rg_peers_of(worker);
    const uint64_t now = rg_now_ns();
    RG_SCOPED_LOCK(lock_of(worker));
    for (unsigned i = 0; i < RG_PEERS_OTHERS_MAX; i++) {
        struct rg_peer *peer = peers->others[i];
        if (peer && !is_free(peer, now))
            continue;
        if (!peer && (peer = calloc(1, sizeof *peer)) == NULL)
            return false;
        if (!peers->others[i]) {
            pthread_mutex_init(&peer->send_lock, NULL);
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
    if (!service)
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

/* --- the connection --------------------------------------------------------------------------------------- */

static void lose(struct rg_peer *peer)
{
    struct rg_worker *worker = peer->worker;
    pthread_mutex_lock(lock_of(worker));
    const bool first = peer->state == RG_PEER_OPEN;
    if (first) {
        peer->state = RG_PEER_LOST;
        rg_peer_transfers_fail(peer);
    }
    pthread_mutex_unlock(lock_of(worker));
    if (!first)
        return;
    rg_conn_interrupt(peer->conn);
    if (rg_worker_over(worker))
        return;
    rg_info("session %llu: the connection to another server of its client (%s) has ended",
            (unsigned long long)worker->session, rg_conn_peer(peer->conn));
    if (peer->number < RG_SERVERS_MAX)
        rg_deferred_notice(worker, RG_NOTICE_PEER_LOST, peer->number, 0, 0, 0);
}

enum rg_status rg_peer_send_bytes(struct rg_peer *peer, const void *message, size_t size, const void *bulk,
                                  size_t bulk_size)
{
    const struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = size};
    const struct iovec data = {.iov_base = (void *)(uintptr_t)bulk, .iov_len = bulk_size};
    struct rg_send send = {.msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = bulk_size ? 1 : 0};
    pthread_mutex_lock(&peer->send_lock);
    const enum rg_status status = rg_conn_send(peer->conn, &send);
    pthread_mutex_unlock(&peer->send_lock);
    if (status != RG_OK)
        lose(peer);
    return status;
}

enum rg_status rg_peer_send(struct rg_peer *peer, const struct rg_peer_message *message, const void *bulk,
                            size_t size)
{
    return rg_peer_send_bytes(peer, message, sizeof *message, bulk, size);
}

/* A message from another process. The receive lock is held. */
static enum rg_status receive_one(struct rg_peer *peer, int timeout_ms)
{
    struct rg_message received;
    RG_TRY(rg_conn_recv(peer->conn, timeout_ms, &received));
    return service->message(peer, received.data, received.size, received.bulk_size) ? RG_OK : RG_ERR_PROTOCOL;
}

bool rg_peer_read(struct rg_peer *peer)
{
    enum rg_status status = RG_ERR_TIMEOUT;
    peer->read_ns = rg_now_ns();
    if (pthread_mutex_trylock(&peer->receive_lock) != 0)
        return false;
    while (status == RG_ERR_TIMEOUT && rg_adaptive_wait_look(&peer->wait))
        status = receive_one(peer, 0);
    if (status == RG_ERR_TIMEOUT)
        status = receive_one(peer, READ_MS);
    rg_adaptive_wait_end(&peer->wait);
    pthread_mutex_unlock(&peer->receive_lock);
    peer->read_ns = status == RG_OK ? rg_now_ns() : 0;
    if (status == RG_ERR_PROTOCOL)
        rg_conn_interrupt(peer->conn); /* the reader ends it */
    return status == RG_OK;
}

/* While others read, a message that none of them waits for waits so long. */
static void leave_to_others(const struct rg_peer *peer)
{
    while (rg_now_ns() - peer->read_ns < LEFT_NS)
        nanosleep(&(struct timespec){.tv_nsec = LEFT_NS}, NULL);
}

/* Of a connection to the session of another process. */
static void *other_reader_main(void *argument)
{
    struct rg_peer *peer = argument;
    enum rg_status status = RG_OK;
    rg_adaptive_wait_init(&peer->wait, RG_WAIT_DEFAULT);
    rg_conn_set_read_ahead(peer->conn);
    peer->user = service->opened(peer);
    while (peer->user && status == RG_OK) {
        leave_to_others(peer);
        RG_SCOPED_LOCK(&peer->receive_lock);
        status = receive_one(peer, -1);
    }
    lose(peer);
    if (peer->user)
        service->lost(peer);
    RG_SCOPED_LOCK(lock_of(peer->worker));
    peer->state = RG_PEER_OVER;
    return NULL;
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
        if (!rg_peer_transfer_message(peer, &message, received.bulk_size))
            break;
    }
    lose(peer);
    return NULL;
}

/* Whose secret it is; from then on the secret is nobody's. In a time that does not tell where they differ. */
static struct rg_peer *redeem(struct rg_worker *worker, const uint8_t secret[RG_PEER_SECRET])
{
    struct rg_peer *found = NULL;
    unsigned number = 0;
    RG_SCOPED_LOCK(lock_of(worker));
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
        answered == RG_OK &&
        rg_thread_create(&peer->reader, "rg-peer",
                         peer->number < RG_SERVERS_MAX ? reader_main : other_reader_main, peer) == RG_OK;
    if (!peer->reader_runs)
        peer->state = RG_PEER_LOST;
    const bool is_void = !peer->reader_runs && peer->number >= RG_SERVERS_MAX;
    if (is_void) { /* no reader will ever give its place back */
        peer->conn = NULL;
        peer->state = RG_PEER_NONE;
    }
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    pthread_mutex_unlock(lock_of(worker));
    if (is_void) {
        rg_conn_destroy(conn);
        return;
    }
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
    for (unsigned i = 0; i < RG_SERVERS_MAX + RG_PEERS_OTHERS_MAX; i++)
        if (place(worker, i) && place(worker, i)->conn)
            rg_conn_interrupt(place(worker, i)->conn);
}

static void fini(struct rg_worker *worker)
{
    for (unsigned i = 0; i < RG_SERVERS_MAX + RG_PEERS_OTHERS_MAX; i++) {
        struct rg_peer *peer = place(worker, i);
        if (!peer)
            continue;
        if (peer->reader_runs)
            pthread_join(peer->reader, NULL);
        rg_conn_destroy(peer->conn);
        pthread_mutex_destroy(&peer->send_lock);
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
