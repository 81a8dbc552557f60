/* frees.c - the list of what is to be freed, and the thread that does it. See frees.h. */
#include "server/frees.h"

#include "common/base/thread.h"
#include "generated/server/driver.h"

#include <stdlib.h>

struct rg_free {
    struct rg_free *next;
    uint64_t context;
    CUcontext object;
    CUdevice device;
    CUdeviceptr address;
    uint64_t bytes;
};

void rg_frees_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->frees.lock, NULL);
    pthread_cond_init(&worker->frees.changed, NULL);
    worker->frees.last = &worker->frees.first;
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
    struct rg_frees *frees = &worker->frees;
    pthread_mutex_lock(&frees->lock);
    for (;;) {
        struct rg_free *at = frees->first;
        if (rg_worker_over(worker))
            break;
        if (!at) {
            pthread_cond_wait(&frees->changed, &frees->lock);
            continue;
        }
        pthread_mutex_unlock(&frees->lock);
        free_now(at->object, at->address);
        pthread_mutex_lock(&frees->lock);
        frees->first = at->next;
        if (!frees->first)
            frees->last = &frees->first;
        free(at);
        frees->count++;
        pthread_cond_broadcast(&frees->changed);
    }
    pthread_mutex_unlock(&frees->lock);
    return NULL;
}

void rg_frees_add(struct rg_worker *worker, const struct rg_context *context, CUdevice device,
                  CUdeviceptr address, uint64_t bytes)
{
    struct rg_frees *frees = &worker->frees;
    struct rg_free *one = malloc(sizeof *one);
    pthread_mutex_lock(&frees->lock);
    if (!frees->runs)
        frees->runs = rg_thread_create(&frees->thread, "rg-frees", frees_main, worker) == RG_OK;
    const bool later = one && frees->runs;
    if (later) {
        *one = (struct rg_free){NULL, context->handle, context->object, device, address, bytes};
        *frees->last = one;
        frees->last = &one->next;
        pthread_cond_broadcast(&frees->changed);
    }
    pthread_mutex_unlock(&frees->lock);
    if (later)
        return;
    free(one);
    free_now(context->object, address);
    rg_current_context_unknown();
}

uint64_t rg_frees_count(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->frees.lock);
    const uint64_t count = worker->frees.count;
    pthread_mutex_unlock(&worker->frees.lock);
    return count;
}

uint64_t rg_frees_held(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    pthread_mutex_lock(&worker->frees.lock);
    for (const struct rg_free *at = worker->frees.first; at; at = at->next)
        held += at->device == device ? at->bytes : 0;
    pthread_mutex_unlock(&worker->frees.lock);
    return held;
}

/* The lock is held. */
static bool any_of(const struct rg_frees *frees, uint64_t context)
{
    const struct rg_free *at = frees->first;
    while (at && context && at->context != context)
        at = at->next;
    return at != NULL;
}

bool rg_frees_any(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->frees.lock);
    const bool any = worker->frees.first != NULL;
    pthread_mutex_unlock(&worker->frees.lock);
    return any;
}

bool rg_frees_wait(struct rg_worker *worker, uint64_t context)
{
    struct rg_frees *frees = &worker->frees;
    pthread_mutex_lock(&frees->lock);
    const bool any = any_of(frees, context);
    while (any_of(frees, context) && !rg_worker_over(worker))
        pthread_cond_wait(&frees->changed, &frees->lock);
    pthread_mutex_unlock(&frees->lock);
    return any;
}

void rg_frees_wake(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->frees.lock);
    pthread_cond_broadcast(&worker->frees.changed);
    pthread_mutex_unlock(&worker->frees.lock);
}

void rg_frees_join(struct rg_worker *worker)
{
    if (worker->frees.runs)
        pthread_join(worker->frees.thread, NULL);
}

void rg_frees_fini(struct rg_worker *worker)
{
    struct rg_frees *frees = &worker->frees;
    while (frees->first) {
        struct rg_free *at = frees->first;
        frees->first = at->next;
        free(at);
    }
    pthread_cond_destroy(&frees->changed);
    pthread_mutex_destroy(&frees->lock);
}
