/*
 * internal.h - what the scheduler's files share; schedule.h is what others use.
 *
 * schedule.c puts tasks into streams and has them wait for each other, executors.c runs what is ready, waits.c has threads wait.
 */
#ifndef SG_DRIVER_SCHEDULE_INTERNAL_H
#define SG_DRIVER_SCHEDULE_INTERNAL_H

#include "common/sync/wait_queue.h"
#include "softgpu/driver/schedule/schedule.h"

/** Hangs on the task that is waited for; exactly one of `task` and `thread` is set. A thread's is on its stack. */
struct sg_waiter {
    struct sg_waiter *next;
    struct sg_task *task;
    pthread_cond_t *thread;
    bool ended; /* what the thread waits for */
};

extern struct sg_scheduler {
    pthread_mutex_t lock;
    struct rg_wait_queue idle; /* executors */
    struct sg_stream *ready_head[SG_PRIORITIES], *ready_tail[SG_PRIORITIES];
    unsigned ready;    /* streams in the ready queues */
    unsigned woken;    /* executors that were idle and do not run yet */
    unsigned starting; /* executors made that do not run yet */
    unsigned executors;
    pthread_cond_t room;             /* a stream, or its context, has less queued than it may have */
    unsigned held;                   /* threads that wait for that */
    struct sg_context_work *at_work; /* of contexts with such streams */
    unsigned busy;                   /* streams with tasks queued or running */
    pthread_cond_t *resting;         /* a thread waits until there are none */
    uint64_t sequence;               /* of the task submitted last */
    struct sg_task *garbage;         /* tasks whose last use here is over; released without the lock */
} sg_scheduler;

extern __thread bool sg_executes; /* this thread is an executor */

static inline void sg_scheduler_lock(void)
{
    pthread_mutex_lock(&sg_scheduler.lock);
}

/** Then drops the tasks that were put aside as garbage, whose destructors may take other locks. */
void sg_scheduler_unlock(void);

/** Whether work of the stream is work of the context: a primary one's is that of its green contexts, too. */
static inline bool sg_stream_is_of(const struct sg_stream *stream, const struct sg_context *context)
{
    return stream->object.context == context || stream->object.context->owner == context;
}

/* All of these with the lock held. */

/** Ends marks at the head of the stream, and those that this unblocks elsewhere; queues streams that have work. */
void sg_advance(struct sg_stream *stream);
/** Runs the head of a stream that this thread has taken (`scheduled`), without the lock, and lets the stream go on. */
void sg_run_taken(struct sg_stream *stream);
/** Wakes or makes as many executors as there are ready streams beyond the `own` ones that the caller will take itself. */
void sg_wake_executors(unsigned own);
/** Sleeps until `task` has ended. Gives the lock up meanwhile: lists may have changed. */
void sg_wait_locked(struct sg_task *task);

#endif
