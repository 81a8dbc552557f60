/*
 * blocks.c - blocks of a pool: allocated, freed in a stream's order, had again, given back. See host_pools.h.
 *
 * The lock is held while a block is asked whether it lives, which takes the lock of the map of addresses alone; not around calls that
 * may wait.
 */
#include "common/base/status.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/host_pools/pool.h"
#include "common/sync/scoped_lock.h"

#include <stdatomic.h>
#include <stdlib.h>

#define UNIT  512ull /* in which a pool counts what is used */
#define LOOKS 4      /* freed blocks that may be found waiting before the rest is taken to wait as well */

static struct rg_hash_table blocks;
static atomic_size_t n_blocks;

/* Sizes of blocks are few, so that what one allocation leaves fits another: eight between a power of two and the next. 0: too large. */
static size_t block_size(size_t size)
{
    if (size > SIZE_MAX / 4)
        return 0;
    size_t step = UNIT;
    while (step * 16 <= size)
        step *= 2;
    return (size + step - 1) & ~(step - 1);
}

static size_t units(size_t size)
{
    return (size + UNIT - 1) & ~(size_t)(UNIT - 1);
}

/* Whether the memory at a block's address is still the block's. */
static bool lives(const struct rg_host_block *block)
{
    unsigned long long id;
    return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block->address) == CUDA_SUCCESS &&
           id == block->id;
}

/* --- the lock is held ---------------------------------------------------------------------------------------- */

/* The block is no more; true: nor is its pool, which the caller is to free. */
static bool forget(struct rg_host_block *block)
{
    rg_hash_table_remove(&blocks, &block->link);
    atomic_fetch_sub(&n_blocks, 1);
    block->pool->reserved -= block->size;
    block->pool->used -= block->used;
    return rg_host_pool_drop(block->pool);
}

/* The block that begins at an address, whatever has become of it; NULL: none. */
static struct rg_host_block *find(CUdeviceptr address)
{
    for (struct rg_hash_link *at = rg_hash_table_first(&blocks, address); at; at = rg_hash_table_next(at)) {
        struct rg_host_block *block = (struct rg_host_block *)at;
        if (lives(block))
            return block;
    }
    return NULL;
}

static void push(struct rg_host_block **list, struct rg_host_block *block)
{
    block->next = *list;
    *list = block;
}

static void append(struct rg_host_block **list, struct rg_host_block *more)
{
    while (*list)
        list = &(*list)->next;
    *list = more;
}

/* Takes a block of this size out of a list: any, or (`stream`) one that this stream has freed. */
static struct rg_host_block *take(struct rg_host_block **list, size_t size, const unsigned long long *stream)
{
    for (; *list; list = &(*list)->next) {
        struct rg_host_block *block = *list;
        if (block->size != size || (stream && block->stream != *stream))
            continue;
        *list = block->next;
        return block;
    }
    return NULL;
}

/* --- giving back --------------------------------------------------------------------------------------------- */

/* Blocks that are in no list any more. */
static void give_back(struct rg_host_block *list)
{
    while (list) {
        struct rg_host_block *block = list;
        struct rg_host_pool *pool = block->pool;
        list = block->next;
        if (block->event)
            (void)cuEventDestroy_v2(block->event);
        const bool managed = pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED;
        pthread_mutex_lock(&rg_host_pools_lock);
        const bool there = lives(block), last = forget(block);
        pthread_mutex_unlock(&rg_host_pools_lock);
        if (there)
            rg_host_pool_backend_release(block->address, managed);
        free(block);
        if (last)
            free(pool);
    }
}

void rg_host_pool_shrink(struct rg_host_pool *pool, uint64_t keep)
{
    struct rg_host_block *gone = NULL;
    pthread_mutex_lock(&rg_host_pools_lock);
    for (uint64_t reserved = pool->reserved; reserved > keep && pool->ready;) {
        struct rg_host_block *block = pool->ready;
        pool->ready = block->next;
        reserved -= block->size;
        push(&gone, block);
    }
    pthread_mutex_unlock(&rg_host_pools_lock);
    give_back(gone);
}

void rg_host_pool_settle(struct rg_host_pool *pool)
{
    pthread_mutex_lock(&rg_host_pools_lock);
    struct rg_host_block *pending = pool->pending, *waiting = NULL, *ready = NULL;
    pool->pending = NULL;
    pthread_mutex_unlock(&rg_host_pools_lock);
    const CUstreamCaptureMode mode = rg_capture_relax();
    for (int looks = 0; pending && looks < LOOKS;) {
        struct rg_host_block *block = pending;
        pending = block->next;
        block->next = NULL;
        if (cuEventQuery(block->event) == CUDA_ERROR_NOT_READY) {
            append(&waiting, block);
            looks++;
            continue;
        }
        (void)cuEventDestroy_v2(block->event);
        block->event = NULL;
        push(&ready, block);
    }
    rg_capture_restore(mode);
    append(&waiting, pending);
    pthread_mutex_lock(&rg_host_pools_lock);
    if (pool->pending) /* freed meanwhile */
        append(&waiting, pool->pending);
    pool->pending = waiting;
    append(&ready, pool->ready);
    pool->ready = ready;
    const uint64_t keep = pool->ended ? 0 : pool->release_threshold;
    pthread_mutex_unlock(&rg_host_pools_lock);
    rg_host_pool_shrink(pool, keep);
}

/* Of pools whose handle is destroyed nobody asks any more: one of them that has blocks to wait for. */
static void settle_ended(void)
{
    pthread_mutex_lock(&rg_host_pools_lock);
    struct rg_host_pool *pool = rg_host_pools;
    while (pool && !(pool->ended && pool->pending))
        pool = pool->next;
    if (pool)
        pool->references++;
    pthread_mutex_unlock(&rg_host_pools_lock);
    if (!pool)
        return;
    rg_host_pool_settle(pool);
    rg_host_pool_release(pool);
}

/* --- allocating ---------------------------------------------------------------------------------------------- */

/* A block of memory that nobody has had: in no table yet, and not counted. */
static CUresult make(struct rg_host_pool *pool, size_t size, struct rg_host_block **out)
{
    struct rg_host_block *block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const bool managed = pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    void *memory = NULL;
    const CUstreamCaptureMode mode = rg_capture_relax();
    CUresult result =
        managed ? cuMemAllocManaged(&block->address, size, CU_MEM_ATTACH_GLOBAL)
                : cuMemHostAlloc(&memory, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    rg_capture_restore(mode);
    if (result == CUDA_SUCCESS && !managed)
        block->address = (CUdeviceptr)(uintptr_t)memory;
    if (result == CUDA_SUCCESS)
        result = cuPointerGetAttribute(&block->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block->address);
    if (result == CUDA_SUCCESS && managed && pool->location.type != CU_MEM_LOCATION_TYPE_NONE)
        (void)cuMemAdvise_v2(block->address, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, pool->location);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->pool = pool;
    block->size = size;
    *out = block;
    return CUDA_SUCCESS;
}

/* One that is freed, for an allocation in this stream; or NULL. Those whose context has ended are forgotten on the way. */
static struct rg_host_block *take_again(struct rg_host_pool *pool, size_t size, unsigned long long stream)
{
    for (;;) {
        pthread_mutex_lock(&rg_host_pools_lock);
        struct rg_host_block *block = take(&pool->pending, size, &stream);
        if (!block)
            block = take(&pool->ready, size, NULL);
        const bool good = !block || lives(block);
        pthread_mutex_unlock(&rg_host_pools_lock);
        if (good)
            return block;
        block->next = NULL;
        give_back(block);
    }
}

/* Gives `block`, or if that is NULL a new one, to the program. */
static CUresult hand_out(struct rg_host_pool *pool, struct rg_host_block *block, size_t size, size_t bytes,
                         CUdeviceptr *out)
{
    const bool made = !block;
    if (made) {
        CUresult result = make(pool, size, &block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            rg_host_pool_shrink(pool, 0);
            result = make(pool, size, &block);
        }
        RG_TRY(result);
    } else if (block->event) {
        (void)cuEventDestroy_v2(block->event);
        block->event = NULL;
    }
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    if (made) {
        rg_hash_table_add(&blocks, &block->link, block->address);
        atomic_fetch_add(&n_blocks, 1);
        pool->references++;
        pool->reserved += size;
        if (pool->reserved > pool->reserved_high)
            pool->reserved_high = pool->reserved;
    }
    block->used = bytes;
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *out = block->address;
    return CUDA_SUCCESS;
}

CUresult rg_host_pool_allocate(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream)
{
    unsigned long long number;
    const size_t whole = block_size(size), bytes = units(size);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(cuStreamGetId(stream, &number));
    struct rg_host_pool *pool = rg_host_pool_acquire(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!size) {
        *out = 0;
        rg_host_pool_release(pool);
        return CUDA_SUCCESS;
    }
    settle_ended();
    rg_host_pool_settle(pool);
    pthread_mutex_lock(&rg_host_pools_lock);
    const bool fits =
        whole && (!pool->size_max || (bytes <= pool->size_max && pool->used <= pool->size_max - bytes));
    pthread_mutex_unlock(&rg_host_pools_lock);
    const CUresult result =
        fits ? hand_out(pool, take_again(pool, whole, number), whole, bytes, out) : CUDA_ERROR_OUT_OF_MEMORY;
    rg_host_pool_release(pool);
    return result;
}

/* --- freeing ------------------------------------------------------------------------------------------------- */

/* Has an event tell when the stream has come to the free of a block. */
static CUresult mark(struct rg_host_block *block, CUstream stream)
{
    const CUstreamCaptureMode mode = rg_capture_relax();
    CUresult result = cuStreamGetId(stream, &block->stream);
    if (result == CUDA_SUCCESS)
        result = cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(block->event, stream);
    rg_capture_restore(mode);
    return result;
}

bool rg_host_pool_takes_free(CUdeviceptr address, const CUstream *stream, CUresult *result)
{
    if (!atomic_load_explicit(&n_blocks, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&rg_host_pools_lock);
    struct rg_host_block *block = find(address);
    const bool used = block && block->used;
    struct rg_host_pool *pool = used ? block->pool : NULL;
    if (used) {
        pool->used -= block->used;
        block->used = 0;
        block->next = NULL;
        pool->references++;
    }
    pthread_mutex_unlock(&rg_host_pools_lock);
    *result = used ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!used)
        return block != NULL;
    if (stream)
        *result = mark(block, *stream);
    pthread_mutex_lock(&rg_host_pools_lock);
    if (!stream)
        push(&pool->ready, block);
    else if (*result == CUDA_SUCCESS)
        append(&pool->pending, block);
    /* else its context is lost, and the block with it */
    pthread_mutex_unlock(&rg_host_pools_lock);
    settle_ended();
    rg_host_pool_settle(pool);
    rg_host_pool_release(pool);
    return true;
}

CUmemoryPool rg_host_pool_at(CUdeviceptr address)
{
    if (!atomic_load_explicit(&n_blocks, memory_order_relaxed))
        return NULL;
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    const struct rg_host_block *block = find(address);
    return block ? (CUmemoryPool)(void *)block->pool : NULL;
}
