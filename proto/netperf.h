/*
 * netperf.h - what travels after a hello of purpose NETPERF: questions that measure the connection.
 *
 * The client sends messages that begin with struct rg_netperf_request, padded to the size it wants to measure, with bulk
 * data as it likes. The server takes all of it and answers with `replies` messages of `reply_size` bytes with
 * `reply_bulk` bytes of bulk data each: 0 makes it a sink, 1 an echo, more a source.
 *
 * With `raw_rounds` the same is done beside the transport, on the connection's socket, for comparison: so many times the
 * server reads `raw_receive` bytes and writes `raw_send`; if raw_receive is 0 it only writes; if raw_send is 0, it writes
 * one byte at the end. A connection carries either kind, never both, and raw ones only where it did not move and is not by TLS, whose socket carries nothing in the
 * clear.
 *
 * RG_MESSAGE_PERFTEST asks the server to start its end of a program of perftest, if it is installed there, listening by
 * rdma_cm on a port that the answer tells. There is one such program at a time; the next request, and the end of the
 * connection, end it. Where the server's operator allows no RDMA, the error is EPERM.
 *
 * The server ends it after RG_NETPERF_SECONDS or RG_NETPERF_BYTES, and at the first request that breaks the limits.
 */
#ifndef RG_PROTO_NETPERF_H
#define RG_PROTO_NETPERF_H

#include "common/base/limits.h"
#include "proto/wire.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RG_NETPERF_SECONDS 120
#define RG_NETPERF_BYTES   (256ull << 30) /* in both directions together */
#define RG_NETPERF_TAG     1u /* of the memory that the client advertises for the bulk data of answers */

struct rg_netperf_request {
    struct rg_message_header header; /* kind RG_MESSAGE_NETPERF */
    uint32_t replies;
    uint32_t reply_size; /* at least a message header, at most RG_MESSAGE_MAX */
    uint32_t reply_bulk; /* at most RG_BULK_MAX */
    uint32_t raw_rounds; /* at most RG_NETPERF_REPLIES_MAX; 0: not raw */
    uint32_t raw_receive;
    uint32_t raw_send;
};
static_assert(sizeof(struct rg_netperf_request) == 48, "wire layout");

enum rg_netperf_program {
    RG_NETPERF_SEND_LAT = 1,
    RG_NETPERF_WRITE_BW = 2,
    RG_NETPERF_READ_BW = 3,
};

struct rg_netperf_perftest {
    struct rg_message_header header; /* kind RG_MESSAGE_PERFTEST */
    uint32_t program;                /* enum rg_netperf_program */
    uint32_t size;                   /* of a message: 1 to RG_NETPERF_RAW_MAX */
    uint32_t iterations;             /* 5 to RG_NETPERF_ITERATIONS_MAX */
    uint32_t single; /* 1: one message under way at a time, for devices that lose some of more; else 0 */
};
static_assert(sizeof(struct rg_netperf_perftest) == 40, "wire layout");

struct rg_netperf_started {
    struct rg_message_header header; /* kind RG_MESSAGE_PERFTEST */
    uint32_t error;                  /* errno: why it could not be started; 0: it is about to listen */
    uint32_t port;
};
static_assert(sizeof(struct rg_netperf_started) == 32, "wire layout");

enum { RG_NETPERF_WORDS = 16, RG_NETPERF_WORD = 16 };

/** The command line of either end, without the server's address: its words and NULL, in `text`. */
static inline void rg_netperf_command(const struct rg_netperf_perftest *request, uint32_t port,
                                      char text[3][RG_NETPERF_WORD], const char *words[RG_NETPERF_WORDS])
{
    static const char *const names[] = {"", "ib_send_lat", "ib_write_bw", "ib_read_bw"};
    snprintf(text[0], RG_NETPERF_WORD, "%u", (unsigned)port);
    snprintf(text[1], RG_NETPERF_WORD, "%u", (unsigned)request->size);
    snprintf(text[2], RG_NETPERF_WORD, "%u", (unsigned)request->iterations);
    const char *line[RG_NETPERF_WORDS] = {
        names[request->program], "-F", "-R", "-p", text[0], "-s", text[1], "-n", text[2], NULL};
    unsigned n = 9;
    if (request->single && request->program != RG_NETPERF_SEND_LAT) {
        line[n++] = "-t";
        line[n++] = "1";
        if (request->program == RG_NETPERF_READ_BW) {
            line[n++] = "-o";
            line[n++] = "1";
        }
    }
    memcpy(words, line, sizeof line);
}

#endif
