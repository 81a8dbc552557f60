/*
 * schedule.c - the scheduler: see schedule.h.
 *
 * The happy path: sg_submit appends a task; if it may run, its stream enters the ready queue of its priority
 * and a sleeping executor is woken (or made). The executor runs the head, marks it done, unblocks tasks and
 * threads that waited for it, and takes the next ready stream. What fails: memory for a task (reported by
 * sg_task_new), a thread that cannot be made (with none at all, the submitting thread runs the work itself).
 */
#include <signal.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"
#include "common/sync/wait_queue.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/schedule/schedule.h"

/* A thread that sleeps until `outstanding` tasks have ended. */
struct thread_wait {
    pthread_cond_t ended;
    unsigned outstanding;
};

/* Hangs on the task that is waited for; exactly one of `task` and `thread` is set. */
struct sg_waiter {
    struct sg_waiter *next;
    struct sg_task *task;
    struct thread_wait *thread;
};

static struct {
    pthread_mutex_t lock;
    struct rg_wait_queue idle; /* executors */
    struct sg_stream *ready_head[SG_PRIORITIES], *ready_tail[SG_PRIORITIES];
    unsigned ready;    /* streams in the ready queues */
    unsigned woken;    /* executors that were idle and do not run yet */
    unsigned starting; /* executors made that do not run yet */
    unsigned executors;
    unsigned held;           /* threads that wait for room in a context's queue */
    unsigned busy;           /* streams with tasks queued or running */
    pthread_cond_t *resting; /* a thread waits until there are none */
    uint64_t sequence;       /* of the task submitted last */
    struct sg_task *garbage; /* tasks whose last use here is over; released without the lock */
} scheduler = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_cond_t room = PTHREAD_COND_INITIALIZER; /* a context has less queued than it may have */
static __thread bool executes;                         /* this thread is an executor */

static void lock(void)
{
    pthread_mutex_lock(&scheduler.lock);
}

static void unlock(void)
{
    struct sg_task *garbage = scheduler.garbage;
    scheduler.garbage = NULL;
    pthread_mutex_unlock(&scheduler.lock);
    while (garbage != NULL) {
        struct sg_task *next = garbage->next;
        garbage->next = NULL;
        sg_task_release(garbage);
        garbage = next;
    }
}

/* --- everything from here to executors runs with the lock held --- */

static void busy_add(struct sg_stream *stream)
{
    struct sg_context_work *work = &stream->object.context->work;
    stream->busy = true;
    stream->busy_previous = NULL;
    stream->busy_next = work->busy;
    if (work->busy != NULL)
        work->busy->busy_previous = stream;
    work->busy = stream;
    scheduler.busy++;
}

static void busy_remove(struct sg_stream *stream)
{
    struct sg_context_work *work = &stream->object.context->work;
    if (stream->busy_previous != NULL)
        stream->busy_previous->busy_next = stream->busy_next;
    else
        work->busy = stream->busy_next;
    if (stream->busy_next != NULL)
        stream->busy_next->busy_previous = stream->busy_previous;
    stream->busy = false;
    if (--scheduler.busy == 0 && scheduler.resting != NULL)
        pthread_cond_signal(scheduler.resting);
}

static void ready_push(struct sg_stream *stream)
{
    int level = -stream->priority;
    stream->ready_next = NULL;
    if (scheduler.ready_tail[level] != NULL)
        scheduler.ready_tail[level]->ready_next = stream;
    else
        scheduler.ready_head[level] = stream;
    scheduler.ready_tail[level] = stream;
    scheduler.ready++;
}

static struct sg_stream *ready_pop(void)
{
    for (int level = SG_PRIORITIES - 1; level >= 0; level--) {
        struct sg_stream *stream = scheduler.ready_head[level];
        if (stream == NULL)
            continue;
        scheduler.ready_head[level] = stream->ready_next;
        if (scheduler.ready_head[level] == NULL)
            scheduler.ready_tail[level] = NULL;
        scheduler.ready--;
        return stream;
    }
    return NULL;
}

/*
 * Takes the ended head off its stream and tells those who waited; streams that may go on are put on *advance.
 */
static void end_head(struct sg_stream *stream, struct sg_stream **advance)
{
    struct sg_task *task = stream->head;
    stream->head = task->next;
    if (--stream->object.context->work.queued < sg_behaviour()->queue && scheduler.held > 0)
        pthread_cond_broadcast(&room);
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
            if (--waiter->thread->outstanding == 0)
                pthread_cond_signal(&waiter->thread->ended);
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
    task->next = scheduler.garbage;
    scheduler.garbage = task;
}

/* Ends marks at the head of the stream, and those that this unblocks elsewhere; queues streams that have
 * work. */
static void advance(struct sg_stream *stream)
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

static void wait_start(struct thread_wait *wait)
{
    pthread_cond_init(&wait->ended, NULL);
    wait->outstanding = 0;
}

static void wait_add(struct thread_wait *wait, struct sg_waiter *waiter, struct sg_task *task)
{
    waiter->task = NULL;
    waiter->thread = wait;
    waiter->next = task->waiters;
    task->waiters = waiter;
    wait->outstanding++;
}

static void wait_end(struct thread_wait *wait)
{
    RG_UNCANCELLED;
    while (wait->outstanding > 0)
        pthread_cond_wait(&wait->ended, &scheduler.lock);
    pthread_cond_destroy(&wait->ended);
}

/* Sleeps until `task` has ended. Gives the lock up meanwhile. */
static void wait_for(struct sg_task *task)
{
    struct thread_wait wait;
    struct sg_waiter waiter;
    if (task->done)
        return;
    wait_start(&wait);
    wait_add(&wait, &waiter, task);
    wait_end(&wait);
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
        wait_for(on);
        return false;
    }
    waiter->task = task;
    waiter->next = on->waiters;
    on->waiters = waiter;
    task->blockers++;
    return true;
}

static void block_on_context(struct sg_stream *stream, struct sg_task *task, struct sg_context *context,
                             bool blocking_only)
{
    struct sg_stream *s = context->work.busy;
    while (s != NULL)
        if (s == stream || (blocking_only && !s->blocking) || block_on(task, s->tail))
            s = s->busy_next;
        else
            s = context->work.busy;
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
    task->sequence = ++scheduler.sequence;
    sg_acquire(&stream->object);
    if (stream->tail != NULL)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
    stream->object.context->work.queued++;
    if (!stream->busy)
        busy_add(stream);
}

static void run_head_unlocked(struct sg_stream *stream)
{
    struct sg_task *task = stream->head;
    unlock();
    sg_behave_late(sg_behaviour()->work_us);
    if (task->always || atomic_load(&stream->object.context->sticky) == CUDA_SUCCESS)
        task->run(task);
    lock();
}

/* Runs the head of a stream that this thread has taken, and lets the stream go on. */
static void run_taken(struct sg_stream *stream)
{
    struct sg_stream *unblocked = NULL;
    run_head_unlocked(stream);
    end_head(stream, &unblocked);
    stream->scheduled = false;
    while (unblocked != NULL) {
        struct sg_stream *next = unblocked->advance_next;
        unblocked->advancing = false;
        advance(unblocked);
        unblocked = next;
    }
    advance(stream);
}

static void *executor(void *unused);

/*
 * Wakes as many executors as there are ready streams beyond the `own` ones that the caller will take itself.
 */
static void wake(unsigned own)
{
    while (scheduler.ready > own + scheduler.woken + scheduler.starting) {
        if (rg_wait_queue_wake_last(&scheduler.idle)) { /* whose data is most likely still in a cache */
            scheduler.woken++;
            continue;
        }
        if (scheduler.executors >= SG_EXECUTORS_MAX)
            return;
        if (!rg_thread_start("softgpu", executor, NULL)) {
            if (scheduler.executors == 0) {
                rg_warn("no thread for the device's work: running it in the caller");
                for (struct sg_stream *s; (s = ready_pop()) != NULL;)
                    run_taken(s);
            }
            return;
        }
        scheduler.executors++;
        scheduler.starting++; /* it takes one when it runs */
    }
}

static void *executor(void *unused)
{
    (void)unused;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigaddset(&set, faults[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    executes = true;
    lock();
    scheduler.starting--;
    for (;;) {
        struct sg_stream *stream = ready_pop();
        if (stream == NULL) {
            unlock();
            lock();
            if (scheduler.ready > 0)
                continue;
            rg_wait_queue_wait(&scheduler.idle, &scheduler.lock);
            scheduler.woken--;
            continue;
        }
        run_taken(stream);
        wake(1);
    }
    return NULL;
}

/* --- the public side --- */

static void submit_locked(struct sg_stream *stream, struct sg_task *task, struct sg_task *after)
{
    if (after != NULL)
        block_on(task, after);
    block_by_default_stream(stream, task);
    append(stream, task);
}

void sg_submit(struct sg_stream *stream, struct sg_task *task, struct sg_task *after)
{
    lock();
    submit_locked(stream, task, after);
    if (stream->head == task)
        advance(stream);
    wake(0);
    unlock();
}

/* Whether nothing is before the task: then the caller may run it itself, which no GPU does. */
static bool may_run_here(const struct sg_stream *stream, const struct sg_task *task)
{
    return stream->head == task && task->blockers == 0 && task->run != NULL && !stream->scheduled &&
           !sg_behaviour()->nvidia;
}

void sg_submit_small(struct sg_stream *stream, struct sg_task *task)
{
    lock();
    submit_locked(stream, task, NULL);
    if (may_run_here(stream, task)) {
        stream->scheduled = true;
        run_taken(stream);
    } else if (stream->head == task) {
        advance(stream);
    }
    wake(0);
    unlock();
}

void sg_submit_behind_context(struct sg_stream *stream, struct sg_task *task, struct sg_context *context)
{
    lock();
    block_on_context(stream, task, context, false);
    submit_locked(stream, task, NULL);
    if (stream->head == task)
        advance(stream);
    wake(0);
    unlock();
}

void sg_submit_wait(struct sg_stream *stream, struct sg_task *task)
{
    sg_task_acquire(task);
    lock();
    submit_locked(stream, task, NULL);
    if (may_run_here(stream, task)) {
        stream->scheduled = true;
        run_taken(stream);
        wake(0);
    } else {
        if (stream->head == task)
            advance(stream);
        wake(0);
        wait_for(task);
    }
    unlock();
    sg_task_release(task);
}

void sg_wait_for_room(struct sg_context *context)
{
    const unsigned most = sg_behaviour()->queue;
    if (most == 0 || executes) /* what an executor launches is a part of the work that it runs */
        return;
    RG_UNCANCELLED;
    lock();
    scheduler.held++;
    while (context->work.queued >= most)
        pthread_cond_wait(&room, &scheduler.lock);
    scheduler.held--;
    unlock();
}

bool sg_task_done(struct sg_task *task)
{
    lock();
    bool done = task->done;
    unlock();
    return done;
}

uint64_t sg_task_done_at(struct sg_task *task)
{
    lock();
    uint64_t at = task->done ? task->done_at : 0;
    unlock();
    return at;
}

void sg_task_wait(struct sg_task *task)
{
    lock();
    wait_for(task);
    unlock();
}

bool sg_stream_idle(struct sg_stream *stream)
{
    lock();
    bool idle = stream->head == NULL;
    unlock();
    return idle;
}

void sg_stream_wait(struct sg_stream *stream)
{
    lock();
    if (stream->tail != NULL)
        wait_for(stream->tail);
    unlock();
}

bool sg_wait_for_rest(uint64_t deadline)
{
    pthread_cond_t resting;
    const struct timespec until = rg_timespec(deadline == UINT64_MAX ? 0 : deadline);
    bool in_time = true;
    RG_UNCANCELLED;
    rg_cond_init(&resting);
    lock();
    scheduler.resting = &resting;
    while (scheduler.busy > 0 && in_time) {
        if (deadline == UINT64_MAX)
            pthread_cond_wait(&resting, &scheduler.lock);
        else
            in_time = pthread_cond_timedwait(&resting, &scheduler.lock, &until) == 0;
    }
    scheduler.resting = NULL;
    const bool rests = scheduler.busy == 0;
    unlock();
    pthread_cond_destroy(&resting);
    return rests;
}

void sg_context_wait(struct sg_context *context)
{
    lock();
    uint64_t limit = scheduler.sequence;
    struct sg_stream *s = context->work.busy;
    while (s != NULL) {
        if (s->head->sequence > limit) {
            s = s->busy_next;
            continue;
        }
        struct sg_task *last = s->tail;
        if (last->sequence > limit)
            for (last = s->head; last->next->sequence <= limit;)
                last = last->next;
        wait_for(last);
        s = context->work.busy;
    }
    unlock();
}
