/* deferred_free.c - the list of what is to be freed, and the thread that does it. See deferred_free.h. */
#include "server/prealloc/deferred_free.h"

#include "common/base/thread.h"
#include "generated/server/driver.h"

#include <stdlib.h>

struct rg_deferred_free {
    struct rg_deferred_free *next;
    uint64_t context;
    CUcontext object;
    CUdevice device;
    CUdeviceptr address;
    uint64_t bytes;
};

void rg_deferred_free_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->deferred_frees.lock, NULL);
    pthread_cond_init(&worker->deferred_frees.changed, NULL);
    worker->deferred_frees.last = &worker->deferred_frees.first;
}

static void free_now(CUcontext context, CUdeviceptr address)
{
    if (rg_driver.cuMemFree_v2 && rg_driver.cuCtxSetCurrent(context) == CUDA_SUCCESS)
        (void)rg_driver.cuMemFree_v2(address);
}

/* What is being freed stays at the head of the list until it is. */
static void *frees_main(void *arg)
{
    struct rg_worker *worker = arg;
    struct rg_deferred_frees *deferred_frees = &worker->deferred_frees;
    pthread_mutex_lock(&deferred_frees->lock);
    for (;;) {
        struct rg_deferred_free *at = deferred_frees->first;
        if (rg_worker_over(worker))
            break;
        if (!at) {
            pthread_cond_wait(&deferred_frees->changed, &deferred_frees->lock);
            continue;
        }
        pthread_mutex_unlock(&deferred_frees->lock);
        free_now(at->object, at->address);
        pthread_mutex_lock(&deferred_frees->lock);
        deferred_frees->first = at->next;
        if (!deferred_frees->first)
            deferred_frees->last = &deferred_frees->first;
        free(at);
        deferred_frees->count++;
        pthread_cond_broadcast(&deferred_frees->changed);
    }
    pthread_mutex_unlock(&deferred_frees->lock);
    return NULL;
}

void rg_deferred_free_add(struct rg_worker *worker, const struct rg_worker_context *context, CUdevice device,
                          CUdeviceptr address, uint64_t bytes)
{
    struct rg_deferred_frees *deferred_frees = &worker->deferred_frees;
    struct rg_deferred_free *one = malloc(sizeof *one);
    pthread_mutex_lock(&deferred_frees->lock);
    if (!deferred_frees->runs)
        deferred_frees->runs =
            rg_thread_create(&deferred_frees->thread, "rg-frees", frees_main, worker) == RG_OK;
    const bool later = one && deferred_frees->runs;
    if (later) {
        *one = (struct rg_deferred_free){NULL, context->handle, context->object, device, address, bytes};
        *deferred_frees->last = one;
        deferred_frees->last = &one->next;
        pthread_cond_broadcast(&deferred_frees->changed);
    }
    pthread_mutex_unlock(&deferred_frees->lock);
    if (later)
        return;
    free(one);
    free_now(context->object, address);
    rg_context_unknown();
}

uint64_t rg_deferred_free_count(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->deferred_frees.lock);
    const uint64_t count = worker->deferred_frees.count;
    pthread_mutex_unlock(&worker->deferred_frees.lock);
    return count;
}

uint64_t rg_deferred_free_held(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    pthread_mutex_lock(&worker->deferred_frees.lock);
    for (const struct rg_deferred_free *at = worker->deferred_frees.first; at; at = at->next)
        held += at->device == device ? at->bytes : 0;
    pthread_mutex_unlock(&worker->deferred_frees.lock);
    return held;
}

/* The lock is held. */
static bool any_of(const struct rg_deferred_frees *deferred_frees, uint64_t context)
{
    const struct rg_deferred_free *at = deferred_frees->first;
    while (at && context && at->context != context)
        at = at->next;
    return at != NULL;
}

bool rg_deferred_free_any(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->deferred_frees.lock);
    const bool any = worker->deferred_frees.first != NULL;
    pthread_mutex_unlock(&worker->deferred_frees.lock);
    return any;
}

bool rg_deferred_free_wait(struct rg_worker *worker, uint64_t context)
{
    struct rg_deferred_frees *deferred_frees = &worker->deferred_frees;
    pthread_mutex_lock(&deferred_frees->lock);
    const bool any = any_of(deferred_frees, context);
    while (any_of(deferred_frees, context) && !rg_worker_over(worker))
        pthread_cond_wait(&deferred_frees->changed, &deferred_frees->lock);
    pthread_mutex_unlock(&deferred_frees->lock);
    return any;
}

void rg_deferred_free_wake(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->deferred_frees.lock);
    pthread_cond_broadcast(&worker->deferred_frees.changed);
    pthread_mutex_unlock(&worker->deferred_frees.lock);
}

void rg_deferred_free_join(struct rg_worker *worker)
{
    if (worker->deferred_frees.runs)
        pthread_join(worker->deferred_frees.thread, NULL);
}

void rg_deferred_free_fini(struct rg_worker *worker)
{
    struct rg_deferred_frees *deferred_frees = &worker->deferred_frees;
    while (deferred_frees->first) {
        struct rg_deferred_free *at = deferred_frees->first;
        deferred_frees->first = at->next;
        free(at);
    }
    pthread_cond_destroy(&deferred_frees->changed);
    pthread_mutex_destroy(&deferred_frees->lock);
}
