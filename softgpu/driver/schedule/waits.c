/*
 * waits.c - threads that wait for tasks, streams, contexts, room in a queue, or rest. See schedule.h.
 */
#include "common/base/clock.h"
#include "common/base/uncancelled.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/schedule/internal.h"

void sg_wait_locked(struct sg_task *task)
{
    if (task->done)
        return;
    RG_UNCANCELLED;
    pthread_cond_t ended;
    struct sg_waiter waiter = {.next = task->waiters, .thread = &ended};
    pthread_cond_init(&ended, NULL);
    task->waiters = &waiter;
    while (!waiter.ended)
        pthread_cond_wait(&ended, &sg_scheduler.lock);
    pthread_cond_destroy(&ended);
}

static bool full(const struct sg_stream *stream)
{
    const unsigned most = sg_behaviour()->queue; /* of the context */
    return stream->queued >= SG_STREAM_ROOM ||
           (most > 0 && stream->object.context->owner->work.queued >= most);
}

void sg_wait_for_room(struct sg_stream *stream)
{
    if (sg_executes) /* what an executor launches is a part of the work that it runs */
        return;
    RG_UNCANCELLED;
    sg_scheduler_lock();
    sg_scheduler.held++;
    while (full(stream))
        pthread_cond_wait(&sg_scheduler.room, &sg_scheduler.lock);
    sg_scheduler.held--;
    sg_scheduler_unlock();
}

void sg_wait_to_load(struct sg_context *context)
{
    if (sg_behaviour()->lazy && !sg_executes)
        sg_context_wait(context);
}

bool sg_task_done(struct sg_task *task)
{
    sg_scheduler_lock();
    bool done = task->done;
    sg_scheduler_unlock();
    return done;
}

uint64_t sg_task_done_at(struct sg_task *task)
{
    sg_scheduler_lock();
    uint64_t at = task->done ? task->done_at : 0;
    sg_scheduler_unlock();
    return at;
}

void sg_task_wait(struct sg_task *task)
{
    sg_scheduler_lock();
    sg_wait_locked(task);
    sg_scheduler_unlock();
}

bool sg_stream_idle(struct sg_stream *stream)
{
    sg_scheduler_lock();
    bool idle = stream->head == NULL;
    sg_scheduler_unlock();
    return idle;
}

void sg_stream_wait(struct sg_stream *stream)
{
    sg_scheduler_lock();
    if (stream->tail != NULL)
        sg_wait_locked(stream->tail);
    sg_scheduler_unlock();
}

bool sg_wait_for_rest(uint64_t deadline)
{
    pthread_cond_t resting;
    const struct timespec until = rg_timespec(deadline == UINT64_MAX ? 0 : deadline);
    bool in_time = true;
    RG_UNCANCELLED;
    rg_cond_init(&resting);
    sg_scheduler_lock();
    sg_scheduler.resting = &resting;
    while (sg_scheduler.busy > 0 && in_time) {
        if (deadline == UINT64_MAX)
            pthread_cond_wait(&resting, &sg_scheduler.lock);
        else
            in_time = pthread_cond_timedwait(&resting, &sg_scheduler.lock, &until) == 0;
    }
    sg_scheduler.resting = NULL;
    const bool rests = sg_scheduler.busy == 0;
    sg_scheduler_unlock();
    pthread_cond_destroy(&resting);
    return rests;
}

/*
 * Waits for what was submitted up to `limit`: of one stream (of `context`; NULL: of any), as the lists may have changed then.
 * False: nothing was left. Lock held.
 */
static bool wait_for_one(const struct sg_context_work *work, const struct sg_context *context, uint64_t limit)
{
    for (const struct sg_stream *s = work->busy; s != NULL; s = s->busy_next) {
        if (s->head->sequence > limit || (context != NULL && !sg_stream_is_of(s, context)))
            continue;
        struct sg_task *last = s->tail;
        if (last->sequence > limit)
            for (last = s->head; last->next->sequence <= limit;)
                last = last->next;
        sg_wait_locked(last);
        return true;
    }
    return false;
}

void sg_context_wait(struct sg_context *context)
{
    sg_scheduler_lock();
    uint64_t limit = sg_scheduler.sequence;
    while (wait_for_one(&context->owner->work, context, limit))
        ;
    sg_scheduler_unlock();
}

bool sg_context_idle(struct sg_context *context)
{
    sg_scheduler_lock();
    const bool idle = context->owner->work.busy == NULL; /* of its green contexts, too */
    sg_scheduler_unlock();
    return idle;
}

static bool wait_for_one_of_all(uint64_t limit)
{
    for (const struct sg_context_work *work = sg_scheduler.at_work; work != NULL; work = work->next)
        if (wait_for_one(work, NULL, limit))
            return true;
    return false;
}

void sg_all_wait(void)
{
    sg_scheduler_lock();
    uint64_t limit = sg_scheduler.sequence;
    while (wait_for_one_of_all(limit))
        ;
    sg_scheduler_unlock();
}
