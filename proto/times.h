/*
 * times.h - what a worker measures of each record where the client asked for it (RG_CONTROL_CAP_TIMES), and how it is
 * fetched: RG_ANSWER_TIMES asks, RG_NOTICE_TIMES answers with an array of these as bulk data. Neither is part of the
 * sequence of records, so asking changes nothing of what is measured.
 */
#ifndef RG_PROTO_TIMES_H
#define RG_PROTO_TIMES_H

#include "common/base/limits.h"

#include <assert.h>
#include <stdint.h>

enum rg_time_flags {
    RG_TIME_WORK = 1,         /* the device was given something to do */
    RG_TIME_END = 2,          /* `end` is known */
    RG_TIME_YIELDED = 4,      /* it waited while others' records went on: `served` is when that began */
    RG_TIME_BLOCKS = 8,       /* it may wait for the device in its place */
    RG_TIME_NON_BLOCKING = 16 /* the stream does not wait for the legacy one */
};

/** Times in nanoseconds of the worker's monotonic clock; 0: there was none. */
struct rg_time {
    uint64_t seq;           /* of the record */
    uint64_t begin, served; /* while it kept the others' records waiting */
    uint64_t reply, sent;   /* its reply began to be sent, and was */
    uint64_t end;           /* the device had done what it was given */
    uint64_t stream; /* handle that it named last; 0: none; per-thread ones: RG_TIME_THREAD_STREAM | thread */
    uint64_t event;  /* handle, likewise */
    uint16_t op;
    uint16_t flags; /* enum rg_time_flags */
    int32_t result; /* CUresult */
};
static_assert(sizeof(struct rg_time) == 72, "wire layout");

#define RG_TIME_THREAD_STREAM (1ull << 63)
#define RG_TIMES_PART         32768u /* of one answer */

#endif
