/* events.c - how far events are, calls that ask or wait for them, and notices of what is completed. See
 * timeline.h. */
#include "client/core/call.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/timeline/internal.h"
#include "common/base/clock.h"
#include "generated/client/operations.h"
#include "proto/wire.h"

#define NOT_YET UINT64_MAX /* a position that nothing reaches */

#define HELD_UP_NS    1000000u /* an answer that comes so much later than the notice … */
#define HELD_UP_WAITS 256u     /* … has so many waits be for notices */

static struct rg_event *event_of(CUevent handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)handle);
    return shadow ? &shadow->event : NULL;
}

/* What is kept for the stream in which the event was recorded last; NULL: nothing. */
static struct rg_stream_timeline *recorded_in(const struct rg_event *event)
{
    uint64_t context;
    const CUstream stream = (CUstream)atomic_load_explicit(&event->timeline.stream, memory_order_relaxed);
    return stream == CU_STREAM_PER_THREAD ? NULL : rg_timeline_of_stream(stream, event->context, &context);
}

static bool is_done(const struct rg_event *event)
{
    const uint64_t recorded = atomic_load_explicit(&event->timeline.recorded, memory_order_relaxed);
    if (rg_timeline_reached(&event->timeline.completed, recorded)) /* also if it was never recorded */
        return true;
    const struct rg_shadow *context = rg_handle_shadow(RG_KIND_CONTEXT, event->context);
    const struct rg_stream_timeline *stream = recorded_in(event);
    return (context && rg_timeline_reached(&context->context.timeline.completed, recorded)) ||
           (stream && rg_timeline_reached(&stream->completed, recorded));
}

/* Whether the program may take the event for done, by a call behind it. */
static bool is_behind(const struct rg_context *context, const struct rg_event *event)
{
    const uint64_t recorded = atomic_load_explicit(&event->timeline.recorded, memory_order_acquire);
    const CUstream in = (CUstream)atomic_load_explicit(&event->timeline.stream, memory_order_relaxed);
    const struct rg_stream_timeline *stream =
        in == CU_STREAM_PER_THREAD ? &context->timeline.legacy : recorded_in(event);
    return rg_timeline_is_behind(context, in, stream, recorded);
}

/* The record at position `recorded` is done, and with it what came before in its stream. */
static void note_done(struct rg_event *event, uint64_t recorded)
{
    struct rg_stream_timeline *stream = recorded_in(event);
    /* In this order: if it has been recorded again by now, either this is the old one or `recorded` is
     * another. */
    const uint64_t before = atomic_load_explicit(&event->timeline.before, memory_order_acquire);
    rg_timeline_raise(&event->timeline.completed, recorded);
    if (stream && recorded &&
        atomic_load_explicit(&event->timeline.recorded, memory_order_relaxed) == recorded)
        rg_timeline_raise(&stream->completed, before + 1 == recorded ? recorded : before);
}

/* The context of an event of which this client knows the last record; NULL: the worker is to be asked. */
static struct rg_context *known(const struct rg_event *event)
{
    if ((event->flags & CU_EVENT_INTERPROCESS) ||
        atomic_load_explicit(&event->timeline.unseen, memory_order_relaxed))
        return NULL;
    return rg_timeline_trusted(event->context);
}

/* The position of the event's last record; 0: it was not recorded, or this client does not know its last
 * record. */
static uint64_t recorded_at(const struct rg_event *event)
{
    const uint64_t recorded =
        known(event) ? atomic_load_explicit(&event->timeline.recorded, memory_order_acquire) : 0;
    return recorded == NOT_YET ? 0 : recorded;
}

/* The time that is to be told with the record of `end` at position `to`. */
static struct rg_event_time_hint wanted_time(struct rg_event *end, uint64_t to)
{
    struct rg_event_time_hint hint = rg_event_time_wanted(&end->timeline);
    const struct rg_event *start = hint.since ? event_of((CUevent)hint.since) : NULL;
    hint.from = start && start->context == end->context ? recorded_at(start) : 0;
    hint.to = to;
    return hint.from ? hint : (struct rg_event_time_hint){0};
}

/* Subscribes to the event, whose record at that position has just been put. */
static void subscribe_to_record(struct rg_session *session, CUevent handle, struct rg_event *event,
                                uint64_t recorded)
{
    const struct rg_subscription wanted = {.context = event->context,
                                           .event = (uint64_t)handle,
                                           .position = recorded,
                                           .hint = wanted_time(event, recorded)};
    const struct rg_event_time_hint *hint = &wanted.hint;
    const unsigned epoch = rg_subscription_epoch();
    const uint64_t id = rg_subscribe(session, &event->timeline.subscriber, &wanted);
    atomic_store_explicit(&event->timeline.subscriber.epoch, epoch, memory_order_relaxed);
    if (!id)
        return;
    const CUresult status = hint->since && session->op_numbers[RG_OP_rgEventWatchTimed]
                                ? rg_op_rgEventWatchTimed(handle, id, hint->since, hint->version)
                                : rg_op_rgEventWatch(handle, id);
    if (status != CUDA_SUCCESS)
        rg_unsubscribe(session, id);
}

static CUresult record(CUevent handle, struct rg_event *event, CUstream stream, unsigned flags,
                       bool with_flags)
{
    struct rg_context *context = rg_timeline_trusted(event->context);
    stream = rg_effective_stream(stream);
    CUresult status = with_flags ? rg_op_cuEventRecordWithFlags(handle, stream, flags)
                                 : rg_op_cuEventRecord(handle, stream);
    if (!context || status != CUDA_SUCCESS) {
        rg_timeline_unseen(handle);
        return status;
    }
    const uint64_t after = rg_timeline_own_position();
    atomic_store_explicit(&event->timeline.recorded, NOT_YET, memory_order_relaxed);
    atomic_store_explicit(&event->timeline.stream, (uintptr_t)stream, memory_order_release);
    atomic_store_explicit(&event->timeline.before, after - 1, memory_order_release);
    atomic_store_explicit(&event->timeline.recorded, after, memory_order_release);
    if (!(event->flags & CU_EVENT_INTERPROCESS)) /* others record those too */
        atomic_store_explicit(&event->timeline.unseen, false, memory_order_relaxed);
    if (!atomic_exchange_explicit(&event->timeline.queried, false, memory_order_relaxed)) {
        if (atomic_load_explicit(&event->timeline.subscriber.id, memory_order_relaxed)) {
            rg_unsubscribe(context->session,
                           atomic_load(&event->timeline.subscriber.id)); /* it was for the record before */
            atomic_store(&event->timeline.subscriber.id, 0);
        }
        return status;
    }
    subscribe_to_record(context->session, handle, event, after);
    return status;
}

static CUresult told(CUevent handle, const struct rg_event *event, CUresult status)
{
    if (status != CUDA_SUCCESS || !event || !(event->flags & CU_EVENT_INTERPROCESS))
        return status;
    const CUresult asked = rg_op_cuEventQuery(handle);
    return asked == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : asked;
}

CUresult rg_timeline_told(CUevent handle, CUresult status)
{
    return told(handle, event_of(handle), status);
}

CUresult rg_timeline_record(CUevent handle, CUstream stream, unsigned flags, bool with_flags)
{
    struct rg_event *event = event_of(handle);
    return told(handle, event, record(handle, event, stream, flags, with_flags));
}

void rg_timeline_unseen(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    if (event)
        atomic_store_explicit(&event->timeline.unseen, true, memory_order_relaxed);
}

static CUresult ask_event(struct rg_session *session, CUevent handle, struct rg_event *event)
{
    const unsigned epoch = rg_subscription_epoch();
    const uint64_t recorded = atomic_load_explicit(&event->timeline.recorded, memory_order_relaxed);
    if (recorded == NOT_YET) /* another thread is recording it */
        return rg_op_cuEventQuery(handle);
    const struct rg_subscription wanted = {
        .context = event->context, .event = (uint64_t)handle, .position = recorded};
    const uint64_t id = rg_subscribe(session, &event->timeline.subscriber, &wanted);
    CUresult status = rg_op_rgEventAsk(handle, id);
    atomic_store_explicit(&event->timeline.subscriber.epoch, epoch, memory_order_relaxed);
    if (status != CUDA_ERROR_NOT_READY)
        rg_unsubscribe(session, id);
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
    atomic_store_explicit(&event->timeline.queried, true, memory_order_relaxed);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (is_done(event)) {
            rg_probe_polled(context->session->number, (uint64_t)handle, true, true);
            return rg_timeline_found_done(context->session);
        }
        if (is_behind(context, event))
            return rg_timeline_wait_event(handle);
        if (!rg_subscription_pending(context->session, &event->timeline.subscriber))
            return ask_event(context->session, handle, event);
        if (attempt == 0) {
            rg_queue_send_polled(context->session);
            rg_receiver_poll(context->session);
        }
    }
    rg_probe_polled(context->session->number, (uint64_t)handle, true, false);
    const CUresult ended = atomic_load(&context->session->ended);
    return ended != CUDA_SUCCESS ? ended : CUDA_ERROR_NOT_READY;
}

/* Asks for the time that will be asked for next as well. */
static CUresult wait_for_record(const struct rg_session *session, CUevent handle, struct rg_event *event,
                                uint64_t recorded)
{
    const struct rg_event_time_hint hint = wanted_time(event, recorded);
    float ms;
    if (!hint.since || recorded == NOT_YET || !session->op_numbers[RG_OP_rgEventWait])
        return rg_op_cuEventSynchronize(handle);
    CUresult status = rg_op_rgEventWait(handle, hint.since, hint.version, &ms);
    if (status == CUDA_SUCCESS && event_of(handle))
        rg_event_time_arrived(&event->timeline, &hint, ms);
    return status;
}

/* --- waits behind what has to wait for a turn ----------------------------------------------------------- */

/*
 * Where sessions share a GPU by turns, a record that asks for an early event is answered once all that was put before it has had its
 * turn. A program that keeps some work ahead would thus learn of all of it at once, at the end, and have nothing ahead by then. So where
 * an answer was seen to come long after the notice of the same event, notices alone are waited for; now and then it is tried again, as
 * an answer comes at once where nothing waits for turns.
 */
struct awaited {
    const struct rg_session *session;
    CUevent handle;
};

static bool is_told(const void *argument)
{
    const struct awaited *awaited = argument;
    const struct rg_event *event = event_of(awaited->handle);
    return !event || is_done(event) || !rg_subscription_due(awaited->session, &event->timeline.subscriber);
}

/* Whether the next wait is for a notice: of those that are to be, it is one less then. */
static bool is_held_up(struct rg_session *session)
{
    unsigned left = atomic_load(&session->timeline.held_up);
    while (left && !atomic_compare_exchange_weak(&session->timeline.held_up, &left, left - 1))
        ;
    return left;
}

static void wait_for_notice(struct rg_session *session, CUevent handle)
{
    const struct awaited awaited = {session, handle};
    const uint64_t probe = rg_probe_wait();
    rg_queue_flush(session);
    rg_receiver_wait_for_notice(session, is_told, &awaited);
    rg_probe_waited(probe, 0);
}

/* An answer has come. */
static void note_delay(struct rg_session *session, const struct rg_event *event, uint64_t recorded)
{
    const uint64_t told = atomic_load_explicit(&event->timeline.told_at, memory_order_relaxed);
    if (rg_timeline_reached(&event->timeline.completed, recorded) && told && rg_now_ns() > told + HELD_UP_NS)
        atomic_store(&session->timeline.held_up, HELD_UP_WAITS);
}

CUresult rg_timeline_wait_event(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    struct rg_context *context = known(event);
    if (!context)
        return rg_op_cuEventSynchronize(handle);
    const uint64_t recorded = atomic_load_explicit(&event->timeline.recorded, memory_order_relaxed);
    const bool ahead = rg_timeline_position(context->session) > recorded + 1, done = is_done(event);
    /* Awaited with work put in behind it: likely to be so again, and done by then. Its next record is
     * watched, unless that is not how this one is known to be done. */
    if (ahead && (!done || atomic_load_explicit(&event->timeline.subscriber.id, memory_order_relaxed)))
        atomic_store_explicit(&event->timeline.queried, true, memory_order_relaxed);
    if (done)
        return rg_timeline_answered(context->session);
    if (rg_subscription_pending(context->session, &event->timeline.subscriber)) {
        rg_receiver_poll(context->session);
        if (!is_done(event) && ahead && is_held_up(context->session))
            wait_for_notice(context->session, handle);
        if (is_done(event))
            return rg_timeline_answered(context->session);
    }
    CUresult status = wait_for_record(context->session, handle, event, recorded);
    note_delay(context->session, event, recorded);
    if (status == CUDA_SUCCESS && recorded != NOT_YET)
        note_done(event, recorded);
    return status;
}

CUresult rg_timeline_event_time(float *milliseconds, CUevent start, CUevent end, unsigned version)
{
    struct rg_event *from = event_of(start), *to = event_of(end);
    struct rg_context *context = from && to ? known(to) : NULL;
    if (context) {
        const struct rg_event_time_hint time = {(uint64_t)start, version, recorded_at(from), recorded_at(to)};
        if (rg_event_time_find(&to->timeline, &time, milliseconds))
            return rg_timeline_answered(context->session);
        const struct rg_context *other = known(from);
        if (other && !is_done(from) && is_behind(other, from))
            RG_TRY(rg_timeline_wait_event(start));
        if (!is_done(to) && is_behind(context, to))
            RG_TRY(rg_timeline_wait_event(end));
    }
    const CUresult status = version == 2 ? rg_op_cuEventElapsedTime_v2(milliseconds, start, end)
                                         : rg_op_cuEventElapsedTime(milliseconds, start, end);
    if (status == CUDA_SUCCESS && context)
        rg_event_time_learn(&to->timeline, (uint64_t)start, version);
    return status;
}

void rg_timeline_forget_event(CUevent handle)
{
    struct rg_event *event = event_of(handle);
    if (event && atomic_load_explicit(&event->timeline.subscriber.id, memory_order_relaxed))
        rg_unsubscribe_all((uint64_t)handle, NULL, 0);
}

/* --- notices -------------------------------------------------------------------------------------------- */

static void note_completed(const struct rg_subscription *subscription, const struct rg_done *done)
{
    struct rg_event *event = subscription->event ? event_of((CUevent)subscription->event) : NULL;
    if (event) {
        atomic_store_explicit(&event->timeline.told_at, rg_now_ns(), memory_order_relaxed);
        note_done(event, subscription->position);
        rg_event_time_arrived(&event->timeline, &subscription->hint, done->ms);
    } else if (subscription->stream &&
               (!subscription->named || rg_handle_shadow(RG_KIND_STREAM, subscription->named))) {
        rg_timeline_raise(&subscription->stream->completed, subscription->position);
    }
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
        rg_subscription_done(session, &done, note_completed);
    }
    return true;
}
