/*
 * executors.c - the threads that run what is ready, and what comes of a task that has ended. See schedule.h.
 *
 * An executor takes the stream that is first in the ready queue of the greatest priority, runs its head without the lock, marks it done,
 * unblocks tasks and threads that waited for it, and takes the next. What fails: a thread that cannot be made (with none at all, the
 * submitting thread runs the work itself).
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/thread.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/schedule/internal.h"

struct sg_scheduler sg_scheduler = {.lock = PTHREAD_MUTEX_INITIALIZER, .room = PTHREAD_COND_INITIALIZER};
__thread bool sg_executes;

void sg_scheduler_unlock(void)
{
    struct sg_task *garbage = sg_scheduler.garbage;
    sg_scheduler.garbage = NULL;
    pthread_mutex_unlock(&sg_scheduler.lock);
    while (garbage != NULL) {
        struct sg_task *next = garbage->next;
        garbage->next = NULL;
        sg_task_release(garbage);
        garbage = next;
    }
}

/* --- from here with the lock held --- */

/* No stream of the context has anything to do. */
static void rests(struct sg_context_work *work)
{
    if (work->previous != NULL)
        work->previous->next = work->next;
    else
        sg_scheduler.at_work = work->next;
    if (work->next != NULL)
        work->next->previous = work->previous;
}

static void busy_remove(struct sg_stream *stream)
{
    struct sg_context_work *work = &stream->object.context->owner->work;
    if (stream->busy_previous != NULL)
        stream->busy_previous->busy_next = stream->busy_next;
    else
        work->busy = stream->busy_next;
    if (stream->busy_next != NULL)
        stream->busy_next->busy_previous = stream->busy_previous;
    if (work->busy == NULL)
        rests(work);
    stream->busy = false;
    if (--sg_scheduler.busy == 0 && sg_scheduler.resting != NULL)
        pthread_cond_signal(sg_scheduler.resting);
}

static void ready_push(struct sg_stream *stream)
{
    int level = -stream->priority;
    stream->ready_next = NULL;
    if (sg_scheduler.ready_tail[level] != NULL)
        sg_scheduler.ready_tail[level]->ready_next = stream;
    else
        sg_scheduler.ready_head[level] = stream;
    sg_scheduler.ready_tail[level] = stream;
    sg_scheduler.ready++;
}

static struct sg_stream *ready_pop(void)
{
    for (int level = SG_PRIORITIES - 1; level >= 0; level--) {
        struct sg_stream *stream = sg_scheduler.ready_head[level];
        if (stream == NULL)
            continue;
        sg_scheduler.ready_head[level] = stream->ready_next;
        if (sg_scheduler.ready_head[level] == NULL)
            sg_scheduler.ready_tail[level] = NULL;
        sg_scheduler.ready--;
        return stream;
    }
    return NULL;
}

/* Whether to wake who waits for room: not for each task that ends, if the device has its usual length of queues. */
static bool has_room(const struct sg_stream *stream)
{
    return sg_behaviour()->queue > 0 || stream->queued <= SG_STREAM_ROOM / 2;
}

/*
 * Takes the ended head off its stream and tells those who waited; streams that may go on are put on *advance.
 */
static void end_head(struct sg_stream *stream, struct sg_stream **advance)
{
    struct sg_task *task = stream->head;
    stream->head = task->next;
    stream->queued--;
    stream->object.context->owner->work.queued--;
    if (sg_scheduler.held > 0 && has_room(stream))
        pthread_cond_broadcast(&sg_scheduler.room);
    if (stream->head == NULL) {
        stream->tail = NULL;
        busy_remove(stream);
    }
    task->done = true;
    task->done_at = rg_now_ns();
    struct sg_waiter *waiter = task->waiters;
    task->waiters = NULL;
    while (waiter != NULL) {
        struct sg_waiter *next = waiter->next;
        if (waiter->thread != NULL) {
            waiter->ended = true;
            pthread_cond_signal(waiter->thread);
        } else {
            struct sg_stream *blocked = waiter->task->stream;
            if (--waiter->task->blockers == 0 && blocked->head == waiter->task && !blocked->advancing) {
                blocked->advancing = true;
                blocked->advance_next = *advance;
                *advance = blocked;
            }
            free(waiter);
        }
        waiter = next;
    }
    task->next = sg_scheduler.garbage;
    sg_scheduler.garbage = task;
}

void sg_advance(struct sg_stream *stream)
{
    struct sg_stream *pending = stream;
    stream->advancing = true;
    stream->advance_next = NULL;
    while (pending != NULL) {
        struct sg_stream *current = pending;
        pending = current->advance_next;
        current->advancing = false;
        if (current->scheduled)
            continue;
        while (current->head != NULL && current->head->blockers == 0 && current->head->run == NULL)
            end_head(current, &pending);
        if (current->head != NULL && current->head->blockers == 0) {
            current->scheduled = true;
            ready_push(current);
        }
    }
}

static void run_head_unlocked(struct sg_stream *stream)
{
    struct sg_task *task = stream->head;
    sg_scheduler_unlock();
    sg_behave_late(sg_behaviour()->work_us);
    if (task->always || atomic_load(&stream->object.context->owner->sticky) == CUDA_SUCCESS)
        task->run(task);
    sg_scheduler_lock();
}

void sg_run_taken(struct sg_stream *stream)
{
    struct sg_stream *unblocked = NULL;
    run_head_unlocked(stream);
    end_head(stream, &unblocked);
    stream->scheduled = false;
    while (unblocked != NULL) {
        struct sg_stream *next = unblocked->advance_next;
        unblocked->advancing = false;
        sg_advance(unblocked);
        unblocked = next;
    }
    sg_advance(stream);
}

static void *executor(void *unused);

void sg_wake_executors(unsigned own)
{
    while (sg_scheduler.ready > own + sg_scheduler.woken + sg_scheduler.starting) {
        if (rg_wait_queue_wake_last(&sg_scheduler.idle)) { /* whose data is most likely still in a cache */
            sg_scheduler.woken++;
            continue;
        }
        if (sg_scheduler.executors >= SG_EXECUTORS_MAX)
            return;
        if (!rg_thread_start("softgpu", executor, NULL)) {
            if (sg_scheduler.executors == 0) {
                rg_warn("no thread for the device's work: running it in the caller");
                for (struct sg_stream *s; (s = ready_pop()) != NULL;)
                    sg_run_taken(s);
            }
            return;
        }
        sg_scheduler.executors++;
        sg_scheduler.starting++; /* it takes one when it runs */
    }
}

static void *executor(void *unused)
{
    (void)unused;
    rg_signals_allow_faults();
    sg_executes = true;
    sg_scheduler_lock();
    sg_scheduler.starting--;
    for (;;) {
        struct sg_stream *stream = ready_pop();
        if (stream == NULL) {
            sg_scheduler_unlock();
            sg_scheduler_lock();
            if (sg_scheduler.ready > 0)
                continue;
            rg_wait_queue_wait(&sg_scheduler.idle, &sg_scheduler.lock);
            sg_scheduler.woken--;
            continue;
        }
        sg_run_taken(stream);
        sg_wake_executors(1);
    }
    return NULL;
}
