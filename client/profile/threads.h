/*
 * threads.h - what each thread has done: figures by API function, and events.
 *
 * Threads count for themselves; one writer at a time adds up and takes the events (report.c, trace_writer.c).
 */
#ifndef RG_CLIENT_PROFILE_THREADS_H
#define RG_CLIENT_PROFILE_THREADS_H

#include "client/core/probe.h"
#include "client/profile/profile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_PROFILE_CHUNK  1024    /* events */
#define RG_PROFILE_EVENTS 500000  /* that a timeline has unless REMOTE_GPU_PROFILE_EVENTS says otherwise */
#define RG_TRACE_EVENTS   4000000 /* that a trace has unless REMOTE_GPU_RECORD_EVENTS says otherwise */

/* Times in nanoseconds. Written by one thread, read by the writer at any time. */
struct rg_profile_row {
    _Atomic uint64_t calls, round_trips, sent, received;
    _Atomic uint64_t inside; /* from enter to leave */
    _Atomic uint64_t waited; /* of that */
    _Atomic uint64_t before; /* the application's time since its thread's call before */
};

struct rg_profile_sum {
    uint64_t calls, round_trips, sent, received, inside, waited, before;
};

enum rg_profile_kind {
    RG_PROFILE_CALL, /* a call of the application */
    RG_PROFILE_WAIT, /* inside the call that follows it */
    /* only for a trace; `start` is all of its time */
    RG_PROFILE_POST, /* a record was put into the command stream; api: the operation */
    /* queries in a row that needed no server; round_trips: 1 if the last found it done, api: 1 for an event,
     * 0 for a stream; seq: its handle */
    RG_PROFILE_POLL,
    RG_PROFILE_SAVED, /* an optimisation made a round trip unnecessary; api: which (client/core/optimisations.h) */
    /* what the thread's last record is about goes between servers; seq: its key, round_trips: ways, size: turns */
    RG_PROFILE_EXCHANGE,
};

struct rg_profile_event {
    uint64_t start, end;
    uint32_t api;
    uint32_t round_trips;
    enum rg_profile_kind kind;
    /* what follows is for a trace */
    uint32_t session; /* POST, POLL */
    uint32_t size;    /* POST: bytes of the record */
    uint64_t seq;     /* POST */
    /* bytes since this thread's event before. POST: that the worker will fetch or send later; WAIT: bulk data
     * that was sent, the reply that came; EXCHANGE: its own */
    uint64_t sent, received;
};

struct rg_profile_chunk {
    struct rg_profile_chunk *_Atomic next;
    int thread;
    atomic_bool closed; /* no event follows */
    _Atomic unsigned n;
    unsigned written; /* the writer's */
    struct rg_profile_event events[RG_PROFILE_CHUNK];
};

/** Begins; at most `max_events` are kept. `trace`: every record is an event. False: out of resources. */
bool rg_profile_threads_start(int64_t max_events, bool trace);

/* The probe's functions (client/core/probe.h). */
void rg_profile_count_bytes(uint64_t sent, uint64_t received);
void rg_profile_count_record(unsigned session, unsigned op, uint64_t seq, uint32_t size);
void rg_profile_count_wait(uint64_t since, unsigned round_trips);
void rg_profile_count_saved(unsigned optimisation);
void rg_profile_count_polled(unsigned session, uint64_t handle, bool of_event, bool done);
void rg_profile_count_exchange(const struct rg_probe_exchange *exchange);

/** Adds up the rows of all threads; RG_PROFILE_OWN included. */
void rg_profile_add_up(struct rg_profile_sum rows[RG_API_COUNT + 1]);
/**
 * The oldest chunk of events; the writer frees chunks that are closed and written by rg_profile_chunk_drop.
 */
struct rg_profile_chunk *rg_profile_chunks(void);
/** Unlinks and frees `chunk`, the successor of `previous` (NULL: the first). Returns what follows. */
struct rg_profile_chunk *rg_profile_chunk_drop(struct rg_profile_chunk *previous,
                                               struct rg_profile_chunk *chunk);
/** Events that the limit kept out of the timeline. */
uint64_t rg_profile_dropped(void);
/** When the profile began (monotonic, ns). */
uint64_t rg_profile_started(void);

#endif
