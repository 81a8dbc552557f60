/*
 * pieces.c - a chunk of a copy to another server goes in pieces, so that the worker's questions for data of other copies do not wait until
 * a slow link has taken all of it.
 */
#include "common/sync/scoped_lock.h"
#include "server/peers/peers.h"
#include "server/transfer/deferred.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "transport/connect/connect.h"

#include <stdlib.h>
#include <string.h>

enum { PEER = 3, TRANSFER = 9, SIZE = RG_PEER_CHUNK, SOON_MS = 20000 };

/* The other end of a connection to the worker of another server, of which the client has told. */
static struct rg_conn *connect_peer(struct rg_worker *worker)
{
    static const struct rg_client_hello hello = {.purpose = RG_PURPOSE_INTRODUCE, .peer_secret = {1, 2, 3}};
    const struct rg_transport_options options = {.filters = "", .bulk = true};
    struct rg_listener *listener;
    struct rg_conn *here, *there;
    CHECK(rg_transport_listen("mem:pieces", &options, NULL, 0, &listener) == RG_OK);
    CHECK(rg_transport_connect("mem:pieces", &options, NULL, 0, &there) == RG_OK);
    CHECK(rg_listener_accept(listener, SOON_MS, &here) == RG_OK);
    rg_listener_destroy(listener);
    {
        RG_SCOPED_LOCK(&rg_deferred_of(worker)->lock);
        struct rg_peer *peer = &rg_peers_of(worker)->peers[PEER];
        peer->state = RG_PEER_INVITED;
        memcpy(peer->secret, hello.peer_secret, sizeof peer->secret);
    }
    rg_peers_connect(worker, &hello, here);
    return there;
}

/* Takes the parts of the chunk, which are to follow each other; how large the first is. */
static size_t receive_chunk(struct rg_conn *conn, unsigned char *memory)
{
    size_t first = 0;
    for (size_t at = 0; at < SIZE;) {
        struct rg_message received;
        struct rg_peer_message message;
        CHECK(rg_conn_recv(conn, SOON_MS, &received) == RG_OK && received.size == sizeof message);
        memcpy(&message, received.data, sizeof message);
        CHECK(message.type == RG_PEER_DATA && message.transfer == TRANSFER && message.offset == at);
        CHECK(message.size == received.bulk_size && message.size <= SIZE - at);
        CHECK(rg_conn_recv_bulk(conn, memory, message.size) == RG_OK);
        first = at ? first : message.size;
        at += message.size;
    }
    return first;
}

int main(void)
{
    stub_driver_use(stub_succeed);
    stub_driver_call_host();
    unsigned char *memory = malloc(SIZE);
    struct client *c = client_create();
    CHECK(memory);
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    struct rg_conn *peer = connect_peer(c->worker);
    const struct rg_peer_message ask = {.type = RG_PEER_ASK, .transfer = TRANSFER, .size = SIZE};
    const struct iovec part = {.iov_base = (void *)(uintptr_t)&ask, .iov_len = sizeof ask};
    CHECK(rg_conn_send(peer, &(struct rg_send){.msg = &part, .n_msg = 1}) == RG_OK);
    put(c, RG_OP_rgPeerSend, 0, 0, "8888848", (uint64_t)1 << 40, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1,
        (uint64_t)TRANSFER, PEER, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    CHECK(receive_chunk(peer, memory) <= SIZE / 2); /* what follows depends on how fast that went */
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 1));
    stub_driver_wait();
    CHECK(client_destroy(c) == 0);
    rg_conn_destroy(peer);
    free(memory);
    return 0;
}
