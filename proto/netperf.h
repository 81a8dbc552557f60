/*
 * netperf.h - what travels after a hello of purpose NETPERF: questions that measure the connection.
 *
 * The client sends messages that begin with struct rg_netperf_request, padded to the size it wants to measure, with bulk
 * data as it likes. The server takes all of it and answers with `replies` messages of `reply_size` bytes with
 * `reply_bulk` bytes of bulk data each: 0 makes it a sink, 1 an echo, more a source.
 *
 * With `raw_rounds` the same is done beside the transport, on the connection's socket, for comparison: so many times the
 * server reads `raw_receive` bytes and writes `raw_send`; if raw_receive is 0 it only writes; if raw_send is 0, it writes
 * one byte at the end. A connection carries either kind, never both, and raw ones only where it did not move.
 *
 * The server ends it after RG_NETPERF_SECONDS or RG_NETPERF_BYTES, and at the first request that breaks the limits.
 */
#ifndef RG_PROTO_NETPERF_H
#define RG_PROTO_NETPERF_H

#include "proto/wire.h"

#include <assert.h>
#include <stdint.h>

#define RG_NETPERF_SECONDS     120
#define RG_NETPERF_BYTES       (256ull << 30) /* in both directions together */
#define RG_NETPERF_REPLIES_MAX 65536u
#define RG_NETPERF_RAW_MAX     (4u << 20) /* bytes read or written in one round */

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

#endif
