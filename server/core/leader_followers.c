/*
 * leader_followers.c - passing the roles, the main loop of the pool's threads, and batches that wait for the dispatcher
 * (reading messages: receive.c). See leader_followers.h.
 */
#include "server/core/leader_followers.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "proto/delta.h"
#include "server/core/receive.h"

#include <stdlib.h>
#include <string.h>

#define SLOW_WAIT_NS 20000000 /* a reader whose queue is long waits so long for the dispatcher */

/* A batch that was copied, because the thread that executes records is not the one that reads. */
struct rg_queued_batch {
    struct rg_queued_batch *next;
    struct rg_batch_cursor cursor;
    size_t size;
    unsigned char data[];
};

/* --- the pool ------------------------------------------------------------------------------------------- */

static void *executor_main(void *arg);

/* A thread without roles, taken from those that are idle or made; NULL: none to be had. The lock is held. */
static struct rg_executor *take_executor(struct rg_worker *worker, unsigned roles)
{
    struct rg_executor *executor = worker->idle;
    if (executor) {
        worker->idle = executor->next_idle;
        executor->roles = roles;
        pthread_cond_signal(&executor->wake);
        return executor;
    }
    executor = calloc(1, sizeof *executor);
    if (!executor)
        return NULL;
    executor->worker = worker;
    executor->roles = roles;
    pthread_cond_init(&executor->wake, NULL);
    if (rg_thread_create(&executor->id, "rg-worker", executor_main, executor) != RG_OK) {
        pthread_cond_destroy(&executor->wake);
        free(executor);
        return NULL;
    }
    executor->next = worker->executors;
    worker->executors = executor;
    worker->n_executors++;
    return executor;
}

void rg_leader_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->roles, NULL);
    rg_cond_init(&worker->queue_changed);
    worker->queue_last = &worker->queue;
    worker->next_seq = 1;
}

enum rg_status rg_leader_start(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&worker->roles);
    struct rg_executor *executor = take_executor(worker, RG_ROLES_ALL);
    return executor ? RG_OK : RG_ERR_NO_MEMORY;
}

void rg_leader_wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&worker->roles);
    for (struct rg_executor *executor = worker->executors; executor; executor = executor->next)
        pthread_cond_signal(&executor->wake);
    pthread_cond_broadcast(&worker->queue_changed);
}

void rg_leader_fini(struct rg_worker *worker)
{
    /* The session is over, so no thread is made any more and every one comes to its end. */
    for (struct rg_executor *executor = worker->executors; executor; executor = executor->next)
        pthread_join(executor->id, NULL);
    for (struct rg_executor *executor = worker->executors; executor;) {
        struct rg_executor *next = executor->next;
        pthread_cond_destroy(&executor->wake);
        free(executor);
        executor = next;
    }
    free(worker->cursor.owner);
    rg_delta_destroy(worker->delta);
    while (worker->queue) {
        struct rg_queued_batch *queued = worker->queue;
        worker->queue = queued->next;
        free(queued);
    }
    pthread_cond_destroy(&worker->queue_changed);
    pthread_mutex_destroy(&worker->roles);
}

bool rg_leader_promote(struct rg_executor *executor)
{
    struct rg_worker *worker = executor->worker;
    RG_SCOPED_LOCK(&worker->roles);
    const bool room = worker->idle || worker->n_executors < RG_EXECUTORS_MAX;
    bool given = room && !rg_worker_over(worker) && take_executor(worker, executor->roles) != NULL;
    if (given)
        executor->roles = 0;
    return given;
}

/* --- batches that are copied ---------------------------------------------------------------------------- */

/* Copies what is left of a cursor, with its bulk data. NULL: out of memory or the connection failed. */
static struct rg_queued_batch *copy_rest(struct rg_worker *worker, const struct rg_batch_cursor *cursor)
{
    const size_t records = (size_t)(cursor->end - cursor->at), rounded = (records + 15) & ~(size_t)15;
    struct rg_queued_batch *copy = malloc(sizeof *copy + rounded + cursor->bulk_left);
    if (!copy) {
        rg_worker_end(worker, 1, "the worker is out of memory");
        return NULL;
    }
    memcpy(copy->data, cursor->at, records);
    copy->next = NULL;
    copy->size = sizeof *copy + rounded + cursor->bulk_left;
    copy->cursor = *cursor;
    copy->cursor.at = copy->data;
    copy->cursor.end = copy->data + records;
    copy->cursor.owner = copy;
    copy->cursor.bulk = copy->data + rounded;
    if (cursor->bulk_left && cursor->bulk) {
        memcpy(copy->data + rounded, cursor->bulk, cursor->bulk_left);
    } else if (cursor->bulk_left &&
               rg_conn_recv_bulk(worker->conn, copy->data + rounded, cursor->bulk_left) != RG_OK) {
        rg_worker_end(worker, 0, NULL);
        free(copy);
        return NULL;
    }
    return copy;
}

bool rg_leader_separate_reader(struct rg_executor *executor)
{
    struct rg_worker *worker = executor->worker;
    if (executor->roles != RG_ROLES_ALL)
        return true;
    struct rg_batch_cursor *cursor = &worker->cursor;
    if (!cursor->owner && (cursor->left || cursor->bulk_left)) {
        struct rg_queued_batch *copy = copy_rest(worker, cursor);
        if (!copy)
            return false;
        *cursor = copy->cursor;
    }
    pthread_mutex_lock(&worker->roles);
    bool separated = !rg_worker_over(worker) && take_executor(worker, RG_ROLE_READ) != NULL;
    if (separated) {
        executor->roles = RG_ROLE_DISPATCH;
        worker->separated = true;
    }
    pthread_mutex_unlock(&worker->roles);
    if (!separated)
        rg_worker_end(worker, 1, "the worker could not start a thread");
    return separated;
}

/*
 * Waits until the queue is short, or for a moment: the dispatcher may wait for what is still to be read. If it waits for the
 * session's turn on the device, and the client owes no answer, it does not: then the client is to wait as well.
 */
static void slow_down(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&worker->roles);
    while (worker->queue_bytes > RG_QUEUE_SLOW && !rg_worker_over(worker)) {
        const struct timespec time = rg_timespec(rg_now_ns() + SLOW_WAIT_NS);
        if (pthread_cond_timedwait(&worker->queue_changed, &worker->roles, &time) != 0 &&
            !(atomic_load(&worker->gated) && atomic_load(&worker->answers_due) == 0))
            break;
    }
}

/* A batch for a reader that is not the dispatcher: becomes it if that one has nothing to do, or queues. */
static void take_batch(struct rg_executor *executor, const struct rg_batch_cursor *cursor)
{
    struct rg_worker *worker = executor->worker;
    pthread_mutex_lock(&worker->roles);
    if (worker->dispatcher_idle && !worker->queue && atomic_load(&worker->answers_due) == 0) {
        worker->dispatcher_idle->roles = 0;
        worker->dispatcher_idle = NULL;
        pthread_cond_broadcast(&worker->queue_changed);
        executor->roles = RG_ROLES_ALL;
        worker->separated = false;
        worker->cursor = *cursor;
        pthread_mutex_unlock(&worker->roles);
        return;
    }
    pthread_mutex_unlock(&worker->roles);
    struct rg_queued_batch *copy = copy_rest(worker, cursor);
    if (!copy)
        return;
    pthread_mutex_lock(&worker->roles);
    *worker->queue_last = copy;
    worker->queue_last = &copy->next;
    worker->queue_bytes += copy->size;
    const size_t bytes = worker->queue_bytes;
    pthread_cond_broadcast(&worker->queue_changed);
    pthread_mutex_unlock(&worker->roles);
    if (bytes > RG_QUEUE_MAX)
        rg_worker_end(worker, 1,
                      "too much work was sent while a host function or a copy from the host was waited for");
    else if (bytes > RG_QUEUE_SLOW)
        slow_down(worker);
}

/* A dispatcher without records that is not the reader: waits for the queue, or until the role is taken. */
static void wait_for_queue(struct rg_executor *executor)
{
    struct rg_worker *worker = executor->worker;
    rg_dispatch_report_failure(worker);
    RG_SCOPED_LOCK(&worker->roles);
    while (!worker->queue && executor->roles && !rg_worker_over(worker)) {
        worker->dispatcher_idle = executor;
        pthread_cond_wait(&worker->queue_changed, &worker->roles);
    }
    if (executor->roles && worker->queue) {
        struct rg_queued_batch *queued = worker->queue;
        worker->queue = queued->next;
        if (!worker->queue)
            worker->queue_last = &worker->queue;
        worker->queue_bytes -= queued->size;
        worker->cursor = queued->cursor;
        pthread_cond_broadcast(&worker->queue_changed);
    }
    if (worker->dispatcher_idle == executor)
        worker->dispatcher_idle = NULL;
}

/* --- the main loop -------------------------------------------------------------------------------------- */

static void drop_batch_memory(struct rg_worker *worker)
{
    struct rg_batch_cursor *cursor = &worker->cursor;
    if (!cursor->left && !cursor->bulk_left && cursor->owner) {
        free(cursor->owner);
        memset(cursor, 0, sizeof *cursor);
    }
}

/* Whether an answer of the client may have to be read while the next record is executed. */
static bool answers_may_come(struct rg_worker *worker)
{
    return atomic_load_explicit(&worker->answers_due, memory_order_relaxed) ||
           (atomic_load_explicit(&worker->answers_unasked, memory_order_relaxed) &&
            rg_dispatch_next_blocks(worker));
}

/* True: *batch has come. False: an answer, or the session has been ended. */
static bool read_batch(struct rg_executor *executor, struct rg_batch_cursor *batch)
{
    struct rg_worker *worker = executor->worker;
    const char *wrong;
    /* a dispatcher that has something to report does so before it sleeps */
    const bool reports = (executor->roles & RG_ROLE_DISPATCH) && worker->failed != CUDA_SUCCESS;
    enum rg_received received = rg_receive(worker, reports ? 0 : -1, batch, &wrong);
    if (received == RG_RECEIVED_NOTHING) {
        rg_dispatch_report_failure(worker);
        received = rg_receive(worker, -1, batch, &wrong);
    }
    if (received == RG_RECEIVED_WRONG)
        rg_worker_end(worker, 1, "%s", wrong);
    else if (received == RG_RECEIVED_END)
        rg_worker_end(worker, 0, NULL);
    return received == RG_RECEIVED_BATCH;
}

static void work(struct rg_executor *executor)
{
    struct rg_worker *worker = executor->worker;
    struct rg_batch_cursor batch;
    while (executor->roles && !rg_worker_over(worker)) {
        if (!(executor->roles & RG_ROLE_DISPATCH)) {
            if (read_batch(executor, &batch))
                take_batch(executor, &batch);
        } else if (worker->cursor.left) {
            if (executor->roles == RG_ROLES_ALL && answers_may_come(worker) &&
                !rg_leader_separate_reader(executor))
                return;
            rg_dispatch_next(worker, executor);
        } else {
            drop_batch_memory(worker);
            if (!(executor->roles & RG_ROLE_READ))
                wait_for_queue(executor);
            else if (read_batch(executor, &batch))
                worker->cursor = batch;
        }
    }
}

static void *executor_main(void *arg)
{
    struct rg_executor *executor = arg;
    struct rg_worker *worker = executor->worker;
    pthread_mutex_lock(&worker->roles);
    for (;;) {
        while (!executor->roles && !rg_worker_over(worker))
            pthread_cond_wait(&executor->wake, &worker->roles);
        if (rg_worker_over(worker))
            break;
        pthread_mutex_unlock(&worker->roles);
        work(executor);
        pthread_mutex_lock(&worker->roles);
        if (!executor->roles) {
            executor->next_idle = worker->idle;
            worker->idle = executor;
        }
    }
    pthread_mutex_unlock(&worker->roles);
    return NULL;
}
