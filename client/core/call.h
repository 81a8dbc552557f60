/*
 * call.h - one call on its way to the worker: what generated encoders and hand-written API functions use.
 *
 * rg_call_begin checks that calls are possible (rg_call_look: session, context), takes the queue's lock and reserves
 * the record; the caller then writes exactly `size` bytes of parameters and ends with one of
 *   rg_call_post   nobody waits: the record joins the batch, the lock is released, a failure is latched
 *   rg_call_wait   sends everything up to and including the record and waits for its reply; then rg_call_done
 * Nothing between begin and post/wait may block or call another API function.
 */
#ifndef RG_CLIENT_CORE_CALL_H
#define RG_CLIENT_CORE_CALL_H

#include "client/core/handle.h"
#include "generated/proto/ops.h"
#include "proto/codec.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rg_future;
struct rg_lease;
struct rg_region;
struct rg_thread;
struct rg_session;

struct rg_call {
    struct rg_thread *thread;
    struct rg_thread *speaker; /* as which it goes: the thread, or its signal handler (rg_thread_speaker) */
    bool waits;                /* the speaker's waiter is this call's */
    struct rg_session *session;
    uint64_t context;  /* 0: needs none */
    uint64_t position; /* of its record, in the session (client/timeline/timeline.h), once it has begun */
    const struct rg_context *current; /* what is known of the calling thread's current one; NULL: nothing */
    struct rg_writer writer;
    struct rg_reader reply; /* outputs, after rg_call_wait */
    unsigned char *record;
    uint32_t size;
    uint16_t op;
    uint8_t memory_taken; /* after rg_call_wait, by code that was loaded: a level (proto/memory_level.h) */
    bool lasts, stays;    /* stays: it waits, although it returns nothing (rg_call_post) */
    bool out_of_order;    /* others' calls pass it, if it waits */
    const struct rg_region *into; /* where bulk data of the reply goes; NULL: it is dropped */
};

/** Bulk data that a call sends, and what became of it. */
struct rg_bulk {
    const struct iovec *data;
    int n;
    struct rg_lease *lease; /* of its memory; NULL: the memory is the caller's when the call returns */
    bool posted;            /* the record is in the stream; else the call failed before */
};

/**
 * Whether API calls that send something are possible now: CUDA_SUCCESS, or the error the call must return.
 * `flags`: RG_TRAIT_CONTEXT, where a current context is needed, or 0.
 */
CUresult rg_call_allowed(unsigned flags);
/** The same of a call at `home`; fills in what it has found: thread, session and context of `call`. */
CUresult rg_call_look(struct rg_call *call, unsigned traits, uint64_t home);
/** The same of a call that needs no context, but is refused in one that has failed. */
CUresult rg_call_allowed_anywhere(void);
/**
 * Whether a call that takes long by itself should be waited for, at `session`, so that others' calls pass it:
 * the program has other threads, and the server can do that.
 */
bool rg_call_goes_out_of_order(const struct rg_session *session);
/**
 * Whether a round trip to `session` takes less than a driver needs to compile a small function, some
 * milliseconds. Any thread.
 */
bool rg_call_waits_are_short(const struct rg_session *session);
/**
 * Begins a call of `op`, whose traits say what it takes (proto/api/traits.txt).
 * `home`: of what the call names (client/core/home.h); where that is another server's than the current
 * context, the call goes there, in its context.
 */
CUresult rg_call_begin(struct rg_call *call, enum rg_op op, size_t size, uint64_t home);
/** The same of a call that rg_call_look has found possible, in the current context. */
CUresult rg_call_begin_looked(struct rg_call *call, enum rg_op op, size_t size);
/**
 * Around calls that put records into the streams of two servers, of which one waits for the other (fence.c).
 * No call that blocks is put between them: else a worker could wait, in cuMemFree, for the first record,
 * whose counterpart stands behind the very call that waits, or behind another one that waits like it on the
 * other server. So each such call waits only for what is complete. Not to be nested; no lock may be held; no
 * call that blocks may be made in between.
 */
void rg_calls_together_begin(void);
void rg_calls_together_end(void);
/** Notes that `handle`, which the call creates or finds, belongs to the call's context, or to its server. */
void rg_call_sets_home(const struct rg_call *call, uint64_t handle);
/** The number that the call's server gives `device`. */
CUdevice rg_call_device(const struct rg_call *call, CUdevice device);
/** Puts that number into each of the `count` structures of `size` bytes that were written last, which have a CUmemLocation at `offset`. */
void rg_call_renumber_devices(const struct rg_call *call, size_t size, size_t count, size_t offset);
/**
 * Waits all the same if the call blocks (RG_TRAIT_BLOCKS) on work that may last until another thread of the
 * program ends it (rg_timeline_blocks_on_context): the worker then lets others' calls pass.
 */
CUresult rg_call_post(struct rg_call *call);
/**
 * As rg_call_post, and sends at once with `bulk` attached to the record (which therefore ends the batch).
 * Returns CUDA_ERROR_INVALID_VALUE if the bulk memory could not be read.
 */
CUresult rg_call_post_bulk(struct rg_call *call, struct rg_bulk *bulk);
/**
 * Ends the lease of memory whose bulk data calls of `session` have sent: the memory is the caller's again.
 */
void rg_call_end_lease(struct rg_session *session, struct rg_lease *lease);
/** The call's result. Outputs can be read from call->reply (also with other results than CUDA_SUCCESS). */
CUresult rg_call_wait(struct rg_call *call);
/**
 * The same, but the failure of an earlier call is left to the next one. For calls that make what the worker
 * keeps state for: a handle that one side has and the other has not would be in the way of the next one in
 * its place.
 */
CUresult rg_call_wait_own(struct rg_call *call);
/** Does not wait: the answer is the future's. */
CUresult rg_call_post_future(struct rg_call *call, struct rg_future *future);
/** Releases the reply. */
void rg_call_done(struct rg_call *call);

/** Reads an output that the caller may not want (`to` NULL). */
void rg_call_output(struct rg_call *call, void *to, size_t size);
/** After reading outputs: CUDA_SUCCESS, or the error for an answer that was too short. */
CUresult rg_call_outputs_read(struct rg_call *call);

/** CUDA_ERROR_NOT_SUPPORTED, and says so once for each function. */
CUresult rg_unsupported(const char *function);
/** The same, with the reason why this function cannot be offered. */
CUresult rg_refuse(const char *function, const char *why);

static inline CUresult rg_invalid_value(void)
{
    return CUDA_ERROR_INVALID_VALUE;
}

/** Set while a _ptds form runs: a null stream means the per-thread default stream. */
extern __thread bool rg_per_thread_default_stream;

/** The stream a call means: NULL becomes the per-thread default stream inside a per-thread form. */
static inline CUstream rg_effective_stream(CUstream stream)
{
    return !stream && rg_per_thread_default_stream ? CU_STREAM_PER_THREAD : stream;
}

#endif
