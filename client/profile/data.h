/*
 * data.h - what the profile keeps, and who reads it: threads count for themselves (profile.c), one writer at a time adds
 * up (report.c, trace.c).
 */
#ifndef RG_CLIENT_PROFILE_DATA_H
#define RG_CLIENT_PROFILE_DATA_H

#include "client/profile/profile.h"

#include <stdatomic.h>

#define RG_PROFILE_CHUNK  1024   /* events */
#define RG_PROFILE_EVENTS 500000 /* that a timeline has unless REMOTE_GPU_PROFILE_EVENTS says otherwise */

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

struct rg_profile_event {
    uint64_t start, end;
    uint32_t api;
    uint32_t round_trips;
    bool wait; /* inside the call that follows it */
};

struct rg_profile_chunk {
    struct rg_profile_chunk *_Atomic next;
    int thread;
    atomic_bool closed; /* no event follows */
    _Atomic unsigned n;
    unsigned written; /* the writer's */
    struct rg_profile_event events[RG_PROFILE_CHUNK];
};

/** Adds up the rows of all threads; RG_PROFILE_OWN included. */
void rg_profile_add_up(struct rg_profile_sum rows[RG_API_COUNT + 1]);
/** The oldest chunk of events; the writer frees chunks that are closed and written by rg_profile_chunk_drop. */
struct rg_profile_chunk *rg_profile_chunks(void);
/** Unlinks and frees `chunk`, the successor of `previous` (NULL: the first). Returns what follows. */
struct rg_profile_chunk *rg_profile_chunk_drop(struct rg_profile_chunk *previous,
                                               struct rg_profile_chunk *chunk);
/** Events that the limit kept out of the timeline. */
uint64_t rg_profile_dropped(void);
/** When the profile began (monotonic, ns). */
uint64_t rg_profile_started(void);

#endif
