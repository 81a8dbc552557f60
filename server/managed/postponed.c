/* postponed.c - see postponed.h. */
#include "server/managed/postponed.h"

#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

void rg_postponed_init(struct rg_postponed *postponed)
{
    pthread_mutex_init(&postponed->lock, NULL);
    pthread_cond_init(&postponed->emptied, NULL);
    postponed->last = &postponed->first;
}

void rg_postponed_fini(struct rg_postponed *postponed)
{
    while (postponed->first) {
        struct rg_postponed_answer *next = postponed->first->next;
        free(postponed->first);
        postponed->first = next;
    }
    pthread_cond_destroy(&postponed->emptied);
    pthread_mutex_destroy(&postponed->lock);
}

void rg_postponed_wake(struct rg_postponed *postponed)
{
    RG_SCOPED_LOCK(&postponed->lock);
    pthread_cond_broadcast(&postponed->emptied);
}

/* The lock is held: whoever opens the gate looks here after that, so that nothing is put here too late for it. */
static bool enter(const struct rg_postponed *postponed, struct rg_worker *worker)
{
    return !postponed->first && !postponed->working && rg_device_try_out_of_order(&worker->device_gate);
}

bool rg_postponed_enter(struct rg_postponed *postponed, struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&postponed->lock);
    while (postponed->bytes >= RG_MANAGED_POSTPONED_MAX && !rg_worker_over(worker))
        pthread_cond_wait(&postponed->emptied, &postponed->lock);
    const bool entered = enter(postponed, worker);
    return entered;
}

bool rg_postponed_put(struct rg_postponed *postponed, struct rg_worker *worker,
                      const struct rg_answer *answer, uint64_t seq, size_t bulk_size,
                      struct rg_postponed_answer **out)
{
    struct rg_postponed_answer *new = malloc(sizeof *new + bulk_size);
    *out = NULL;
    if (!new) {
        rg_worker_end(worker, 1, "the worker is out of memory");
        return false;
    }
    *new = (struct rg_postponed_answer){.answer = *answer, .seq = seq, .size = bulk_size};
    if (rg_worker_over(worker) ||
        (bulk_size && rg_conn_recv_bulk(worker->conn, new->data, bulk_size) != RG_OK)) {
        free(new);
        return false;
    }
    RG_SCOPED_LOCK(&postponed->lock);
    if (enter(postponed, worker)) {
        *out = new;
        return true;
    }
    *postponed->last = new;
    postponed->last = &new->next;
    postponed->bytes += sizeof *new + bulk_size;
    rg_device_want(worker);
    return true;
}

struct rg_postponed_answer *rg_postponed_take(struct rg_postponed *postponed, struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&postponed->lock);
    struct rg_postponed_answer *next = postponed->first;
    postponed->working = next != NULL;
    if (!next) {
        pthread_cond_broadcast(&postponed->emptied);
        return NULL;
    }
    postponed->first = next->next;
    if (!postponed->first)
        postponed->last = &postponed->first;
    postponed->bytes -= sizeof *next + next->size;
    rg_device_unwant(&worker->device_gate);
    return next;
}
