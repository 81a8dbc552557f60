/*
 * bulk_wire.c - what bulk data takes over one connection of a transport, with whatever filter is in its way, and no more:
 * the limit that bench/bulk holds copies against.
 *
 *   bulk_wire FILTER BYTES [TIMES]
 *
 * Sends BYTES in messages of 1 MiB to another process over loopback TCP, waits for its word that all have come, and the
 * other way round. Prints the shortest time of each way in seconds.
 */
#include "transport/connect/connect.h"
#include "transport/operations.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PART = 1 << 20 };

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bulk_wire: %s\n", what);
    exit(1);
}

static void word(struct rg_conn *conn)
{
    const struct iovec message = {(void *)(uintptr_t) "now", 3};
    if (rg_conn_send(conn, &(struct rg_send){.msg = &message, .n_msg = 1}) != RG_OK)
        fail("not sent");
}

static void await(struct rg_conn *conn)
{
    struct rg_message message;
    if (rg_conn_recv(conn, -1, &message) != RG_OK || message.size != 3)
        fail("not received");
}

static void push(struct rg_conn *conn, const char *memory, size_t size)
{
    for (size_t at = 0; at < size; at += PART) {
        const struct iovec message = {(void *)(uintptr_t) "part", 4},
                           bulk = {(void *)(uintptr_t)(memory + at), size - at < PART ? size - at : PART};
        if (rg_conn_send(conn, &(struct rg_send){.msg = &message, .n_msg = 1, .bulk = &bulk, .n_bulk = 1}) !=
            RG_OK)
            fail("not sent");
    }
}

static void take(struct rg_conn *conn, char *memory, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct rg_message message;
        if (rg_conn_recv(conn, -1, &message) != RG_OK || message.bulk_size > size - at ||
            rg_conn_recv_bulk(conn, memory + at, message.bulk_size) != RG_OK)
            fail("not received");
        at += message.bulk_size;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        fail("usage: bulk_wire FILTER BYTES [TIMES]");
    const size_t size = strtoull(argv[2], NULL, 10);
    const int times = argc > 3 ? atoi(argv[3]) : 3;
    char *memory = malloc(size), why[200] = "";
    struct rg_listener *listener;
    struct rg_conn *conn;
    const struct rg_transport_options plain = {.filters = ""}, filtered = {.filters = argv[1]};
    if (!memory)
        fail("no memory");
    memset(memory, 1, size);
    rg_transport_register(&rg_transport_tcp_ops);
    if (rg_transport_listen("127.0.0.1:0", &plain, why, sizeof why, &listener) != RG_OK)
        fail(why);
    const pid_t child = fork();
    if (child == 0) {
        if (rg_listener_accept(listener, 10000, &conn) != RG_OK)
            fail("nobody came");
        for (int i = 0; i < times; i++) {
            take(conn, memory, size);
            word(conn);
            await(conn);
            push(conn, memory, size);
        }
        rg_conn_destroy(conn);
        return 0;
    }
    if (rg_transport_connect(rg_listener_address(listener), &filtered, why, sizeof why, &conn) != RG_OK)
        fail(why);
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < times; i++) {
        const uint64_t start = rg_now_ns();
        push(conn, memory, size);
        await(conn);
        const uint64_t middle = rg_now_ns();
        word(conn);
        take(conn, memory, size);
        const double there = (double)(middle - start) / 1e9, back = (double)(rg_now_ns() - middle) / 1e9;
        best[0] = there < best[0] ? there : best[0];
        best[1] = back < best[1] ? back : best[1];
    }
    printf("%.6f %.6f\n", best[0], best[1]);
    rg_conn_destroy(conn);
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}
