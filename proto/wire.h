/*
 * wire.h - what travels between client core and worker once the control conversation (control.h) is over.
 *
 * Everything is little-endian with fixed widths. Each transport message begins with struct rg_message_header:
 *
 *   client → worker   BATCH   `count` records, each a call: struct rg_record, then its parameters, padded to 8 bytes.
 *                             Bulk data, if any, belongs to the batch's last record.
 *                     DELTA   the same, its records as what differs from earlier ones (proto/delta.h), to a server that
 *                             knows it (RG_CONTROL_CAP_DELTA)
 *                     ANSWER  struct rg_answer: the client's part of something the worker asked for by a NOTICE
 *   worker → client   REPLY   struct rg_reply and the outputs of one call that waits; bulk: data copied to the host
 *                     NOTICE  struct rg_notice: something that no call waits for
 *   both              CONTROL protobuf-c messages (control.h); after the handshake only "session ends"
 *
 * Order: records are executed in the order of their sequence numbers (the header's `seq` is that of its first
 * record). Replies come in any order. `ack` is the last sequence number of the peer that this side has executed
 * (client: the last reply or notice it has handled); it is what a resumed session will start from.
 */
#ifndef RG_PROTO_WIRE_H
#define RG_PROTO_WIRE_H

#include "proto/memory_level.h"

#include <assert.h>
#include <stdint.h>

/* Raised when this file changes incompatibly; refused at hello if it differs. */
#define RG_PROTOCOL_MAJOR 1
/* Raised when something is added. */
#define RG_PROTOCOL_MINOR 0

enum rg_message_kind {
    RG_MESSAGE_CONTROL = 1,
    RG_MESSAGE_BATCH = 2,
    RG_MESSAGE_REPLY = 3,
    RG_MESSAGE_NOTICE = 4,
    RG_MESSAGE_ANSWER = 5,
    RG_MESSAGE_NETPERF = 6, /* not in a session: proto/netperf.h */
    RG_MESSAGE_OUT_OF_BAND =
        7, /* a message whose bulk data travels on other connections: transport/multipath/wire.h */
    RG_MESSAGE_PIECE = 8, /* of such bulk data, on one of these connections */
    RG_MESSAGE_DELTA = 9,
    RG_MESSAGE_PERFTEST = 16, /* not in a session: proto/netperf.h */
};

struct rg_message_header {
    uint16_t kind;    /* enum rg_message_kind */
    uint16_t version; /* RG_PROTOCOL_MAJOR */
    uint32_t count;   /* BATCH, DELTA: records; others: 1 */
    uint64_t seq;
    uint64_t ack;
};
static_assert(sizeof(struct rg_message_header) == 24, "wire layout");

/** One call. `size` counts this header, the parameters and the padding; a multiple of 8. */
struct rg_record {
    uint32_t size;
    uint16_t op;     /* the server's number of the operation */
    uint16_t flags;  /* see below; others must be 0 */
    uint32_t thread; /* of the client: see "threads" below */
    uint32_t token;  /* names the reply that the caller waits for; 0: nobody waits */
};
static_assert(sizeof(struct rg_record) == 16, "wire layout");

/*
 * Flags. RG_RECORD_AWAITED: the thread sends nothing more before the reply has come, so others' records may pass this one. With
 * a token, and to a server that knows it (RG_CONTROL_CAP_AWAITED).
 */
#define RG_RECORD_AWAITED 1u

/*
 * Threads. Each client thread that has called CUDA has a number. Its first record makes it known; op rgThreadEnd ends it.
 * The worker keeps for each thread the current context (op rgThreadSetContext) and the per-thread default streams.
 *
 * Handles are 64-bit ids that the client chose; 0 is NULL. Streams: 1 is the legacy default stream, 2 the
 * per-thread default stream of the record's thread in its current context, as CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
 *
 * A failure of a call that nobody waits for is kept by the worker (the first one) and reported once, in
 * `async_result` of the next reply or, if nobody waits by then, by RG_NOTICE_ERROR.
 */

struct rg_reply {
    uint32_t token;
    int32_t result;       /* CUresult of the call */
    int32_t async_result; /* CUresult of an earlier call that nobody waited for, or 0 */
    uint16_t async_op;    /* which call that was */
    uint16_t memory;      /* RG_REPLY_MEMORY: what is left to the session, and what the call took */
    uint64_t size;        /* bytes of outputs that follow */
};
static_assert(sizeof(struct rg_reply) == 24, "wire layout");

/* Levels of device memory (proto/memory_level.h), each 0 where it is not said: what is left on the device that has least, and what
   loading code took. */
#define RG_REPLY_MEMORY(left, taken) ((uint16_t)((left) | (taken) << RG_MEMORY_LEVEL_BITS))
#define RG_REPLY_LEFT(memory)        ((memory)&RG_MEMORY_LEVEL_MASK)
#define RG_REPLY_TAKEN(memory)       ((memory) >> RG_MEMORY_LEVEL_BITS & RG_MEMORY_LEVEL_MASK)

enum rg_notice_type {
    RG_NOTICE_ERROR = 1,     /* arg0: CUresult, arg1: op: an asynchronous error */
    RG_NOTICE_HOST_CALL = 2, /* id: a host function or stream callback is due; arg0: CUresult for a callback.
                                The client runs it and answers RG_ANSWER_HOST_DONE.
                                arg1: 1 if the driver refused it: it will never run, nothing is answered. */
    RG_NOTICE_DEFERRED_READ =
        3, /* id: a transfer to the host; arg0: offset, arg1: bytes; the data is the bulk part.
                                arg2: 1 with the last part of the transfer */
    RG_NOTICE_RENDEZVOUS =
        4, /* id: a transfer from the host that reads its source now; arg0: offset, arg1: bytes.
                                The client answers RG_ANSWER_DATA. */
    RG_NOTICE_OUTPUT = 5, /* device printf; arg0: 1 stdout, 2 stderr; the text follows, arg1 bytes */
    RG_NOTICE_MANAGED =
        6, /* id of RG_ANSWER_MANAGED_OUT; arg0: CUresult, arg1: bytes (0: none), the bulk part;
                             arg2: bit 0: the device may have been at work meanwhile, bit 1: it was never the same twice */
    RG_NOTICE_PREALLOC =
        21, /* id: of a slab; arg0: so many blocks are ready, struct rg_prealloc_block of each follow;
                             arg1: so many of those asked for are not to be had (proto/prealloc.h) */
    RG_NOTICE_DONE = 20, /* what the client watches has come; arg0: how many; struct rg_done of each follow */
    RG_NOTICE_CREDIT =
        22, /* arg0: bytes of room that have become free since the session began (proto/bulk_credit.h) */
    RG_NOTICE_GPU_PATH =
        40, /* bulk data gets to and from GPU arg0 so from now on; arg1: enum rg_gpu_path (proto/gpu_path.h) */
    RG_NOTICE_ALIVE =
        41, /* the server lives: an answer to RG_ANSWER_ALIVE, or by itself while it cannot read */
    RG_NOTICE_SAY =
        42, /* a line for the program's standard error follows, arg0 bytes (RG_NOTICE_SAY_MAX at most), to a client that
               knows it (RG_CONTROL_CAP_SAY) */
    RG_NOTICE_PEER_LOST =
        50, /* the connection to the server of the client's session `id` is lost (proto/peer.h) */
    RG_NOTICE_RECLAIM =
        23, /* id: of the reclaim; the client answers RG_ANSWER_RECLAIMED (proto/prealloc.h) */
    RG_NOTICE_TIMES =
        30, /* id of RG_ANSWER_TIMES; arg0: how many struct rg_time (proto/times.h) are the bulk part,
                             arg1: how many were not kept, arg2: how many more there are now */
};

/** With RG_NOTICE_DONE. */
struct rg_done {
    uint64_t watch;
    int32_t result; /* CUresult; CUDA_ERROR_NOT_READY: it is not watched, ask again */
    float
        ms; /* rgEventWatchTimed: since the other event; less than 0: not known. Of others it means nothing. */
};
static_assert(sizeof(struct rg_done) == 16, "wire layout");

struct rg_notice {
    uint32_t type;
    uint32_t
        memory_left; /* a level of proto/memory_level.h: what is left to the session; 0: it is not said */
    uint64_t id;
    uint64_t arg[3];
};
static_assert(sizeof(struct rg_notice) == 40, "wire layout");

enum rg_answer_type {
    RG_ANSWER_HOST_DONE = 1, /* id of the notice */
    RG_ANSWER_DATA = 2,      /* id; arg0: offset, arg1: bytes; the data is the bulk part */
    /* Asked by the client itself: memory that host and device both address (server/managed/managed.h), at once. */
    RG_ANSWER_MANAGED_IN = 3, /* id: a context; bulk: runs of bytes, each behind u64 address and u64 size */
    RG_ANSWER_MANAGED_OUT =
        4, /* id: named by the reply, RG_NOTICE_MANAGED; arg0: address, arg1: bytes (RG_BULK_MAX at most),
                                arg2: context; reserved: enum rg_managed_flags. The message's seq: the last record
                                that was appended before. */
    RG_ANSWER_RECLAIMED =
        5, /* id of the notice; the bulk part: struct rg_prealloc_return of each block that it has not
                                given out and gives back */
    /* by itself: the client lives; if nothing else is sent, each quarter of the time that the server gives it
       (ServerHello.keep_alive). arg0: 1: the server is to say RG_NOTICE_ALIVE, too */
    RG_ANSWER_ALIVE = 40,
    RG_ANSWER_TIMES =
        30, /* id: named by RG_NOTICE_TIMES; arg0: 1: also of work that the device has not done yet */
};

enum rg_managed_flags {
    RG_MANAGED_IF_IDLE = 1, /* no data while the device may be at work */
    RG_MANAGED_STEADY = 2,  /* read again until it is the same twice, as often as makes sense */
};

struct rg_answer {
    uint32_t type;
    uint32_t reserved; /* flags of RG_ANSWER_MANAGED_OUT */
    uint64_t id;
    uint64_t arg[3];
};
static_assert(sizeof(struct rg_answer) == 40, "wire layout");

#endif
