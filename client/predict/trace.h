/*
 * trace.h - reading the file of `remote-gpu run --record` (client/profile/trace_format.h).
 *
 * The file may come from anywhere: lengths, counts, kinds and numbers are checked, and what does not fit is
 * said. Nothing here executes or follows anything that the file names.
 */
#ifndef RG_CLIENT_PREDICT_TRACE_H
#define RG_CLIENT_PREDICT_TRACE_H

#include "client/profile/trace_format.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "proto/times.h"

#include <stdbool.h>
#include <stddef.h>

struct rg_trace_item {
    uint64_t start, duration; /* ns since the trace began */
    uint8_t kind;             /* enum rg_trace_event */
    uint8_t server;           /* POST, POLL */
    uint32_t code; /* function, round trips, operation, whether it is done, optimisation, ways: by kind */
    uint32_t size; /* POST: bytes of the record; POLL: 1 for an event; EXCHANGE: turns */
    uint64_t seq;  /* POST; POLL: the handle; EXCHANGE: the key */
    uint64_t sent, received;
};

struct rg_trace_thread {
    uint64_t number; /* the system's */
    struct rg_trace_item *items;
    size_t n, capacity;
};

struct rg_trace_list {
    char **names, **classes; /* classes: of functions alone */
    size_t n;
};

struct rg_trace_server {
    char *name, *transport, *device;
    bool timed;            /* it has measured its part */
    struct rg_time *times; /* by sequence number */
    size_t n_times, times_capacity;
};

struct rg_trace {
    struct rg_trace_list functions, operations, optimisations;
    char *program;
    uint64_t pid, optimisations_on;
    struct rg_trace_server servers[RG_SERVERS_MAX]; /* one at least */
    size_t n_servers;
    struct rg_trace_thread *threads;
    size_t n_threads;
    uint64_t events, events_dropped, times_dropped;
    uint64_t elapsed; /* ns, from the begin of the trace to the end of the process */
    uint64_t sent, received, round_trips;
    uint64_t repeated; /* bytes of records that were not sent: proto/delta.h */
};

/** Reads the file; `why` says what is wrong with it. The caller calls rg_trace_free in any case. */
RG_MUST_CHECK enum rg_status rg_trace_read(const char *path, struct rg_trace *trace, char *why,
                                           size_t why_size);
/** The same of a file in memory. */
RG_MUST_CHECK enum rg_status rg_trace_parse(const void *data, size_t size, struct rg_trace *trace, char *why,
                                            size_t why_size);
void rg_trace_free(struct rg_trace *trace);

#endif
