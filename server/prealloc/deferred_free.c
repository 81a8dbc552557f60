/* deferred_free.c - the list of what is to be freed, and the thread that does it. See deferred_free.h. */
#include "server/prealloc/deferred_free.h"

#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
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

void rg_deferred_free_init(struct rg_deferred_frees *frees, struct rg_worker *worker)
{
    frees->worker = worker;
    pthread_mutex_init(&frees->lock, NULL);
    pthread_cond_init(&frees->changed, NULL);
    frees->last = &frees->first;
}

static void free_now(CUcontext context, CUdeviceptr address)
{
    if (rg_driver.cuCtxSetCurrent(context) == CUDA_SUCCESS)
        (void)rg_driver.cuMemFree_v2(address);
}

/* What is being freed stays at the head of the list until it is. */
static void *frees_main(void *arg)
{
    struct rg_deferred_frees *frees = arg;
    pthread_mutex_lock(&frees->lock);
    for (;;) {
        struct rg_deferred_free *at = frees->first;
        if (rg_worker_over(frees->worker))
            break;
        if (!at) {
            pthread_cond_wait(&frees->changed, &frees->lock);
            continue;
        }
        pthread_mutex_unlock(&frees->lock);
        free_now(at->object, at->address);
        rg_worker_memory_ended(frees->worker);
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

void rg_deferred_free_add(struct rg_deferred_frees *frees, const struct rg_worker_context *context,
                          CUdevice device, CUdeviceptr address, uint64_t bytes)
{
    struct rg_deferred_free *one = malloc(sizeof *one);
    pthread_mutex_lock(&frees->lock);
    if (!frees->runs)
        frees->runs = rg_thread_create(&frees->thread, "rg-frees", frees_main, frees) == RG_OK;
    const bool later = one && frees->runs;
    if (later) {
        *one = (struct rg_deferred_free){NULL, context->handle, context->object, device, address, bytes};
        *frees->last = one;
        frees->last = &one->next;
        pthread_cond_broadcast(&frees->changed);
    }
    pthread_mutex_unlock(&frees->lock);
    if (later)
        return;
    free(one);
    free_now(context->object, address);
    rg_context_unknown();
}

uint64_t rg_deferred_free_count(struct rg_deferred_frees *frees)
{
    RG_SCOPED_LOCK(&frees->lock);
    return frees->count;
}

uint64_t rg_deferred_free_held(struct rg_deferred_frees *frees, CUdevice device)
{
    uint64_t held = 0;
    RG_SCOPED_LOCK(&frees->lock);
    for (const struct rg_deferred_free *at = frees->first; at; at = at->next)
        held += at->device == device ? at->bytes : 0;
    return held;
}

/* The lock is held. */
static bool any_of(const struct rg_deferred_frees *frees, uint64_t context)
{
    const struct rg_deferred_free *at = frees->first;
    while (at && context && at->context != context)
        at = at->next;
    return at != NULL;
}

bool rg_deferred_free_any(struct rg_deferred_frees *frees)
{
    RG_SCOPED_LOCK(&frees->lock);
    return frees->first != NULL;
}

bool rg_deferred_free_wait(struct rg_deferred_frees *frees, uint64_t context)
{
    RG_SCOPED_LOCK(&frees->lock);
    const bool any = any_of(frees, context);
    while (any_of(frees, context) && !rg_worker_over(frees->worker))
        pthread_cond_wait(&frees->changed, &frees->lock);
    return any;
}

void rg_deferred_free_wake(struct rg_deferred_frees *frees)
{
    RG_SCOPED_LOCK(&frees->lock);
    pthread_cond_broadcast(&frees->changed);
}

void rg_deferred_free_join(struct rg_deferred_frees *frees)
{
    if (frees->runs)
        pthread_join(frees->thread, NULL);
}

void rg_deferred_free_fini(struct rg_deferred_frees *frees)
{
    while (frees->first) {
        struct rg_deferred_free *at = frees->first;
        frees->first = at->next;
        free(at);
    }
    pthread_cond_destroy(&frees->changed);
    pthread_mutex_destroy(&frees->lock);
}
