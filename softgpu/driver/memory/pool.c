/*
 * pool.c - stream-ordered memory: cuMemAllocAsync, cuMemFreeAsync and pools.
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

#include "common/cuda/graph/graph.h"
#include "common/sync/scoped_lock.h"
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

static uint64_t steps(uint64_t size)
{
    return (size + STEP - 1) & ~(STEP - 1);
}

static void give_back(struct sg_pool *pool, uint64_t bytes)
{
    pool->reserved -= bytes;
    if (!pool->imported)
        sg_memory_give_back(pool->device, bytes);
}

/* Gives back what is neither in use nor among the `keep` bytes that stay reserved. */
static void release_above(struct sg_pool *pool, uint64_t keep)
{
    RG_SCOPED_LOCK(&pool->lock);
    const uint64_t least = keep > pool->committed ? keep : steps(pool->committed);
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
        release_above(pool, pool->release_threshold);
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

static uint64_t units(uint64_t size)
{
    return (size + UNIT - 1) & ~(UNIT - 1);
}

static uint64_t pages(uint64_t size)
{
    return (size + PAGE - 1) & ~(PAGE - 1);
}

void sg_pool_returned(struct sg_pool *pool, uint64_t size)
{
    pthread_mutex_lock(&pool->lock);
    pool->used -= units(size);
    pool->committed -= pages(size);
    if (pool->imported) /* nothing of it stays here */
        pool->reserved = pool->committed;
    pthread_mutex_unlock(&pool->lock);
    atomic_store(&pools.freed, true);
    sg_release(&pool->object);
}

/* Counts memory in that is reserved. The lock is held. */
static void count_in(struct sg_pool *pool, uint64_t size)
{
    pool->used += units(size);
    pool->committed += pages(size);
    sg_acquire(&pool->object);
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

void sg_pool_took(struct sg_pool *pool, uint64_t size)
{
    RG_SCOPED_LOCK(&pool->lock);
    pool->reserved += pages(size);
    count_in(pool, size);
}

/* Sees to it that `bytes` more are reserved than are in use, in whole steps if there is room for them. */
static bool reserve(struct sg_pool *pool, uint64_t bytes)
{
    const uint64_t needed = pool->committed + bytes;
    if (needed <= pool->reserved)
        return true;
    uint64_t wanted = steps(needed);
    if (pool->size_max != 0 && wanted > pages(pool->size_max))
        wanted = pages(pool->size_max) > needed ? pages(pool->size_max) : needed;
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
    const uint64_t bytes = units(size);
    RG_SCOPED_LOCK(&pool->lock);
    const bool fits =
        (pool->size_max == 0 || (bytes <= pool->size_max && pool->used <= pool->size_max - bytes)) &&
        reserve(pool, pages(size));
    if (fits)
        count_in(pool, size);
    return fits;
}

static CUresult allocate(CUdeviceptr *out, size_t size, struct sg_pool *pool, struct sg_stream *stream)
{
    if (out == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && result == CUDA_ERROR_OUT_OF_MEMORY; attempt++) {
        if (attempt > 0) {
            sg_context_wait(stream->object.context); /* frees may be queued */
            reclaim(pool->device);
        }
        if (!pool_take(pool, size))
            continue;
        uint64_t address;
        result = pool->shared ? sg_pool_alloc_shared(pool, stream->object.context, size, &address)
                              : sg_range_alloc(stream->object.context, pool->device, size, SG_RANGE_ASYNC,
                                               pool, &address);
        if (result == CUDA_SUCCESS)
            *out = address;
        else
            sg_pool_returned(pool, size);
    }
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream handle)
{
    SG_REF(struct sg_stream) stream = NULL;
    RG_TRY(sg_stream_get(handle, &stream));
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
    SG_REF(struct sg_stream) stream = NULL;
    RG_TRY(sg_stream_get(stream_handle, &stream));
    if (rg_capture_takes(stream_handle))
        return rg_capture_allocate(out, size, stream->object.context->device->ordinal, stream_handle);
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
    if (sg_range_free(f->address, f->kind) == CUDA_SUCCESS && f->pool != NULL)
        sg_pool_returned(f->pool, f->size);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    SG_REF(struct sg_stream) stream = NULL;
    RG_TRY(sg_stream_get(handle, &stream));
    if (rg_capture_takes(handle))
        return rg_capture_free(address, handle);
    if (address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result;
    if (rg_graph_memory_takes_free(address, &result))
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
    return sg_stream_submit(stream, task);
}

/* --- pools --- */

static CUresult location_device(const CUmemLocation *location, struct sg_device **device)
{
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *device = sg_device(location->id);
    return *device != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (out == NULL || properties == NULL || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    const bool to_share = properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!to_share && properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(location_device(&properties->location, &device));
    struct sg_pool *pool = sg_pool_new(device);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->size_max = properties->maxSize;
    if (to_share && !sg_pool_share(pool)) {
        sg_handle_remove(pool, SG_KIND_POOL);
        sg_release(&pool->object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUmemoryPool)(void *)pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || pool == pool->device->default_pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_handle_remove(pool, SG_KIND_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sg_state.lock);
    if (pool->device->current_pool == pool)
        pool->device->current_pool = pool->device->default_pool;
    pthread_mutex_unlock(&sg_state.lock);
    sg_release(&pool->object);
    return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice ordinal, bool current)
{
    RG_TRY(sg_enter());
    struct sg_device *device = sg_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_state.lock);
    *out = (CUmemoryPool)(void *)(current ? device->current_pool : device->default_pool);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    return device_pool(out, ordinal, false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    return device_pool(out, ordinal, true);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
    RG_TRY(sg_enter());
    struct sg_device *device = sg_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || pool->device != device || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_state.lock);
    device->current_pool = pool; /* destroying the pool resets this first */
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(location_device(location, &device));
    return device_pool(out, device->ordinal, false);
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(location_device(location, &device));
    return device_pool(out, device->ordinal, true);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(location_device(location, &device));
    return cuDeviceSetMemPool(device->ordinal, pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    release_above(pool, keep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&pool->lock);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&pool->lock);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const cuuint64_t *)value;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = pool->reserved;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || (map == NULL && count > 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sg_device *device;
        RG_TRY(location_device(&map[i].location, &device));
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (device == pool->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    RG_SCOPED_LOCK(&pool->lock);
    for (size_t i = 0; i < count; i++)
        pool->peer_access[map[i].location.id] = (int)map[i].flags;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(location_device(location, &device));
    RG_SCOPED_LOCK(&pool->lock);
    *flags = (CUmemAccess_flags)pool->peer_access[device->ordinal];
    return CUDA_SUCCESS;
}
