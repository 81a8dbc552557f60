/*
 * schedule.c - tasks enter streams, and wait for what they must: see schedule.h.
 *
 * The happy path: sg_submit appends a task; if it may run, its stream enters the ready queue of its priority and a sleeping executor is
 * woken (or made). What fails: memory for a task (reported by sg_task_new), or for a note that it waits (the caller's thread waits
 * instead).
 */
#include <stdlib.h>

#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/schedule/internal.h"

/* --- with the lock held --- */

static void busy_add(struct sg_stream *stream)
{
    struct sg_context_work *work = &stream->object.context->owner->work;
    stream->busy = true;
    stream->busy_previous = NULL;
    stream->busy_next = work->busy;
    if (work->busy != NULL) {
        work->busy->busy_previous = stream;
    } else {
        work->previous = NULL;
        work->next = sg_scheduler.at_work;
        if (work->next != NULL)
            work->next->previous = work;
        sg_scheduler.at_work = work;
    }
    work->busy = stream;
    sg_scheduler.busy++;
}

/*
 * Makes `task`, not yet appended, wait for `on`. Without memory to note that, the caller's thread waits
 * instead: then false is returned, as the lock was given up and lists may have changed.
 */
static bool block_on(struct sg_task *task, struct sg_task *on)
{
    if (on->done)
        return true;
    struct sg_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        sg_wait_locked(on);
        return false;
    }
    waiter->task = task;
    waiter->next = on->waiters;
    on->waiters = waiter;
    task->blockers++;
    return true;
}

/* Behind the streams of the context, or those that synchronise with its legacy stream. */
static void block_on_context(struct sg_stream *stream, struct sg_task *task, struct sg_context *context,
                             bool blocking_only)
{
    const struct sg_context_work *work = &context->owner->work;
    struct sg_stream *s = work->busy;
    while (s != NULL) {
        const bool of =
            blocking_only ? s->blocking && s->object.context == context : sg_stream_is_of(s, context);
        if (s == stream || !of || block_on(task, s->tail))
            s = s->busy_next;
        else
            s = work->busy;
    }
}

/* The dependencies that the legacy default stream's rules demand of a task about to enter `stream`. */
static void block_by_default_stream(struct sg_stream *stream, struct sg_task *task)
{
    struct sg_stream *legacy = stream->object.context->legacy;
    if (stream->legacy)
        block_on_context(stream, task, stream->object.context, true);
    else if (stream->blocking && legacy->tail != NULL)
        block_on(task, legacy->tail);
}

static void append(struct sg_stream *stream, struct sg_task *task)
{
    task->stream = stream;
    task->sequence = ++sg_scheduler.sequence;
    sg_acquire(&stream->object);
    if (stream->tail != NULL)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
    stream->queued++;
    stream->object.context->owner->work.queued++;
    if (!stream->busy)
        busy_add(stream);
}

static void submit_locked(struct sg_stream *stream, struct sg_task *task, struct sg_task *after)
{
    if (after != NULL)
        block_on(task, after);
    block_by_default_stream(stream, task);
    append(stream, task);
}

/* --- the public side --- */

void sg_submit(struct sg_stream *stream, struct sg_task *task, struct sg_task *after)
{
    sg_scheduler_lock();
    submit_locked(stream, task, after);
    if (stream->head == task)
        sg_advance(stream);
    sg_wake_executors(0);
    sg_scheduler_unlock();
}

/* Whether nothing is before the task: then the caller may run it itself, which no GPU does. */
static bool may_run_here(const struct sg_stream *stream, const struct sg_task *task)
{
    return stream->head == task && task->blockers == 0 && task->run != NULL && !stream->scheduled &&
           !sg_behaviour()->nvidia;
}

void sg_submit_small(struct sg_stream *stream, struct sg_task *task)
{
    sg_scheduler_lock();
    submit_locked(stream, task, NULL);
    if (may_run_here(stream, task)) {
        stream->scheduled = true;
        sg_run_taken(stream);
    } else if (stream->head == task) {
        sg_advance(stream);
    }
    sg_wake_executors(0);
    sg_scheduler_unlock();
}

void sg_submit_behind_context(struct sg_stream *stream, struct sg_task *task, struct sg_context *context)
{
    sg_scheduler_lock();
    block_on_context(stream, task, context, false);
    submit_locked(stream, task, NULL);
    if (stream->head == task)
        sg_advance(stream);
    sg_wake_executors(0);
    sg_scheduler_unlock();
}

void sg_submit_wait(struct sg_stream *stream, struct sg_task *task)
{
    sg_task_acquire(task);
    sg_scheduler_lock();
    submit_locked(stream, task, NULL);
    if (may_run_here(stream, task)) {
        stream->scheduled = true;
        sg_run_taken(stream);
        sg_wake_executors(0);
    } else {
        if (stream->head == task)
            sg_advance(stream);
        sg_wake_executors(0);
        sg_wait_locked(task);
    }
    sg_scheduler_unlock();
    sg_task_release(task);
}
