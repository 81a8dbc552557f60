/*
 * trace_format.h - the file of `remote-gpu run --record`, written by record.c and read by
 * client/predict/trace.c. docs/prediction.md describes it. Constants alone, so that the command needs nothing
 * of the client core.
 *
 * The file is struct rg_trace_head, then blocks: struct rg_trace_block and `size` bytes of payload.
 * Everything is little-endian. In payloads, numbers are LEB128 ("u"; at most 10 bytes) and signed ones zigzag
 * first ("s"); a text is u length and its bytes. Times are nanoseconds; those of a payload start from the
 * time before, or 0 at its start.
 *
 *   NAMES    u kind (enum rg_trace_names), u n, n texts; for FUNCTIONS each followed by the text of its class
 *   PROGRAM  text program, u pid, u bits of the optimisations that are on
 *   SERVER   text server, text transport, text device kind, u flags (enum rg_trace_server_flags): of a session; the
 *            first block is that of session 0, and so on
 *   THREAD   u thread, u n, n events: u kind, s start since the event before,
 *              CALL   u duration, u function, u sent, u received
 *              WAIT   u duration, u round trips, u sent, u received
 *              POST   u session, s sequence number since the POST before, u operation, u size, u sent, u received
 *              POLL   u session, u duration, u 1 if it ended with what was asked for being done, u 1 for an event,
 *                     u handle
 *              SAVED  u optimisation
 *              EXCHANGE  what the record before says servers have to exchange (struct rg_probe_exchange): u key,
 *                     u sent, u received, u ways, u turns
 *   TIMES    u session, u n, n records of its worker (proto/times.h): s sequence number since the one before,
 *            u operation, u flags,
 *            s result, s begin since the one before, u served since begin, u reply since begin + 1 or 0,
 *            u sent since reply (if there is one), s end since begin (with RG_TIME_END), u stream xor the one
 *            before,
 *            u event xor the one before
 *   END      u events, u events left out, u records, u records left out, u elapsed, u bytes sent, u bytes
 *   received,
 *            u round trips, u bytes of records that were not sent because they repeat others; the last
 */
#ifndef RG_CLIENT_PROFILE_TRACE_FORMAT_H
#define RG_CLIENT_PROFILE_TRACE_FORMAT_H

#include <assert.h>
#include <stdint.h>

#define RG_TRACE_MAGIC   "RGTRACE\n"
#define RG_TRACE_VERSION 4

struct rg_trace_head {
    char magic[8];
    uint32_t version;
    uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct rg_trace_head) == 16, "file layout");

enum rg_trace_type {
    RG_TRACE_NAMES = 1,
    RG_TRACE_PROGRAM,
    RG_TRACE_SERVER,
    RG_TRACE_THREAD,
    RG_TRACE_TIMES,
    RG_TRACE_END
};

struct rg_trace_block {
    uint32_t type; /* enum rg_trace_type */
    uint32_t crc;  /* CRC-32 of the payload */
    uint64_t size;
};
static_assert(sizeof(struct rg_trace_block) == 16, "file layout");

enum rg_trace_names { RG_TRACE_FUNCTIONS = 1, RG_TRACE_OPERATIONS, RG_TRACE_OPTIMISATIONS };
enum rg_trace_server_flags {
    RG_TRACE_TIMED = 1, /* the server measures its records */
};
enum rg_trace_event {
    RG_TRACE_CALL = 1,
    RG_TRACE_WAIT,
    RG_TRACE_POST,
    RG_TRACE_POLL,
    RG_TRACE_SAVED,
    RG_TRACE_EXCHANGE
};

/* Limits that a reader holds a file to. */
#define RG_TRACE_BLOCK_MAX (64u << 20)
#define RG_TRACE_NAMES_MAX 65536u
#define RG_TRACE_TEXT_MAX  4096u

#endif
