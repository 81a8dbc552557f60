/*
 * tcp.c - the receiving side of transport tcp: what a peer writes into the socket, in one go, and then closes it.
 *
 * The input: u8 how (1: reads ahead; its other bits: in what pieces bulk data is taken), then the bytes of the stream.
 */
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/connect/connect.h"
#include "transport/frame.h"
#include "transport/operations.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STREAM_MAX = 64 << 10, /* what a socket takes without a reader */
    PIECES_MAX = 64
};

static volatile unsigned char sink;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_transport_register(&rg_transport_tcp_ops);
    return 0;
}

/* Takes the bulk data in pieces, some of them small, each into memory that ends behind it; a part of it may be left, to nowhere. */
static bool take_bulk(struct rg_conn *conn, size_t size, unsigned how)
{
    const size_t piece = how & 2 ? 1 + (how >> 2) * 37u : size;
    for (unsigned n = 0; size; n++) {
        const size_t now = piece < size && n < PIECES_MAX ? piece : size;
        unsigned char *memory = how & 4 ? NULL : fuzz_room(now, RG_BULK_MAX);
        const bool came = rg_conn_recv_bulk(conn, memory, now) == RG_OK;
        if (came && memory)
            sink = memory[now - 1];
        if (!came)
            return false;
        size -= now;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    struct rg_conn *conn;
    struct rg_message message;
    const unsigned how = size ? data[0] : 0;
    size = size ? size - 1 : 0;
    if (size > STREAM_MAX)
        return 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(!size || write(ends[0], data + 1, size) == (ssize_t)size);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(rg_transport_adopt_fd(ends[1], &(struct rg_transport_options){.filters = ""}, &conn) == RG_OK);
    if (how & 1)
        rg_conn_set_read_ahead(conn);
    while (rg_conn_recv(conn, 1000, &message) == RG_OK) {
        CHECK(message.size <= RG_MESSAGE_MAX && message.bulk_size <= RG_BULK_MAX);
        fuzz_read(message.data, message.size);
        if (!take_bulk(conn, message.bulk_size, how))
            break;
    }
    rg_conn_destroy(conn);
    close(ends[0]);
    return 0;
}

void fuzz_seeds(void)
{
    unsigned char seed[512] = {1};
    size_t at = 1;
    for (unsigned i = 0; i < 4; i++) {
        const struct rg_frame frame = rg_frame_encode(24 + i, i * 20);
        memcpy(seed + at, &frame, sizeof frame);
        at += sizeof frame + 24 + i + i * 20;
    }
    fuzz_seed("frames", seed, at);
}
