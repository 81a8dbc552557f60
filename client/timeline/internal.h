/* internal.h - what the parts of client/timeline share. */
#ifndef RG_CLIENT_TIMELINE_INTERNAL_H
#define RG_CLIENT_TIMELINE_INTERNAL_H

#include "client/core/thread.h"
#include "client/timeline/subscription.h"
#include "client/timeline/timeline.h"

/** Of the last record of a call. */
static inline uint64_t rg_timeline_position(const struct rg_session *session)
{
    return atomic_load_explicit(&session->timeline.submitted, memory_order_relaxed);
}

/** Of the record that this thread has appended last. */
static inline uint64_t rg_timeline_own_position(void)
{
    const struct rg_thread *thread = rg_thread_if_any();
    return thread ? thread->timeline.submitted : 0;
}

/** Whether all up to `wanted` is completed. */
static inline bool rg_timeline_reached(const _Atomic uint64_t *completed, uint64_t wanted)
{
    return atomic_load_explicit(completed, memory_order_acquire) >= wanted;
}

/** All up to `to` is completed; what is known of more stays. */
void rg_timeline_raise(_Atomic uint64_t *completed, uint64_t to);
/** The context if what is known of it may be used; NULL: the worker is to be asked. */
struct rg_context *rg_timeline_trusted(uint64_t context);
/** The same whether or not what is known may be used in place of an answer (RG_OPT_COMPLETION_PUSH). */
struct rg_context *rg_timeline_told_of(uint64_t context);
/**
 * What is kept for a stream, and its context; NULL: nothing. For the legacy default stream it is that of
 * context `hint`, or of the current one if that is 0.
 */
struct rg_stream_timeline *rg_timeline_of_stream(CUstream stream, uint64_t hint, uint64_t *context);
/** Whether all up to `wanted` is completed in the stream, by what is known of it or of all of its context. */
bool rg_timeline_stream_reached(const struct rg_context *context, const struct rg_stream_timeline *stream,
                                uint64_t wanted);
/**
 * Whether a synchronous copy that nobody waited for came behind `wanted` in the stream, or a call that waits for all of the context: the
 * program may take that for done, so whoever asks is to wait. `timeline`: of the stream, or NULL if there is none any more.
 */
bool rg_timeline_is_behind(const struct rg_context *context, CUstream stream,
                           const struct rg_stream_timeline *timeline, uint64_t wanted);
/** What a call returns that finds everything done. */
CUresult rg_timeline_found_done(struct rg_session *session);
/** The same of one that would have waited. */
CUresult rg_timeline_answered(struct rg_session *session);

#endif
