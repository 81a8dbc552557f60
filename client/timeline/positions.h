/*
 * positions.h - what sessions, threads, streams, contexts and events keep of how far the device is. Only
 * client/timeline reads or writes it.
 *
 * Each record of a call has a position in its session. What is known to be completed is the last position up
 * to which all is: all in all of it, of a stream, of a context, or of the record of an event. Positions only
 * grow; 0: nothing yet.
 */
#ifndef RG_CLIENT_TIMELINE_POSITIONS_H
#define RG_CLIENT_TIMELINE_POSITIONS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** A session's; written under the lock of its queue. */
struct rg_timeline {
    _Atomic uint64_t submitted; /* the last record of a call */
    /* Of these, the last one … */
    _Atomic uint64_t work;         /* that may have given the device something to do */
    _Atomic uint64_t work_unnamed; /* … and named no stream */
    _Atomic uint64_t work_joined; /* … in a stream that the legacy default stream waits for, or named none */
    _Atomic uint64_t accesses;    /* by which the device may access memory */
    _Atomic uint64_t lasting;     /* that the device may be at for as long as the program likes */
    _Atomic uint64_t lasting_legacy, lasting_not_legacy; /* … in the legacy default stream; not there */
    _Atomic uint64_t lasting_unnamed;                    /* … in no stream that has a handle */
    atomic_uint held_up; /* its records wait for a turn: so many waits for events more do without one */
};

/** Who is told when something is completed (subscription.h). */
struct rg_subscriber {
    _Atomic uint64_t id;    /* 0: nobody */
    _Atomic unsigned epoch; /* in which "not ready" was learnt */
};

struct rg_stream_timeline {
    _Atomic uint64_t completed;
    _Atomic uint64_t work, lasting; /* as of sessions; of streams that are created */
    _Atomic uint64_t
        synchronous; /* the last synchronous copy that nobody waited for (rg_timeline_synchronous) */
    struct rg_subscriber subscriber;
    atomic_bool marked; /* there have been subscribers besides that one: marks (pace.h) */
};

struct rg_context_timeline {
    _Atomic uint64_t completed; /* of all its streams */
    _Atomic uint64_t
        synchronous; /* what calls that wait for all of it came behind (rg_timeline_waited_for) */
    struct rg_stream_timeline legacy;
};

#define RG_PACES       32 /* streams of a thread that are counted at a time */
#define RG_PACE_PLACES 8  /* where one of them may be */
#define RG_PACE_STEPS  10

/** How far a thread has run ahead in a stream (pace.h). The thread's own. */
struct rg_pace {
    CUstream stream;
    uint64_t context;
    int left;         /* calls of this step */
    int step;         /* calls in one */
    bool alone;       /* the program has no other threads */
    unsigned gates;   /* that it knows of (rg_pace_gates) */
    uint64_t calls;   /* put into the stream, ever */
    uint64_t done;    /* so many are known to be done */
    uint64_t gated;   /* so many there were by the last gate */
    uint64_t ends[2]; /* of the last step: its position, and calls by then */
    unsigned turn;    /* steps, ever: the next mark is this one modulo RG_PACE_STEPS */
    struct {
        struct rg_subscriber subscriber;
        uint64_t position, calls; /* 0: there is none */
    } marks[RG_PACE_STEPS];
    uint64_t waited_ns; /* in this turn of marks */
};

struct rg_thread_timeline {
    uint64_t submitted;            /* position of its last record, in the session that took it */
    struct rg_stream_timeline own; /* of its per-thread default stream in context `own_context` */
    uint64_t own_context;
    /* the stream that it waited for last, its position behind that, and for how many times more it is
     * expected to wait for several one after another */
    CUstream waited_for;
    uint64_t waited_at;
    unsigned waits_follow;
    struct rg_pace paces[RG_PACES];
};

/** The time since another event (event_time_cache.h). */
struct rg_event_time {
    uint64_t since; /* handle of that event */
    unsigned version;
    float ms;          /* between the records at these positions … */
    uint64_t from, to; /* 0: it is not known */
};

struct rg_event_timeline {
    _Atomic uintptr_t stream;          /* in which it was recorded last */
    _Atomic uint64_t before, recorded; /* the position before that record, and its own; 0: never recorded */
    _Atomic uint64_t completed;        /* the record up to this position has come */
    _Atomic uint64_t told_at;          /* when a notice said so last */
    struct rg_subscriber subscriber;
    atomic_bool queried; /* since that record */
    atomic_bool unseen;  /* recorded elsewhere too */
    atomic_bool timed;   /* the time since another one is asked for when it has come */
    struct rg_event_time elapsed;
};

#endif
