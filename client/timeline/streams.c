/* streams.c - how far streams and contexts are, and calls that ask or wait for them. See timeline.h. */
#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/timeline/internal.h"
#include "client/timeline/pace.h"
#include "common/base/thread.h"
#include "generated/client/operations.h"
#include "proto/times.h"

#include <string.h>

#define WAITS_FOLLOW 16 /* so many waits after one that was followed by another are expected to be, too */
#define FOLLOWED     32 /* streams that are looked at then */

void rg_timeline_raise(_Atomic uint64_t *completed, uint64_t to)
{
    uint64_t before = atomic_load_explicit(completed, memory_order_relaxed);
    while (before < to && !atomic_compare_exchange_weak_explicit(completed, &before, to, memory_order_release,
                                                                 memory_order_relaxed))
        ;
}

struct rg_context *rg_timeline_trusted(uint64_t handle)
{
    return rg_optimise[RG_OPT_COMPLETION_PUSH] ? rg_timeline_told_of(handle) : NULL;
}

struct rg_context *rg_timeline_told_of(uint64_t handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, handle);
    struct rg_context *context = shadow ? &shadow->context : NULL;
    if (!context || !context->session->op_numbers[RG_OP_rgEventAsk] ||
        atomic_load_explicit(&context->sticky, memory_order_relaxed) != CUDA_SUCCESS ||
        atomic_load_explicit(&rg_contexts_suspect, memory_order_relaxed) ||
        atomic_load_explicit(&context->session->ended, memory_order_acquire) != CUDA_SUCCESS)
        return NULL;
    return context;
}

CUresult rg_timeline_found_done(struct rg_session *session)
{
    rg_hooks.has_waited();
    return rg_session_take_latched(session);
}

CUresult rg_timeline_answered(struct rg_session *session)
{
    rg_probe_saved(RG_OPT_COMPLETION_PUSH);
    return rg_timeline_found_done(session);
}

void rg_timeline_forget_context(uint64_t context)
{
    rg_unsubscribe_all(0, NULL, context);
}

static void forget(struct rg_stream_timeline *stream)
{
    if (atomic_load_explicit(&stream->subscriber.id, memory_order_relaxed) ||
        atomic_exchange_explicit(&stream->marked, false, memory_order_relaxed))
        rg_unsubscribe_all(0, stream, 0);
    atomic_store(&stream->subscriber.id, 0);
    atomic_store(&stream->completed, 0);
    atomic_store(&stream->work, 0);
    atomic_store(&stream->lasting, 0);
    atomic_store(&stream->synchronous, 0);
}

void rg_timeline_end_thread(struct rg_thread_timeline *thread)
{
    forget(&thread->own);
    thread->own_context = 0;
    memset(thread->paces, 0, sizeof thread->paces);
}

void rg_timeline_end_stream(CUstream stream)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    const struct rg_shadow *context =
        shadow ? rg_handle_shadow(RG_KIND_CONTEXT, shadow->stream.context) : NULL;
    const uint64_t lasts = shadow ? atomic_load(&shadow->stream.timeline.lasting) : 0;
    if (context &&
        !rg_timeline_reached(&shadow->stream.timeline.completed, lasts)) /* it goes on without its handle */
        rg_timeline_raise(&context->context.session->timeline.lasting_unnamed, lasts);
    rg_subscriptions_lock();
    if (shadow)
        rg_unsubscribe_all_locked(0, &shadow->stream.timeline, 0);
    rg_handle_delete(RG_KIND_STREAM, (uint64_t)stream);
    rg_subscriptions_unlock();
}

struct rg_stream_timeline *rg_timeline_of_stream(CUstream stream, uint64_t context_hint, uint64_t *context)
{
    if (stream == CU_STREAM_PER_THREAD) {
        struct rg_thread *thread = rg_thread_current();
        *context = rg_context_current_handle();
        if (!thread)
            return NULL;
        if (thread->timeline.own_context != *context) {
            forget(&thread->timeline.own);
            thread->timeline.own_context = *context;
        }
        return &thread->timeline.own;
    }
    if ((uintptr_t)stream < (uintptr_t)CU_STREAM_PER_THREAD) {
        *context = context_hint ? context_hint : rg_context_current_handle();
        struct rg_shadow *of = rg_handle_shadow(RG_KIND_CONTEXT, *context);
        return of ? &of->context.timeline.legacy : NULL;
    }
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    *context = shadow ? shadow->stream.context : 0;
    return shadow ? &shadow->stream.timeline : NULL;
}

/* Of a stream that was created; NULL: a default stream, which waits for others and others for it. */
static struct rg_stream *created(CUstream stream)
{
    struct rg_shadow *shadow =
        rg_stream_is_default(stream) ? NULL : rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    return shadow ? &shadow->stream : NULL;
}

void rg_timeline_work(const struct rg_call *call, CUstream stream)
{
    struct rg_timeline *session = &call->session->timeline;
    struct rg_stream *own = created(stream);
    struct rg_pace *pace = /* of the stream's context, which may be a green one of that which is current */
        rg_pace_of(call->thread, stream, own ? own->context : call->context);
    const uint64_t at = call->position;
    pace->left -= pace->stream == stream;
    const bool legacy = (uintptr_t)stream <= (uintptr_t)CU_STREAM_LEGACY;
    if (call->lasts) {
        _Atomic uint64_t *lasting = legacy ? &session->lasting_legacy
                                    : own  ? &own->timeline.lasting
                                           : &session->lasting_unnamed;
        atomic_store_explicit(lasting, at, memory_order_relaxed);
        if (!legacy)
            atomic_store_explicit(&session->lasting_not_legacy, at, memory_order_relaxed);
    }
    if (!(rg_op_traits[call->op] & RG_TRAIT_WORK))
        return;
    if (own)
        atomic_store_explicit(&own->timeline.work, at, memory_order_relaxed);
    if (!own || !(own->flags & CU_STREAM_NON_BLOCKING))
        atomic_store_explicit(&session->work_joined, at, memory_order_relaxed);
}

/* A position that records are given, not one that is known to be completed. */
static uint64_t last(const _Atomic uint64_t *position)
{
    return atomic_load_explicit(position, memory_order_relaxed);
}

bool rg_timeline_stream_reached(const struct rg_context *context, const struct rg_stream_timeline *stream,
                                uint64_t wanted)
{
    return rg_timeline_reached(&stream->completed, wanted) ||
           rg_timeline_reached(&context->timeline.completed, wanted);
}

/* The last work that was put into it, or anywhere where it might matter to it. */
static uint64_t last_work(const struct rg_context *context, CUstream stream,
                          const struct rg_stream_timeline *timeline)
{
    const struct rg_timeline *session = &context->session->timeline;
    if (!created(stream))
        return last(&session->work_joined);
    const uint64_t work = last(&timeline->work), unnamed = last(&session->work_unnamed);
    return work > unnamed ? work : unnamed;
}

/* There is no work for it behind what is known to be done. */
static bool stream_is_idle(const struct rg_context *context, CUstream stream,
                           const struct rg_stream_timeline *timeline)
{
    return rg_timeline_stream_reached(context, timeline, last_work(context, stream, timeline));
}

bool rg_timeline_is_behind(const struct rg_context *context, CUstream stream,
                           const struct rg_stream_timeline *timeline, uint64_t wanted)
{
    const struct rg_stream *own = created(stream);
    const bool waits =
        !own ||
        !(own->flags & CU_STREAM_NON_BLOCKING); /* for the legacy default stream, which waits for it */
    return (timeline && last(&timeline->synchronous) >= wanted) ||
           (waits && last(&context->timeline.legacy.synchronous) >= wanted) ||
           last(&context->timeline.synchronous) >= wanted;
}

/*
 * Whether it is known, stream by stream, that all is done that may last: a program that has waited for each
 * of its streams has not waited for the context.
 */
static bool streams_are_done(const struct rg_context *context)
{
    const struct rg_timeline *session = &context->session->timeline;
    const uint64_t legacy = last(&session->lasting_legacy), unnamed = last(&session->lasting_unnamed);
    uint64_t streams[FOLLOWED];
    if (!rg_timeline_reached(&context->timeline.completed, unnamed) ||
        !rg_timeline_stream_reached(context, &context->timeline.legacy, legacy))
        return false;
    const size_t n = rg_handle_list(RG_KIND_STREAM, 0, streams, FOLLOWED);
    for (size_t i = 0; i < n; i++) {
        const struct rg_stream *stream = created((CUstream)streams[i]);
        if (!stream ||
            !rg_timeline_stream_reached(context, &stream->timeline, last(&stream->timeline.lasting)))
            return false;
    }
    return n < FOLLOWED;
}

bool rg_timeline_blocks_on_context(uint64_t handle)
{
    const struct rg_context *context = rg_timeline_trusted(handle);
    if (!context)
        return rg_thread_has_others();
    const struct rg_timeline *session = &context->session->timeline;
    const uint64_t lasting = last(&session->lasting), not_legacy = last(&session->lasting_not_legacy);
    if (rg_timeline_reached(&context->timeline.completed, lasting) ||
        (rg_timeline_reached(&context->timeline.legacy.completed, lasting) &&
         rg_timeline_reached(&context->timeline.completed, not_legacy)))
        return false;
    return !streams_are_done(context) && rg_thread_has_others();
}

bool rg_timeline_blocks_on_stream(CUstream stream)
{
    uint64_t handle;
    const struct rg_stream_timeline *timeline =
        rg_timeline_of_stream(rg_effective_stream(stream), 0, &handle);
    const struct rg_context *context = rg_timeline_trusted(handle);
    if (timeline && context &&
        rg_timeline_stream_reached(context, timeline, last(&context->session->timeline.lasting)))
        return false;
    return rg_thread_has_others();
}

static CUresult ask_stream(struct rg_context *context, uint64_t handle, struct rg_stream_timeline *timeline,
                           CUstream stream)
{
    struct rg_session *session = context->session;
    const unsigned epoch = rg_subscription_epoch();
    const bool unnamed = rg_stream_is_default(stream);
    const struct rg_subscription wanted = {.context = handle,
                                           .stream = timeline,
                                           .named = unnamed ? 0 : (uint64_t)stream,
                                           .position = rg_timeline_position(session)};
    const uint64_t id = rg_subscribe(session, &timeline->subscriber, &wanted);
    CUresult status = unnamed ? rg_op_rgDefaultStreamAsk(stream, id) : rg_op_rgStreamAsk(stream, id);
    atomic_store_explicit(&timeline->subscriber.epoch, epoch, memory_order_relaxed);
    if (status != CUDA_ERROR_NOT_READY)
        rg_unsubscribe(session, id);
    if (status == CUDA_SUCCESS)
        rg_timeline_raise(&timeline->completed, wanted.position);
    return status;
}

/* For a trace; streams have the names that the worker gives them there. */
static void polled_stream(const struct rg_session *session, CUstream stream, bool done)
{
    if (!RG_PROBED(polled))
        return;
    const bool own = stream == CU_STREAM_PER_THREAD;
    rg_probe_polled(session->number,
                    own ? RG_TIME_THREAD_STREAM | rg_thread_current()->number : (uint64_t)stream, false,
                    done);
}

CUresult rg_timeline_query_stream(CUstream stream)
{
    stream = rg_effective_stream(stream);
    uint64_t handle;
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(stream, 0, &handle);
    struct rg_context *context = rg_timeline_trusted(handle);
    if (!timeline || !context)
        return rg_stream_is_default(stream) ? rg_op_rgDefaultStreamAsk(stream, 0)
                                            : rg_op_cuStreamQuery(stream);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (stream_is_idle(context, stream, timeline)) {
            polled_stream(context->session, stream, true);
            return rg_timeline_found_done(context->session);
        }
        if (rg_timeline_is_behind(context, stream, timeline, last_work(context, stream, timeline)))
            return rg_timeline_wait_stream(stream);
        if (!rg_subscription_pending(context->session, &timeline->subscriber))
            return ask_stream(context, handle, timeline, stream);
        if (attempt == 0) {
            rg_queue_send_polled(context->session);
            rg_receiver_poll(context->session);
        }
    }
    polled_stream(context->session, stream, false);
    const CUresult ended = atomic_load(&context->session->ended);
    return ended != CUDA_SUCCESS ? ended : CUDA_ERROR_NOT_READY;
}

/* Whether this thread is likely to wait for other streams after this one: it did so the last times, with no
 * call in between. */
static bool others_follow(struct rg_thread_timeline *thread, uint64_t position, CUstream stream)
{
    const bool first = position != thread->waited_at;
    const bool follow = first && thread->waits_follow;
    if (!first && thread->waited_for != stream)
        thread->waits_follow = WAITS_FOLLOW;
    else if (follow)
        thread->waits_follow--;
    thread->waited_for = stream;
    return follow;
}

/*
 * Subscribes to a stream of which it is not known whether it is idle; 0: there is no need to. Other threads
 * may end the stream at any time, but not while the lock is held (rg_timeline_end_stream).
 */
static uint64_t subscribe_to_other(struct rg_context *context, CUstream stream)
{
    const struct rg_session *session = context->session;
    const unsigned epoch = rg_subscription_epoch();
    uint64_t handle, id = 0;
    rg_subscriptions_lock();
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(stream, 0, &handle);
    const struct rg_shadow *of = timeline ? rg_handle_shadow(RG_KIND_CONTEXT, handle) : NULL;
    if (of && &of->context == context && !stream_is_idle(context, stream, timeline) &&
        !rg_subscription_pending_locked(session, &timeline->subscriber)) {
        const struct rg_subscription wanted = {.context = handle,
                                               .stream = timeline,
                                               .named = (uint64_t)stream,
                                               .position = rg_timeline_position(session)};
        id = rg_subscribe_locked(session, &timeline->subscriber, &wanted);
        atomic_store_explicit(&timeline->subscriber.epoch, epoch, memory_order_relaxed);
    }
    rg_subscriptions_unlock();
    return id;
}

/* Lets the worker tell of other streams, with the answer about the one that is waited for, what it has done
 * by then. */
static void subscribe_to_others(struct rg_context *context, CUstream waited)
{
    const struct rg_session *session = context->session;
    uint64_t streams[FOLLOWED];
    const size_t n = rg_handle_list(RG_KIND_STREAM, 0, streams, FOLLOWED);
    for (size_t i = 0; i < n; i++) {
        const CUstream stream = (CUstream)streams[i];
        const uint64_t id = stream == waited ? 0 : subscribe_to_other(context, stream);
        if (id && rg_op_rgStreamWatch(stream, id, rg_home_of_session(session)) != CUDA_SUCCESS)
            rg_unsubscribe(session, id);
    }
}

CUresult rg_timeline_wait_stream(CUstream stream)
{
    stream = rg_effective_stream(stream);
    uint64_t handle;
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(stream, 0, &handle);
    struct rg_context *context = rg_timeline_trusted(handle);
    if (!timeline || !context)
        return rg_op_cuStreamSynchronize(stream);
    struct rg_thread *thread = rg_thread_current();
    const bool follow =
        created(stream) && thread && others_follow(&thread->timeline, thread->timeline.submitted, stream);
    if (!stream_is_idle(context, stream, timeline) &&
        rg_subscription_pending(context->session, &timeline->subscriber))
        rg_receiver_poll(context->session);
    CUresult status;
    if (stream_is_idle(context, stream, timeline)) {
        status = rg_timeline_answered(context->session);
    } else {
        if (follow && context->session->op_numbers[RG_OP_rgStreamWatch])
            subscribe_to_others(context, stream);
        status = rg_op_cuStreamSynchronize(stream);
        if (status == CUDA_SUCCESS)
            rg_timeline_raise(&timeline->completed, rg_timeline_own_position());
    }
    if (thread)
        thread->timeline.waited_at = thread->timeline.submitted;
    return status;
}

void rg_timeline_waited(CUstream stream)
{
    uint64_t handle;
    const uint64_t own = rg_timeline_own_position();
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(rg_effective_stream(stream), 0, &handle);
    if (timeline && rg_timeline_trusted(handle))
        rg_timeline_raise(&timeline->completed, own);
}

bool rg_timeline_synchronous(CUstream stream)
{
    uint64_t handle;
    const uint64_t own = rg_timeline_own_position();
    stream = rg_effective_stream(stream);
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(stream, 0, &handle);
    if (!timeline || stream == CU_STREAM_PER_THREAD || !rg_timeline_trusted(handle))
        return false;
    rg_timeline_raise(&timeline->synchronous, own);
    return true;
}

bool rg_timeline_accesses_done(uint64_t handle)
{
    const struct rg_context *context = rg_timeline_trusted(handle);
    return context &&
           rg_timeline_reached(&context->timeline.completed, last(&context->session->timeline.accesses));
}

bool rg_timeline_given(uint64_t handle, uint64_t *position)
{
    const struct rg_context *context = rg_timeline_trusted(handle);
    if (context)
        *position = rg_timeline_position(context->session);
    return context != NULL;
}

void rg_timeline_waited_for(uint64_t handle, uint64_t position)
{
    struct rg_context *context = rg_timeline_trusted(handle);
    if (!context)
        return;
    /* What another thread has put in between may last until a third one ends it, so that nobody may wait for it here. */
    const uint64_t own = rg_timeline_own_position(), lasting = last(&context->session->timeline.lasting);
    rg_timeline_raise(&context->timeline.synchronous, lasting > position || own < position ? position : own);
}

CUresult rg_timeline_wait_context(CUcontext named)
{
    struct rg_context *context = rg_timeline_trusted(named ? (uint64_t)named : rg_context_current_handle());
    if (context && rg_timeline_reached(&context->timeline.completed, last(&context->session->timeline.work)))
        return rg_timeline_answered(context->session);
    CUresult status = named ? rg_op_cuCtxSynchronize_v2(named) : rg_op_cuCtxSynchronize();
    if (context && status == CUDA_SUCCESS)
        rg_timeline_raise(&context->timeline.completed, rg_timeline_own_position());
    return status;
}

void rg_timeline_before_end(uint64_t handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, handle);
    if (!shadow || !rg_timeline_blocks_on_context(handle))
        return;
    CUresult status = rg_op_cuCtxSynchronize_v2((CUcontext)handle);
    if (status == CUDA_SUCCESS && rg_timeline_trusted(handle))
        rg_timeline_raise(&shadow->context.timeline.completed, rg_timeline_own_position());
}
