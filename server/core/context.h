/*
 * context.h - what the worker keeps for contexts and streams: which have work left, how streams are ordered
 * after synchronous copies, and the end of both.
 *
 * A context's state is made when its handle is (request_objects.c) and ends in two steps: rg_context_release empties
 * it, before the driver ends it; then it is retired, as threads that wait for it may still look at it, and
 * freed when none can.
 *
 * The dispatcher, except as noted.
 */
#ifndef RG_SERVER_CORE_CONTEXT_H
#define RG_SERVER_CORE_CONTEXT_H

#include "server/core/objects.h"

#include <cuda.h>
#include <stdatomic.h>

#define RG_FEW_STREAMS 4 /* as many are asked one after another whether they are done */

struct rg_client_thread;
struct rg_deferred_slots;
struct rg_request;
struct rg_staging_buffer;
struct rg_worker;

/** What the worker keeps for a context; made when the context's handle is. */
struct rg_worker_context {
    uint64_t handle;
    CUcontext object;
    CUdevice device;
    bool primary;
    unsigned retained; /* primary contexts: as often as this session has retained it … */
    unsigned greens;   /* … and of so many green contexts it is the owner */
    uint64_t owner; /* a green context's: the primary context that what is made in it goes with; 0: itself */
    /* all its pinned memory, and the size of it: transfer/staging.c, guarded by its lock */
    struct rg_staging_buffer *buffers;
    size_t staging_bytes;
    struct rg_worker_stream *legacy;  /* of the legacy stream; NULL: not yet */
    struct rg_worker_stream *streams; /* made in it, threads' own among them */
    unsigned n_streams;
    uint64_t left_at; /* the last record that ended a stream which had work left; 0: none */
    /* the last synchronous copy from the host: other streams are ordered after it */
    CUevent synchronous;
    uint64_t synchronous_seq;
    uint64_t synchronous_stream;  /* its number, as it may have ended; 0: the legacy stream of … */
    uint64_t synchronous_context; /* … this one, it or a green one of it */
    CUevent passed;               /* of rg_context_passed; NULL: not yet */
    _Atomic uint64_t idle_at;     /* all work of records up to this one is known to be done. Any thread */
    bool released;                /* retired: nothing of the worker's is in it */
    struct rg_worker_context *next_retired;
};

/** What the worker keeps for a stream. */
struct rg_worker_stream {
    struct rg_extra extra;
    CUstream object;
    uint64_t number;  /* from 1 on, and never another's, as its place in memory may be */
    uint64_t context; /* handle */
    bool non_blocking, per_thread;
    uint64_t seen_synchronous;       /* the last synchronous copy that it is ordered after */
    struct rg_deferred_slots *slots; /* of its deferred transfers (transfer/deferred.c); NULL: none yet */
    struct rg_worker_stream *next_of_thread;   /* per-thread default streams, one a context */
    struct rg_worker_stream *next_of_context;  /* in its context's list */
    struct rg_worker_stream **link_of_context; /* NULL: in none */
    uint64_t used;                             /* the last record that named it */
    uint64_t known_done; /* what records up to this one put into it is known to be done */
};

/** The state of a context, or NULL. */
struct rg_worker_context *rg_context_find(struct rg_worker *worker, uint64_t handle);
/** That of a context's owner, which may be itself. */
struct rg_worker_context *rg_context_owner(struct rg_worker *worker, struct rg_worker_context *context);
/** Whether the context is known to have nothing to do. It is current. */
bool rg_context_idle(struct rg_worker *worker, const struct rg_worker_context *context);
/** Whether asking the few streams of the context one after another tells that it has nothing to do. */
bool rg_context_has_few_streams(const struct rg_worker_context *context);

/**
 * An event of the context that comes at once and is never recorded again, so that waiting for it once it has come never
 * blocks; NULL: there can be none. It ends with the context, behind what modules have of that.
 */
CUevent rg_context_passed(struct rg_worker_context *context);

/** Everything that goes with a context but its handle: before the driver ends it. It is current. */
void rg_context_release(struct rg_worker *worker, struct rg_worker_context *context);
/** The driver has ended it: forgets the objects in it, and that threads have it current. */
void rg_context_forget(struct rg_worker *worker, struct rg_worker_context *context);
/** Its handle has ended: it is freed once nobody looks at it. */
void rg_context_retire(struct rg_worker *worker, struct rg_worker_context *context);

/** Frees what is left of a context. Any thread. */
void rg_context_free(struct rg_worker_context *context);

/** The state of a stream, which rg_extra_release frees; NULL: no memory. Any thread. */
struct rg_worker_stream *rg_stream_make(CUstream object, uint64_t context);
/** A stream has been made in the driver. */
void rg_stream_add(struct rg_worker *worker, struct rg_worker_stream *stream);
/** A stream is about to end; what it has left to do is done all the same. */
void rg_stream_drop(struct rg_request *request, struct rg_worker_stream *stream);
/** Frees a client thread with the states of its streams. */
void rg_client_thread_free(struct rg_client_thread *thread);
/**
 * A synchronous copy was put into `stream`, of that context: what any stream of it does from now on comes
 * after it.
 */
void rg_stream_synchronous(struct rg_request *request, struct rg_worker_context *context, CUstream stream);
/** Orders a stream about to be used after synchronous copies that it does not come after by itself. */
void rg_stream_order(struct rg_worker *worker, struct rg_worker_stream *stream);

#endif
