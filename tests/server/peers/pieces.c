/*
 * pieces.c - a chunk of a copy to another server goes in pieces, so that the worker's questions for data of other copies do not wait until
 * a slow link has taken all of it.
 */
#include "tests/server/peers/other_server.h"
#include "tests/server/stub_driver.h"

#include <stdlib.h>

enum { SIZE = RG_PEER_CHUNK };

/* Takes the parts of the chunk, which are to follow each other; how large the first is. */
static size_t receive_chunk(struct rg_conn *conn, unsigned char *memory)
{
    size_t first = 0;
    for (size_t at = 0; at < SIZE;) {
        struct rg_message received;
        const struct rg_peer_message message = hear(conn, RG_PEER_DATA, &received);
        CHECK(message.offset == at && message.size == received.bulk_size && message.size <= SIZE - at);
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
    struct rg_conn *here, *peer = connect_here(true, &here);
    join_peer(c->worker, here);
    say(peer, RG_PEER_ASK, NULL, SIZE);
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
