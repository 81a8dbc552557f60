/* pace.c - see pace.h. */
#include "client/timeline/pace.h"

#include "client/core/home.h"
#include "client/core/probe.h"
#include "client/core/receiver.h"
#include "client/timeline/internal.h"
#include "common/base/clock.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"
#include "generated/client/operations.h"

#include <limits.h>

/* RG_PACE_STEPS of them, and as many marks, are what a driver has room for (softgpu/driver/schedule/schedule.h, SG_STREAM_ROOM). */
#define STEP_LEAST 100
#define STEP_MOST  (1 << 16)
/* A turn of marks takes so many times the quickest answer, and a moment. */
#define TURN_LEAST     2
#define TURN_MOST      8
#define TURN_MOMENT_NS 1000000ull
#define PAUSE_LEAST_NS 20000u
#define PAUSE_MOST_NS  500000u

atomic_uint rg_pace_gates;

/* Has the worker tell when the stream has done all that it has now. False: it cannot be told. */
static bool set_mark(struct rg_pace *pace, struct rg_context *context)
{
    struct rg_session *session = context->session;
    const unsigned number = pace->turn % RG_PACE_STEPS;
    const bool created = !rg_stream_is_default(pace->stream);
    const uint64_t position = rg_timeline_position(session);
    uint64_t handle, id = 0;
    if (!session->op_numbers[created ? RG_OP_rgStreamWatch : RG_OP_rgDefaultStreamWatch])
        return false;
    (void)rg_timeline_of_stream(pace->stream, 0, &handle); /* a thread's own is this context's from now on */
    rg_subscriptions_lock();
    struct rg_stream_timeline *timeline = rg_timeline_of_stream(pace->stream, 0, &handle);
    if (timeline && handle == pace->context) {
        const struct rg_subscription wanted = {.context = handle,
                                               .stream = timeline,
                                               .named = created ? (uint64_t)pace->stream : 0,
                                               .position = position};
        atomic_store_explicit(&timeline->marked, true, memory_order_relaxed);
        id = rg_subscribe_locked(session, &pace->marks[number].subscriber, &wanted);
    }
    rg_subscriptions_unlock();
    if (!id)
        return false;
    const CUresult status = created ? rg_op_rgStreamWatch(pace->stream, id, rg_home_of_session(session))
                                    : rg_op_rgDefaultStreamWatch(pace->stream, id);
    if (status != CUDA_SUCCESS) {
        rg_unsubscribe(session, id);
        return false;
    }
    pace->marks[number].position = position;
    pace->marks[number].calls = pace->calls;
    return true;
}

/* Whether the stream has done all up to the position, by what has come so far. */
static bool reached(const struct rg_pace *pace, const struct rg_context *context, uint64_t position)
{
    uint64_t handle;
    const struct rg_stream_timeline *timeline = rg_timeline_of_stream(pace->stream, 0, &handle);
    return timeline && handle == pace->context && rg_timeline_stream_reached(context, timeline, position);
}

/* Takes note of the marks that the stream has come to, and of those that nothing will be told of. */
static void look(struct rg_pace *pace, const struct rg_context *context)
{
    for (unsigned i = 0; i < RG_PACE_STEPS; i++) {
        const uint64_t position = pace->marks[i].position;
        if (!position)
            continue;
        const bool due = rg_subscription_due(context->session, &pace->marks[i].subscriber);
        if (!reached(pace, context, position) && due)
            continue;
        pace->marks[i].position = 0;
        if (pace->done < pace->marks[i].calls)
            pace->done = pace->marks[i].calls;
    }
}

/* Whether there is no room for another step, which may be somewhat longer than it should, where other things than launches end it. */
static bool is_far_ahead(const struct rg_pace *pace)
{
    return pace->calls - pace->done > (uint64_t)pace->step * (RG_PACE_STEPS - 1);
}

/* Where this thread is ahead, the device shall never run dry, and have no more than it takes for that. */
static void adapt(struct rg_pace *pace, const struct rg_session *session)
{
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed),
                   waited = pace->waited_ns;
    pace->waited_ns = 0;
    if (waited && pace->done > pace->gated && waited < TURN_LEAST * quickest + TURN_MOMENT_NS &&
        pace->step < STEP_MOST)
        pace->step *= 2;
    else if (waited > TURN_MOST * (quickest + TURN_MOMENT_NS) && pace->step > STEP_LEAST)
        pace->step /= 2;
}

/* Until the last mark, that of this step's end, at the latest. */
static void wait_for_device(struct rg_pace *pace, struct rg_context *context)
{
    RG_UNCANCELLED;
    const uint64_t began = rg_now_ns(), probe = rg_probe_wait();
    for (uint64_t pause = PAUSE_LEAST_NS; is_far_ahead(pace) && rg_timeline_told_of(pace->context);) {
        rg_pause(pause);
        pause = pause < PAUSE_MOST_NS ? pause * 2 : pause;
        rg_receiver_poll(context->session);
        look(pace, context);
    }
    rg_probe_waited(probe, 0);
    pace->waited_ns += rg_now_ns() - began;
}

static void end_step(struct rg_pace *pace, struct rg_context *context)
{
    if (pace->turn % RG_PACE_STEPS == 0) {
        adapt(pace, context->session);
        pace->alone = !rg_thread_has_others();
    }
    pace->turn++;
    if (pace->alone) {
        pace->done = pace->calls;
        return;
    }
    look(pace, context);
    /* A program that waits for its work by itself, more than once in a step, needs no marks. A step of more calls than there is room
     * for, as copies and records of events make it, does: who waits below must have one to wait for. */
    const bool waits = pace->ends[0] && reached(pace, context, pace->ends[0]);
    if (waits && pace->done < pace->ends[1])
        pace->done = pace->ends[1];
    if ((!waits || is_far_ahead(pace)) && !set_mark(pace, context))
        pace->done = pace->calls;
    pace->ends[0] = rg_timeline_position(context->session);
    pace->ends[1] = pace->calls;
    if (!is_far_ahead(pace))
        return;
    rg_receiver_poll(context->session);
    look(pace, context);
    if (is_far_ahead(pace))
        wait_for_device(pace, context);
}

/*
 * Whether there has been a gate, and what is behind it has to be counted anew: what was put before it is done whether or not it opens.
 * Where steps are the least, no more can be in the stream than there is room for, and they stay so until something behind it is done.
 */
static bool pass_gate(struct rg_pace *pace)
{
    const unsigned gates = atomic_load_explicit(&rg_pace_gates, memory_order_relaxed);
    if (pace->gates == gates)
        return false;
    pace->gates = gates;
    pace->gated = pace->calls + (uint64_t)(pace->step - pace->left);
    return pace->step > STEP_LEAST;
}

void rg_pace_step(struct rg_pace *pace, CUstream stream, uint64_t handle)
{
    struct rg_context *context = rg_timeline_told_of(handle);
    if (pace->left > STEP_MOST)
        return; /* a signal handler's, within end_step */
    if (pace->stream != stream || pace->context != handle || !pace->step || pass_gate(pace)) {
        *pace = (struct rg_pace){.stream = stream, .context = handle, .step = STEP_LEAST, .left = STEP_LEAST};
        (void)pass_gate(pace);
        return;
    }
    if (pace->left > 0)
        return;
    if (context) {
        pace->calls += (uint64_t)(pace->step - pace->left);
        pace->left = INT_MAX; /* what a signal handler launches meanwhile ends no step */
        end_step(pace, context);
    }
    pace->left = pace->step;
}
