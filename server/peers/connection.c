/* connection.c - a connection while it is there: how it begins, who sends and receives, and its loss. See peers.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/peers/peers.h"
#include "server/peers/upgrade.h"
#include "server/transfer/bulk_log.h"
#include "server/transfer/deferred.h"
#include "transport/state.h"
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    READ_MS = 1,      /* who reads in the reader's place waits so long */
    LEFT_NS = 200000, /* the reader leaves it to others for so long */
    CROWDS_MOST = 8,  /* reads that sleep after one that gave up its processor while it looked */
};

static const struct rg_peer_service *service;

void rg_peers_serve(const struct rg_peer_service *served)
{
    service = served;
}

bool rg_peers_are_served(void)
{
    return service != NULL;
}

void rg_peer_tell_statistics(const struct rg_peer *peer)
{
    struct rg_conn_statistics bulk;
    char of[320];
    rg_conn_get_statistics(peer->conn, &bulk);
    snprintf(of, sizeof of, " of another server of its client (%s, by %s)", rg_conn_peer(peer->conn),
             rg_conn_transport(peer->conn));
    rg_bulk_log(peer->worker->session, &bulk, of);
}

static void lose(struct rg_peer *peer)
{
    struct rg_worker *worker = peer->worker;
    pthread_mutex_lock(rg_deferred_lock(worker));
    const bool first = peer->state == RG_PEER_OPEN;
    if (first) {
        peer->state = RG_PEER_LOST;
        rg_peer_transfers_fail(peer);
    }
    pthread_mutex_unlock(rg_deferred_lock(worker));
    if (!first)
        return;
    rg_conn_interrupt(peer->conn);
    if (rg_worker_over(worker))
        return;
    rg_info("session %llu: the connection to another server of its client (%s) has ended",
            (unsigned long long)worker->session, rg_conn_peer(peer->conn));
    rg_peer_tell_statistics(peer);
    if (peer->number < RG_SERVERS_MAX)
        rg_deferred_notice(worker, RG_NOTICE_PEER_LOST, peer->number, 0, 0, 0);
}

enum rg_status rg_peer_send_bytes(struct rg_peer *peer, const void *message, size_t size, const void *bulk,
                                  size_t bulk_size)
{
    const struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = size};
    const struct iovec data = {.iov_base = (void *)(uintptr_t)bulk, .iov_len = bulk_size};
    struct rg_send send = {.msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = bulk_size ? 1 : 0};
    rg_priority_lock_acquire(&peer->send_lock, !bulk_size);
    const enum rg_status status = rg_conn_send(peer->conn, &send);
    rg_priority_lock_release(&peer->send_lock);
    if (status != RG_OK)
        lose(peer);
    return status;
}

enum rg_status rg_peer_send(struct rg_peer *peer, const struct rg_peer_message *message, const void *bulk,
                            size_t size)
{
    return rg_peer_send_bytes(peer, message, sizeof *message, bulk, size);
}

enum rg_status rg_peer_send_data(struct rg_peer *peer, const struct rg_peer_message *message,
                                 const void *data)
{
    enum rg_status status = RG_OK;
    for (uint64_t at = 0, piece = 0; at < message->size && status == RG_OK; at += piece) {
        struct rg_peer_message part = *message;
        piece = rg_conn_piece(peer->conn, rg_chunk_size_get(&peer->chunk));
        part.offset += at;
        part.size = piece = message->size - at < piece ? message->size - at : piece;
        const uint64_t began = rg_now_ns();
        status = rg_peer_send(peer, &part, (const char *)data + at, piece);
        rg_chunk_size_sent(&peer->chunk, piece, rg_now_ns() - began);
    }
    return status;
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

/* From now on it may be used, by RDMA where that was agreed on and can be had. */
static void open_upgraded(struct rg_peer *peer)
{
    struct rg_worker *worker = peer->worker;
    struct rg_conn *conn = peer->conn, *control_conn = NULL;
    const enum rg_status status =
        rg_peer_upgrade(peer->connects, rg_peers_of(worker)->rdma, &conn, &control_conn);
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    peer->conn = conn;
    peer->control_conn = control_conn;
    peer->state = status == RG_OK ? RG_PEER_OPEN : RG_PEER_LOST;
    pthread_cond_broadcast(&rg_peers_of(worker)->changed);
    if (status != RG_OK || rg_worker_over(worker))
        rg_conn_interrupt(conn);
    if (status != RG_OK)
        rg_info("session %llu: no connection to another server of its client, %s: %s",
                (unsigned long long)worker->session, rg_conn_peer(conn), rg_status_string(status));
}

/* False: it has been lost. */
static bool begin(struct rg_peer *peer)
{
    if (peer->upgrades)
        open_upgraded(peer);
    RG_SCOPED_LOCK(rg_deferred_lock(peer->worker));
    const bool open = peer->state == RG_PEER_OPEN;
    if (open)
        rg_info("session %llu: connected to another server of its client, %s, by %s",
                (unsigned long long)peer->worker->session, rg_conn_peer(peer->conn),
                rg_conn_transport(peer->conn));
    return open;
}

/* Of a connection to the session of another process. */
static void *other_reader_main(void *argument)
{
    struct rg_peer *peer = argument;
    enum rg_status status = begin(peer) ? RG_OK : RG_ERR_LOST;
    rg_adaptive_wait_init(&peer->wait, RG_WAIT_DEFAULT);
    peer->wait.crowds_most = CROWDS_MOST;
    rg_conn_set_read_ahead(peer->conn);
    peer->user = status == RG_OK ? service->opened(peer) : NULL;
    while (peer->user && status == RG_OK) {
        leave_to_others(peer);
        RG_SCOPED_LOCK(&peer->receive_lock);
        status = receive_one(peer, -1);
    }
    lose(peer);
    if (peer->user)
        service->lost(peer);
    RG_SCOPED_LOCK(rg_deferred_lock(peer->worker));
    peer->state = RG_PEER_OVER;
    return NULL;
}

static void *reader_main(void *argument)
{
    struct rg_peer *peer = argument;
    struct rg_message received;
    struct rg_peer_message message;
    bool good = begin(peer);
    while (good && rg_conn_recv(peer->conn, -1, &received) == RG_OK) {
        if (received.size != sizeof message)
            break;
        memcpy(&message, received.data, sizeof message);
        if (!rg_peer_transfer_message(peer, &message, received.bulk_size))
            break;
    }
    lose(peer);
    return NULL;
}

bool rg_peer_start_reader(struct rg_peer *peer)
{
    return rg_thread_create(&peer->reader, "rg-peer",
                            peer->number < RG_SERVERS_MAX ? reader_main : other_reader_main, peer) == RG_OK;
}
