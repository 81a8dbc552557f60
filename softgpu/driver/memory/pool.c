/*
 * pool.c - stream-ordered memory: cuMemAllocAsync, cuMemFreeAsync, and what pools have reserved for it.
 *
 * Memory is given out when asked for; a free takes effect when its stream comes to it. When memory runs out
 * while frees are queued, the allocation waits for the context's work and tries again.
 *
 * What a pool reserves is an account with the device, in steps of 32 MiB as NVIDIA's driver has them: freed
 * memory is unmapped at once, so that kernels cannot go on using it, but stays the pool's up to its release
 * threshold. What is above goes back when somebody waits for a stream, an event or a context (the CUDA
 * programming guide's "physical page caching"), by cuMemPoolTrimTo, and when another allocation needs it.
 *
 * Locks: pools.lock, a pool's, that of the device's memory.
 */
#include <stdlib.h>
#include <unistd.h>

#include "common/base/align.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/host_pools/host_pools.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/memory/pool.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

#define PAGE 4096ull
#define UNIT 512ull /* in which a pool counts what is used */
#define STEP (32ull << 20)

static struct {
    pthread_mutex_t lock;
    struct sg_pool *first;
    _Atomic bool freed; /* since somebody has waited */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void give_back(struct sg_pool *pool, uint64_t bytes)
{
    pool->reserved -= bytes;
    if (!pool->imported)
        sg_memory_give_back(pool->device, bytes);
}

void sg_pool_release_above(struct sg_pool *pool, uint64_t keep)
{
    RG_SCOPED_LOCK(&pool->lock);
    const uint64_t least = keep > pool->committed ? keep : rg_align_up(pool->committed, STEP);
    if (pool->reserved > least)
        give_back(pool, pool->reserved - least);
}

/* A program has waited for the device. */
static void settle(void)
{
    if (!atomic_load_explicit(&pools.freed, memory_order_relaxed) || !atomic_exchange(&pools.freed, false))
        return;
    RG_SCOPED_LOCK(&pools.lock);
    for (struct sg_pool *pool = pools.first; pool != NULL; pool = pool->next)
        sg_pool_release_above(pool, pool->release_threshold);
}

/* All that is not in use goes back. */
static void reclaim(const struct sg_device *device)
{
    RG_SCOPED_LOCK(&pools.lock);
    for (struct sg_pool *pool = pools.first; pool != NULL; pool = pool->next) {
        if (pool->device != device)
            continue;
        RG_SCOPED_LOCK(&pool->lock);
        give_back(pool, pool->reserved - pool->committed);
    }
}

void sg_pools_init(void)
{
    sg_pool_hooks = (struct sg_pool_hooks){.waited = settle, .reclaim = reclaim};
}

static void finish_pool(struct sg_object *object)
{
    struct sg_pool *pool = (struct sg_pool *)object;
    pthread_mutex_lock(&pools.lock);
    struct sg_pool **link = &pools.first;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    pthread_mutex_unlock(&pools.lock);
    give_back(pool, pool->reserved);
    pthread_mutex_destroy(&pool->lock);
    if (pool->shared)
        close(pool->file); /* ranges hold a reference */
    free(pool);
}

struct sg_pool *sg_pool_new(struct sg_device *device)
{
    struct sg_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->device = device;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->peer_access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sg_handle_add(&pool->object, SG_KIND_POOL, NULL, finish_pool);
    RG_SCOPED_LOCK(&pools.lock);
    pool->next = pools.first;
    pools.first = pool;
    return pool;
}

/* Memory is freed by the application, and will be by its stream. */
static void begin_leaving(struct sg_pool *pool, uint64_t size)
{
    sg_acquire(&pool->object);
    RG_SCOPED_LOCK(&pool->lock);
    pool->leaving += rg_align_up(size, UNIT);
}

/* `left`: bytes of what was leaving. */
static void take_back(struct sg_pool *pool, uint64_t size, uint64_t left)
{
    pthread_mutex_lock(&pool->lock);
    pool->used -= rg_align_up(size, UNIT);
    pool->committed -= rg_align_up(size, PAGE);
    pool->leaving -= rg_align_up(left, UNIT);
    if (pool->imported) /* nothing of it stays here */
        pool->reserved = pool->committed;
    pthread_mutex_unlock(&pool->lock);
    atomic_store(&pools.freed, true);
    sg_release(&pool->object);
}

void sg_pool_returned(struct sg_pool *pool, uint64_t size)
{
    take_back(pool, size, 0);
}

/* Counts memory in that is reserved. The lock is held. */
static void count_in(struct sg_pool *pool, uint64_t size)
{
    pool->used += rg_align_up(size, UNIT);
    pool->committed += rg_align_up(size, PAGE);
    sg_acquire(&pool->object);
    if (sg_pool_in_use(pool) > pool->used_high)
        pool->used_high = sg_pool_in_use(pool);
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

void sg_pool_took(struct sg_pool *pool, uint64_t size)
{
    RG_SCOPED_LOCK(&pool->lock);
    pool->reserved += rg_align_up(size, PAGE);
    count_in(pool, size);
}

/* Sees to it that `bytes` more are reserved than are in use, in whole steps if there is room for them. */
static bool reserve(struct sg_pool *pool, uint64_t bytes)
{
    const uint64_t needed = pool->committed + bytes;
    if (needed <= pool->reserved)
        return true;
    uint64_t wanted = rg_align_up(needed, STEP);
    const uint64_t most = rg_align_up(pool->size_max, PAGE);
    if (most != 0 && wanted > most)
        wanted = most > needed ? most : needed;
    if (wanted < pool->reserved || !sg_memory_take(pool->device, wanted - pool->reserved)) {
        wanted = needed;
        if (!sg_memory_take(pool->device, wanted - pool->reserved))
            return false;
    }
    pool->reserved = wanted;
    return true;
}

/* Counts the allocation in; false if the pool's own limit forbids it, or the device has too little memory. */
static bool pool_take(struct sg_pool *pool, uint64_t size)
{
    if (size > pool->device->memory_total)
        return false;
    const uint64_t bytes = rg_align_up(size, UNIT);
    RG_SCOPED_LOCK(&pool->lock);
    const bool fits =
        (pool->size_max == 0 || (bytes <= pool->size_max && pool->used <= pool->size_max - bytes)) &&
        reserve(pool, rg_align_up(size, PAGE));
    if (fits)
        count_in(pool, size);
    return fits;
}

static CUresult allocate(CUdeviceptr *out, size_t size, struct sg_pool *pool, struct sg_stream *stream)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) { /* docs/software-device.md, "Where documents are silent or disagree" */
        *out = 0;
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && result == CUDA_ERROR_OUT_OF_MEMORY; attempt++) {
        if (attempt > 0) {
            sg_context_wait(stream->object.context->owner); /* frees may be queued */
            reclaim(pool->device);
        }
        if (!pool_take(pool, size))
            continue;
        uint64_t address;
        result = pool->shared ? sg_pool_alloc_shared(pool, stream->object.context->owner, size, &address)
                              : sg_range_alloc(stream->object.context->owner, pool->device, size,
                                               SG_RANGE_ASYNC, pool, &address);
        if (result == CUDA_SUCCESS)
            *out = address;
        else
            sg_pool_returned(pool, size);
    }
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream handle)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_allocate(out, size, stream->object.context->device->ordinal, handle);
    pthread_mutex_lock(&sg_state.lock);
    SG_REF(struct sg_pool) pool = stream->object.context->device->current_pool;
    sg_acquire(&pool->object);
    pthread_mutex_unlock(&sg_state.lock);
    return allocate(out, size, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream_handle)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream_handle);
    SG_STREAM_OR_RETURN(stream, stream_handle);
    const bool of_host = rg_host_pool_is(handle);
    if (rg_capture_takes(stream_handle))
        return of_host
                   ? rg_capture_refuse(stream_handle) /* graphs have memory of devices alone */
                   : rg_capture_allocate(out, size, stream->object.context->device->ordinal, stream_handle);
    if (of_host)
        return rg_host_pool_allocate(out, size, handle, stream_handle);
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || pool->imported) /* what another process makes is all there is in it */
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, size, pool, stream);
}

struct queued_free {
    uint64_t address, size;
    enum sg_range_kind kind;
    struct sg_pool *pool; /* NULL: memory of cuMemAlloc, which may be freed so, too */
};

static void run_free(struct sg_task *task)
{
    const struct queued_free *f = (const void *)task->payload;
    const bool freed = sg_range_free(f->address, f->kind) == CUDA_SUCCESS;
    if (f->pool == NULL)
        return;
    if (freed)
        take_back(f->pool, f->size, f->size);
    sg_release(&f->pool->object);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, handle);
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_free(address, handle);
    if (address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result;
    if (rg_graph_memory_takes_free(address, &result) || rg_host_pool_takes_free(address, &handle, &result))
        return result;
    struct sg_task *task = sg_task_new(sizeof(struct queued_free), run_free, NULL);
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sg_range range;
    if (!sg_range_begin_free(address, &range)) {
        sg_task_release(task);
        return CUDA_ERROR_INVALID_VALUE;
    }
    task->always = true;
    *(struct queued_free *)(void *)task->payload =
        (struct queued_free){range.base, range.size, range.kind, range.pool};
    if (range.pool != NULL)
        begin_leaving(range.pool, range.size);
    return sg_stream_submit(stream, task);
}
