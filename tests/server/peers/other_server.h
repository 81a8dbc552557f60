/* other_server.h - the worker of another server, as a test plays it, of which the client has told a worker. */
#ifndef RG_TESTS_SERVER_PEERS_OTHER_SERVER_H
#define RG_TESTS_SERVER_PEERS_OTHER_SERVER_H

#include "common/sync/scoped_lock.h"
#include "server/peers/peers.h"
#include "server/transfer/deferred.h"
#include "tests/server/raw_client.h"

#include <string.h>

enum { PEER = 3, TRANSFER = 9, SOON_MS = 20000 };

/** Hands an end to the worker, as one that it was invited by for the peer of that number. */
static inline void join_as(struct rg_worker *worker, unsigned number, struct rg_conn *here)
{
    static const struct rg_client_hello hello = {.purpose = RG_PURPOSE_INTRODUCE, .peer_secret = {1, 2, 3}};
    {
        RG_SCOPED_LOCK(&rg_deferred_of(worker)->lock);
        struct rg_peer *peer = &rg_peers_of(worker)->peers[number];
        peer->state = RG_PEER_INVITED;
        memcpy(peer->secret, hello.peer_secret, sizeof peer->secret);
    }
    rg_peers_connect(worker, &hello, here);
}

static inline void join_peer(struct rg_worker *worker, struct rg_conn *here)
{
    join_as(worker, PEER, here);
}

/** Says something, without bulk data. False: the connection is gone. */
static inline bool say_plain(struct rg_conn *conn, const struct rg_peer_message *message)
{
    const struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
    return rg_conn_send(conn, &(struct rg_send){.msg = &part, .n_msg = 1}) == RG_OK;
}

/** Says something of the transfer, with bulk data of that size unless it is NULL. */
static inline void say(struct rg_conn *conn, unsigned type, const void *bulk, size_t size)
{
    const struct rg_peer_message message = {.type = type, .transfer = TRANSFER, .size = size};
    const struct iovec part = {.iov_base = (void *)(uintptr_t)&message, .iov_len = sizeof message};
    const struct iovec data = {.iov_base = (void *)(uintptr_t)bulk, .iov_len = size};
    CHECK(rg_conn_send(conn, &(struct rg_send){
                                 .msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = bulk ? 1 : 0}) == RG_OK);
}

/** The next thing that the worker says of the transfer. `received`: the message, whose bulk data is the caller's to take. */
static inline struct rg_peer_message hear(struct rg_conn *conn, unsigned type, struct rg_message *received)
{
    struct rg_peer_message message;
    CHECK(rg_conn_recv(conn, SOON_MS, received) == RG_OK && received->size == sizeof message);
    memcpy(&message, received->data, sizeof message);
    CHECK(message.type == type && message.transfer == TRANSFER);
    return message;
}

#endif
