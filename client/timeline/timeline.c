/* timeline.c - positions, watches, and the answers that come of them. See timeline.h. */
#include "client/timeline/timeline.h"

#include "client/core/call.h"
#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/timeline/event_time_cache.h"
#include "common/thread.h"
#include "generated/client/operations.h"
#include "proto/times.h"
#include "proto/wire.h"

/* At once, of a session: few enough that notices which nobody reads yet never fill a connection. */
#define WATCHES 256u

struct watch {
    uint64_t id;      /* 0: free; the lowest bits are the index */
    uint64_t event;   /* handle; 0: a stream */
    uint64_t context; /* with which it ends */
    struct rg_stream_timeline *stream;
    uint64_t
        named; /* handle of that stream if it is one that was created: as long as it is there, so is `stream` */
    uint64_t position; /* what is known to be done when the notice comes */
    struct rg_event_time_hint wish;
};

#define WAITS_FOLLOW 16 /* so many waits after one that was followed by another are expected to be, too */
#define FOLLOWED     32 /* streams that are looked at then */

#define NOT_YET UINT64_MAX /* a position that nothing reaches */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watch watches[RG_SERVERS_MAX][WATCHES];
static uint64_t next_id = 1;
/* Raised when a host function has shown progress: a "not ready" that was learnt before is to be learnt again. */
static atomic_uint shown;

void rg_timeline_new_epoch(void)
{
    atomic_fetch_add(&shown, 1);
}

static uint64_t position(const struct rg_session *session)
{
    return atomic_load_explicit(&session->posted, memory_order_relaxed);
}

/* Of the record that this thread has appended last. */
static uint64_t own_position(void)
{
    const struct rg_thread *thread = rg_thread_if_any();
    return thread ? thread->position : 0;
}

static void raise_to(_Atomic uint64_t *done, uint64_t to)
{
    uint64_t before = atomic_load_explicit(done, memory_order_relaxed);
    while (before < to && !atomic_compare_exchange_weak_explicit(done, &before, to, memory_order_release,
                                                                 memory_order_relaxed))
        ;
}

static bool reached(const _Atomic uint64_t *done, uint64_t wanted)
{
    return atomic_load_explicit(done, memory_order_acquire) >= wanted;
}

static struct rg_context *context_of(uint64_t context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, context);
    return shadow ? &shadow->context : NULL;
}

/* The context if what is known of it may be used; NULL: the worker is to be asked. */
static struct rg_context *trusted(uint64_t handle)
{
    struct rg_context *context = rg_optimise[RG_OPT_PUSH] ? context_of(handle) : NULL;
    if (!context || !context->session->op_numbers[RG_OP_rgEventAsk] ||
        atomic_load_explicit(&context->sticky, memory_order_relaxed) != CUDA_SUCCESS ||
        atomic_load_explicit(&rg_contexts_suspect, memory_order_relaxed) ||
        atomic_load_explicit(&context->session->ended, memory_order_acquire) != CUDA_SUCCESS)
        return NULL;
    return context;
}

/* What a call returns that finds everything done. */
static CUresult found_done(struct rg_session *session)
{
    rg_hooks.has_waited();
    return rg_session_take_latched(session);
}

CUresult rg_timeline_answered(struct rg_session *session)
{
    rg_probe_saved(RG_OPT_PUSH);
    return found_done(session);
}

/* --- watches ------------------------------------------------------------------------------------------------- */

/* The one with that id, or NULL; the lock is held. */
static struct watch *find(const struct rg_session *session, uint64_t id)
{
    struct watch *watch = &watches[session->number][id % WATCHES];
    return id && watch->id == id ? watch : NULL;
}

/* Ends the watch of that id, if it is one; the lock is held. */
static void drop(const struct rg_session *session, uint64_t id)
{
    struct watch *watch = find(session, id);
    if (watch)
        *watch = (struct watch){0};
}

/* A new watch in the place of an old one; 0: there are too many. The lock is held. */
static uint64_t take(const struct rg_session *session, uint64_t old, const struct watch *wanted)
{
    struct watch *table = watches[session->number];
    uint64_t index = find(session, old) ? old % WATCHES : next_id % WATCHES;
    for (unsigned tried = 0; table[index].id && table[index].id != old; tried++) {
        if (tried == 8)
            return 0; /* it is asked for each time */
        index = (index * 5 + 1) % WATCHES;
    }
    table[index] = *wanted;
    table[index].id = next_id++ * WATCHES + index;
    return table[index].id;
}

static void drop_where(const struct rg_session *session, uint64_t event,
                       const struct rg_stream_timeline *stream, uint64_t context)
{
    struct watch *table = watches[session->number];
    for (unsigned i = 0; i < WATCHES; i++)
        if (table[i].id && ((event && table[i].event == event) || (stream && table[i].stream == stream) ||
                            (context && table[i].context == context)))
            table[i] = (struct watch){0};
}

void rg_timeline_forget_event(CUevent handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)handle);
    if (!shadow || !atomic_load_explicit(&shadow->event.watch, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < rg_n_sessions; i++)
        drop_where(&rg_sessions[i], (uint64_t)handle, NULL, 0);
    pthread_mutex_unlock(&lock);
}

void rg_timeline_forget_stream(struct rg_stream_timeline *stream)
{
    if (atomic_load_explicit(&stream->watch, memory_order_relaxed)) {
        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < rg_n_sessions; i++)
            drop_where(&rg_sessions[i], 0, stream, 0);
        pthread_mutex_unlock(&lock);
    }
    atomic_store(&stream->watch, 0);
    atomic_store(&stream->done, 0);
    atomic_store(&stream->worked, 0);
    atomic_store(&stream->lasts, 0);
}

void rg_timeline_end_stream(CUstream stream)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    const struct rg_context *context = shadow ? context_of(shadow->stream.context) : NULL;
    const uint64_t lasts = shadow ? atomic_load(&shadow->stream.progress.lasts) : 0;
    if (context && !reached(&shadow->stream.progress.done, lasts)) /* it goes on without its handle */
        raise_to(&context->session->lasting_elsewhere, lasts);
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; shadow && i < rg_n_sessions; i++)
        drop_where(&rg_sessions[i], 0, &shadow->stream.progress, 0);
    rg_handle_delete(RG_KIND_STREAM, (uint64_t)stream);
    pthread_mutex_unlock(&lock);
}

void rg_timeline_forget_context(uint64_t context)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < rg_n_sessions; i++)
        drop_where(&rg_sessions[i], 0, NULL, context);
    pthread_mutex_unlock(&lock);
}

/* --- streams -------------------------------------------------------------------------------------------------- */

/* What is kept for a stream, and its context; NULL for a per-thread stream of another thread. */
static struct rg_stream_timeline *progress_of(CUstream stream, uint64_t context_hint, uint64_t *context)
{
    if (stream == CU_STREAM_PER_THREAD) {
        struct rg_thread *thread = rg_thread_current();
        *context = rg_context_current();
        if (!thread)
            return NULL;
        if (thread->own_context != *context) {
            rg_timeline_forget_stream(&thread->own);
            thread->own_context = *context;
        }
        return &thread->own;
    }
    if ((uintptr_t)stream < (uintptr_t)CU_STREAM_PER_THREAD) {
        *context = context_hint ? context_hint : rg_context_current();
        struct rg_context *of = context_of(*context);
        return of ? &of->legacy : NULL;
    }
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    *context = shadow ? shadow->stream.context : 0;
    return shadow ? &shadow->stream.progress : NULL;
}

/* The stream's own, if it is one that was created; NULL: a default stream, which waits for others and others for it. */
static struct rg_stream_timeline *created(CUstream stream)
{
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
        return NULL;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    return shadow ? &shadow->stream.progress : NULL;
}

void rg_timeline_work(const struct rg_call *call, CUstream stream)
{
    struct rg_stream_timeline *progress = created(stream);
    struct rg_session *session = call->session;
    const uint64_t at = call->thread->position;
    const bool legacy = (uintptr_t)stream <= (uintptr_t)CU_STREAM_LEGACY;
    if (call->lasts && !legacy)
        atomic_store_explicit(&session->lasting_apart, at, memory_order_relaxed);
    if (call->lasts)
        atomic_store_explicit(legacy     ? &session->lasting_legacy
                              : progress ? &progress->lasts
                                         : &session->lasting_elsewhere,
                              at, memory_order_relaxed);
    if (progress && rg_timeline_is_work((enum rg_op)call->op))
        atomic_store_explicit(&progress->worked, call->thread->position, memory_order_relaxed);
}

static bool context_is_idle(const struct rg_context *context)
{
    return reached(&context->done, atomic_load_explicit(&context->session->worked, memory_order_relaxed));
}

/* Nothing was put into it, nor anywhere where it might matter to it, behind what is known to be done. */
static bool stream_is_idle(const struct rg_context *context, CUstream stream,
                           const struct rg_stream_timeline *progress)
{
    const struct rg_session *session = context->session;
    uint64_t worked = atomic_load_explicit(&session->worked, memory_order_relaxed);
    if (created(stream)) {
        const uint64_t elsewhere = atomic_load_explicit(&session->worked_elsewhere, memory_order_relaxed);
        worked = atomic_load_explicit(&progress->worked, memory_order_relaxed);
        worked = worked > elsewhere ? worked : elsewhere;
    }
    return reached(&progress->done, worked) || reached(&context->done, worked);
}

/*
 * Whether it is known, stream by stream, that all is done that may last: a program that has waited for each of its streams
 * has not waited for the context.
 */
static bool streams_are_done(const struct rg_context *context)
{
    const struct rg_session *session = context->session;
    const uint64_t legacy = atomic_load_explicit(&session->lasting_legacy, memory_order_relaxed);
    const uint64_t elsewhere = atomic_load_explicit(&session->lasting_elsewhere, memory_order_relaxed);
    uint64_t streams[FOLLOWED];
    if (!reached(&context->done, elsewhere) ||
        !(reached(&context->legacy.done, legacy) || reached(&context->done, legacy)))
        return false;
    const size_t n = rg_handle_list(RG_KIND_STREAM, 0, streams, FOLLOWED);
    for (size_t i = 0; i < n; i++) {
        const struct rg_stream_timeline *stream = created((CUstream)streams[i]);
        const uint64_t lasts =
            stream ? atomic_load_explicit(&stream->lasts, memory_order_relaxed) : UINT64_MAX;
        if (lasts == UINT64_MAX || !(reached(&stream->done, lasts) || reached(&context->done, lasts)))
            return false;
    }
    return n < FOLLOWED;
}

bool rg_timeline_blocks_on_context(uint64_t handle)
{
    const struct rg_context *context = trusted(handle);
    if (!context)
        return rg_thread_has_others();
    const uint64_t lasting = atomic_load_explicit(&context->session->lasting, memory_order_relaxed);
    const uint64_t apart = atomic_load_explicit(&context->session->lasting_apart, memory_order_relaxed);
    if (reached(&context->done, lasting) ||
        (reached(&context->legacy.done, lasting) && reached(&context->done, apart)))
        return false;
    return !streams_are_done(context) && rg_thread_has_others();
}

bool rg_timeline_blocks_on_stream(CUstream stream)
{
    uint64_t handle;
    const struct rg_stream_timeline *progress = progress_of(rg_effective_stream(stream), 0, &handle);
    const struct rg_context *context = trusted(handle);
    if (!progress || !context)
        return rg_thread_has_others();
    const uint64_t lasting = atomic_load_explicit(&context->session->lasting, memory_order_relaxed);
    return !reached(&progress->done, lasting) && !reached(&context->done, lasting) && rg_thread_has_others();
}

/* Whether what `watch` is for was not done when the program last was shown anything. The lock is held. */
static bool pending(const struct rg_session *session, const _Atomic uint64_t *watch,
                    const _Atomic unsigned *seen)
{
    return atomic_load_explicit(seen, memory_order_relaxed) == atomic_load(&shown) &&
           find(session, atomic_load_explicit(watch, memory_order_relaxed));
}

static bool still_pending(const struct rg_session *session, const _Atomic uint64_t *watch,
                          const _Atomic unsigned *seen)
{
    pthread_mutex_lock(&lock);
    const bool is = pending(session, watch, seen);
    pthread_mutex_unlock(&lock);
    return is;
}

/* Begins to watch; the lock is held. */
static uint64_t begin_locked(const struct rg_session *session, _Atomic uint64_t *watch,
                             const struct watch *wanted)
{
    const uint64_t id = take(session, atomic_load_explicit(watch, memory_order_relaxed), wanted);
    atomic_store_explicit(watch, id, memory_order_relaxed);
    return id;
}

/* Begins to watch before the worker is asked, ends it if the answer is anything but "not ready". */
static uint64_t begin_watch(const struct rg_session *session, _Atomic uint64_t *watch,
                            const struct watch *wanted)
{
    pthread_mutex_lock(&lock);
    const uint64_t id = begin_locked(session, watch, wanted);
    pthread_mutex_unlock(&lock);
    return id;
}

static void end_watch(const struct rg_session *session, uint64_t id)
{
    pthread_mutex_lock(&lock);
    drop(session, id);
    pthread_mutex_unlock(&lock);
}

static CUresult ask_stream(struct rg_context *context, uint64_t handle, struct rg_stream_timeline *progress,
                           CUstream stream)
{
    struct rg_session *session = context->session;
    const unsigned generation = atomic_load(&shown);
    const bool own = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    const struct watch wanted = {.context = handle,
                                 .stream = progress,
                                 .named = own ? (uint64_t)stream : 0,
                                 .position = position(session)};
    const uint64_t id = begin_watch(session, &progress->watch, &wanted);
    CUresult status = own ? rg_op_rgStreamAsk(stream, id) : rg_op_rgDefaultStreamAsk(stream, id);
    atomic_store_explicit(&progress->seen, generation, memory_order_relaxed);
    if (status != CUDA_ERROR_NOT_READY)
        end_watch(session, id);
    if (status == CUDA_SUCCESS)
        raise_to(&progress->done, wanted.position);
    return status;
}

/* For a trace; streams have the names that the worker gives them there. */
static void polled_stream(CUstream stream, bool done)
{
    if (!RG_PROBED(polled))
        return;
    const bool own = stream == CU_STREAM_PER_THREAD;
    rg_probe_polled(own ? RG_TIME_LANE_STREAM | rg_thread_current()->number : (uint64_t)stream, false, done);
}

CUresult rg_timeline_query_stream(CUstream stream)
{
    stream = rg_effective_stream(stream);
    const bool own = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    uint64_t handle;
    struct rg_stream_timeline *progress = progress_of(stream, 0, &handle);
    struct rg_context *context = trusted(handle);
    if (!progress || !context)
        return own ? rg_op_cuStreamQuery(stream) : rg_op_rgDefaultStreamAsk(stream, 0);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (stream_is_idle(context, stream, progress)) {
            polled_stream(stream, true);
            return found_done(context->session);
        }
        if (!still_pending(context->session, &progress->watch, &progress->seen))
            return ask_stream(context, handle, progress, stream);
        if (attempt == 0)
            rg_receiver_poll(context->session);
    }
    polled_stream(stream, false);
    const CUresult ended = atomic_load(&context->session->ended);
    return ended != CUDA_SUCCESS ? ended : CUDA_ERROR_NOT_READY;
}

/* Whether this thread is likely to wait for other streams after this one: it did so the last times, with no call in between. */
static bool others_follow(struct rg_thread *thread, CUstream stream)
{
    const bool first = thread->position != thread->waited_at;
    const bool follow = first && thread->waits_follow;
    if (!first && thread->waited_for != stream)
        thread->waits_follow = WAITS_FOLLOW;
    else if (follow)
        thread->waits_follow--;
    thread->waited_for = stream;
    return follow;
}

/*
 * Begins to watch a stream of which it is not known whether it is idle; 0: there is no need to. Other threads may end the
 * stream at any time, but not while the lock is held (rg_timeline_end_stream).
 */
static uint64_t begin_other(struct rg_context *context, CUstream stream)
{
    const struct rg_session *session = context->session;
    const unsigned generation = atomic_load(&shown);
    uint64_t handle, id = 0;
    pthread_mutex_lock(&lock);
    struct rg_stream_timeline *progress = progress_of(stream, 0, &handle);
    if (progress && context_of(handle) == context && !stream_is_idle(context, stream, progress) &&
        !pending(session, &progress->watch, &progress->seen)) {
        const struct watch wanted = {
            .context = handle, .stream = progress, .named = (uint64_t)stream, .position = position(session)};
        id = begin_locked(session, &progress->watch, &wanted);
        atomic_store_explicit(&progress->seen, generation, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/* Lets the worker tell of other streams, with the answer about the one that is waited for, what it has done by then. */
static void watch_others(struct rg_context *context, struct rg_thread *thread, CUstream waited)
{
    struct rg_session *const session = context->session, *const before = thread->target;
    uint64_t streams[FOLLOWED];
    const size_t n = rg_handle_list(RG_KIND_STREAM, 0, streams, FOLLOWED);
    thread->target = session;
    for (size_t i = 0; i < n; i++) {
        const CUstream stream = (CUstream)streams[i];
        const uint64_t id = stream == waited ? 0 : begin_other(context, stream);
        if (id && rg_op_rgStreamWatch(stream, id) != CUDA_SUCCESS)
            end_watch(session, id);
    }
    thread->target = before;
}

CUresult rg_timeline_wait_stream(CUstream stream)
{
    stream = rg_effective_stream(stream);
    uint64_t handle;
    struct rg_stream_timeline *progress = progress_of(stream, 0, &handle);
    struct rg_context *context = trusted(handle);
    if (!progress || !context)
        return rg_op_cuStreamSynchronize(stream);
    struct rg_thread *thread = rg_thread_current();
    const bool follow = created(stream) && thread && others_follow(thread, stream);
    if (!stream_is_idle(context, stream, progress) &&
        still_pending(context->session, &progress->watch, &progress->seen))
        rg_receiver_poll(context->session);
    CUresult status;
    if (stream_is_idle(context, stream, progress)) {
        status = rg_timeline_answered(context->session);
    } else {
        if (follow && context->session->op_numbers[RG_OP_rgStreamWatch])
            watch_others(context, thread, stream);
        status = rg_op_cuStreamSynchronize(stream);
        if (status == CUDA_SUCCESS)
            raise_to(&progress->done, own_position());
    }
    if (thread)
        thread->waited_at = thread->position;
    return status;
}

void rg_timeline_waited(CUstream stream)
{
    uint64_t handle;
    const uint64_t own = own_position();
    struct rg_stream_timeline *progress = progress_of(rg_effective_stream(stream), 0, &handle);
    if (progress && trusted(handle))
        raise_to(&progress->done, own);
}

CUresult rg_timeline_wait_context(CUcontext named)
{
    struct rg_context *context = trusted(named ? (uint64_t)named : rg_context_current());
    if (context && context_is_idle(context))
        return rg_timeline_answered(context->session);
    CUresult status = named ? rg_op_cuCtxSynchronize_v2(named) : rg_op_cuCtxSynchronize();
    if (context && status == CUDA_SUCCESS)
        raise_to(&context->done, own_position());
    return status;
}

void rg_timeline_before_end(uint64_t handle)
{
    struct rg_context *context = context_of(handle);
    if (!context || !rg_timeline_blocks_on_context(handle))
        return;
    CUresult status = rg_op_cuCtxSynchronize_v2((CUcontext)handle);
    if (status == CUDA_SUCCESS && trusted(handle))
        raise_to(&context->done, own_position());
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static struct rg_event *event_of(CUevent handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)handle);
    return shadow ? &shadow->event : NULL;
}

/* What is kept for the stream in which the event was recorded last; NULL: nothing. */
static struct rg_stream_timeline *recorded_in(const struct rg_event *event)
{
    uint64_t context;
    const CUstream stream = (CUstream)atomic_load_explicit(&event->stream, memory_order_relaxed);
    return stream == CU_STREAM_PER_THREAD ? NULL : progress_of(stream, event->context, &context);
}

static bool is_done(const struct rg_event *event)
{
    const uint64_t recorded = atomic_load_explicit(&event->recorded, memory_order_relaxed);
    if (reached(&event->done, recorded)) /* also if it was never recorded */
        return true;
    const struct rg_context *context = context_of(event->context);
    const struct rg_stream_timeline *stream = recorded_in(event);
    return (context && reached(&context->done, recorded)) || (stream && reached(&stream->done, recorded));
}

/* The record at position `recorded` is done, and with it what came before in its stream. */
static void note_done(struct rg_event *event, uint64_t recorded)
{
    struct rg_stream_timeline *stream = recorded_in(event);
    /* In this order: if it has been recorded again by now, either this is the old one or `recorded` is another. */
    const uint64_t before = atomic_load_explicit(&event->before, memory_order_acquire);
    raise_to(&event->done, recorded);
    if (stream && recorded && atomic_load_explicit(&event->recorded, memory_order_relaxed) == recorded)
        raise_to(&stream->done, before + 1 == recorded ? recorded : before);
}

/* Watches the event, whose record at that position has just been put. */
static void watch_record(struct rg_session *session, CUevent handle, struct rg_event *event,
                         uint64_t recorded)
{
    const struct watch wanted = {.context = event->context,
                                 .event = (uint64_t)handle,
                                 .position = recorded,
                                 .wish = rg_event_time_hint(handle, recorded)};
    const struct rg_event_time_hint *wish = &wanted.wish;
    const unsigned generation = atomic_load(&shown);
    const uint64_t id = begin_watch(session, &event->watch, &wanted);
    atomic_store_explicit(&event->seen, generation, memory_order_relaxed);
    if (!id)
        return;
    const CUresult status = wish->since && session->op_numbers[RG_OP_rgEventWatchTimed]
                                ? rg_op_rgEventWatchTimed(handle, id, wish->since, wish->version)
                                : rg_op_rgEventWatch(handle, id);
    if (status != CUDA_SUCCESS)
        end_watch(session, id);
}

CUresult rg_timeline_record(CUevent handle, CUstream stream, unsigned flags, bool with_flags)
{
    struct rg_event *event = event_of(handle);
    struct rg_context *context = trusted(event->context);
    stream = rg_effective_stream(stream);
    CUresult status = with_flags ? rg_op_cuEventRecordWithFlags(handle, stream, flags)
                                 : rg_op_cuEventRecord(handle, stream);
    if (!context || status != CUDA_SUCCESS) {
        rg_timeline_unseen(handle);
        return status;
    }
    const uint64_t after = own_position();
    atomic_store_explicit(&event->recorded, NOT_YET, memory_order_relaxed);
    atomic_store_explicit(&event->stream, (uintptr_t)stream, memory_order_release);
    atomic_store_explicit(&event->before, after - 1, memory_order_release);
    atomic_store_explicit(&event->recorded, after, memory_order_release);
    if (!(event->flags & CU_EVENT_INTERPROCESS)) /* others record those too */
        atomic_store_explicit(&event->unseen, false, memory_order_relaxed);
    if (!atomic_exchange_explicit(&event->queried, false, memory_order_relaxed)) {
        if (atomic_load_explicit(&event->watch, memory_order_relaxed)) {
            end_watch(context->session, atomic_load(&event->watch)); /* it was for the record before */
            atomic_store(&event->watch, 0);
        }
        return status;
    }
    watch_record(context->session, handle, event, after);
    return status;
}

void rg_timeline_unseen(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    if (event)
        atomic_store_explicit(&event->unseen, true, memory_order_relaxed);
}

/* The context of an event of which this client knows the last record; NULL: the worker is to be asked. */
static struct rg_context *known(const struct rg_event *event)
{
    if ((event->flags & CU_EVENT_INTERPROCESS) || atomic_load_explicit(&event->unseen, memory_order_relaxed))
        return NULL;
    return trusted(event->context);
}

uint64_t rg_timeline_recorded(const struct rg_event *event)
{
    const uint64_t recorded = known(event) ? atomic_load_explicit(&event->recorded, memory_order_acquire) : 0;
    return recorded == NOT_YET ? 0 : recorded;
}

struct rg_session *rg_timeline_session(const struct rg_event *event)
{
    const struct rg_context *context = known(event);
    return context ? context->session : NULL;
}

static CUresult ask_event(struct rg_session *session, CUevent handle, struct rg_event *event)
{
    const unsigned generation = atomic_load(&shown);
    const uint64_t recorded = atomic_load_explicit(&event->recorded, memory_order_relaxed);
    if (recorded == NOT_YET) /* another thread is recording it */
        return rg_op_cuEventQuery(handle);
    const struct watch wanted = {.context = event->context, .event = (uint64_t)handle, .position = recorded};
    const uint64_t id = begin_watch(session, &event->watch, &wanted);
    CUresult status = rg_op_rgEventAsk(handle, id);
    atomic_store_explicit(&event->seen, generation, memory_order_relaxed);
    if (status != CUDA_ERROR_NOT_READY)
        end_watch(session, id);
    if (status == CUDA_SUCCESS)
        note_done(event, recorded);
    return status;
}

CUresult rg_timeline_query_event(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    struct rg_context *context = known(event);
    if (!context)
        return rg_op_cuEventQuery(handle);
    atomic_store_explicit(&event->queried, true, memory_order_relaxed);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (is_done(event)) {
            rg_probe_polled((uint64_t)handle, true, true);
            return found_done(context->session);
        }
        if (!still_pending(context->session, &event->watch, &event->seen))
            return ask_event(context->session, handle, event);
        if (attempt == 0)
            rg_receiver_poll(context->session);
    }
    rg_probe_polled((uint64_t)handle, true, false);
    const CUresult ended = atomic_load(&context->session->ended);
    return ended != CUDA_SUCCESS ? ended : CUDA_ERROR_NOT_READY;
}

/* Asks for the time that will be asked for next as well. */
static CUresult wait_for_record(const struct rg_session *session, CUevent handle, uint64_t recorded)
{
    const struct rg_event_time_hint wish = rg_event_time_hint(handle, recorded);
    float ms;
    if (!wish.since || recorded == NOT_YET || !session->op_numbers[RG_OP_rgEventWait])
        return rg_op_cuEventSynchronize(handle);
    CUresult status = rg_op_rgEventWait(handle, wish.since, wish.version, &ms);
    if (status == CUDA_SUCCESS)
        rg_event_time_arrived(handle, &wish, ms);
    return status;
}

CUresult rg_timeline_wait_event(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    struct rg_context *context = known(event);
    if (!context)
        return rg_op_cuEventSynchronize(handle);
    if (is_done(event))
        return rg_timeline_answered(context->session);
    const uint64_t recorded = atomic_load_explicit(&event->recorded, memory_order_relaxed);
    /* Awaited with work put in behind it: likely to be so again, and done by then. Its next record is watched. */
    if (position(context->session) > recorded + 1)
        atomic_store_explicit(&event->queried, true, memory_order_relaxed);
    if (still_pending(context->session, &event->watch, &event->seen)) {
        rg_receiver_poll(context->session);
        if (is_done(event))
            return rg_timeline_answered(context->session);
    }
    CUresult status = wait_for_record(context->session, handle, recorded);
    if (status == CUDA_SUCCESS && recorded != NOT_YET)
        note_done(event, recorded);
    return status;
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

static void watched_done(struct rg_session *session, const struct rg_done *done)
{
    pthread_mutex_lock(&lock);
    struct watch *watch = find(session, done->watch); /* NULL: given up meanwhile */
    if (watch && done->result == CUDA_SUCCESS) {
        struct rg_event *event = watch->event ? event_of((CUevent)watch->event) : NULL;
        if (event) {
            note_done(event, watch->position);
            rg_event_time_arrived((CUevent)watch->event, &watch->wish, done->ms);
        } else if (watch->stream && (!watch->named || rg_handle_shadow(RG_KIND_STREAM, watch->named))) {
            raise_to(&watch->stream->done, watch->position);
        }
    }
    if (watch) /* with any other result the next query asks, and returns what it is told */
        *watch = (struct watch){0};
    pthread_mutex_unlock(&lock);
}

bool rg_timeline_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                        size_t bulk_size)
{
    (void)bulk_size;
    if (notice->arg[0] > RG_MESSAGE_MAX / sizeof(struct rg_done))
        return false;
    for (uint64_t i = 0; i < notice->arg[0]; i++) {
        struct rg_done done;
        rg_get_into(in, &done, sizeof done);
        if (in->bad)
            return false;
        watched_done(session, &done);
    }
    return true;
}
