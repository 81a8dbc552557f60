/* pools.c - see pools.h. */
#include "server/prealloc/pools.h"

#include "generated/server/execute.h"
#include "server/prealloc/slabs.h"

#include <stdlib.h>

/* A pool that memory was made ready of: its own high mark counts that too. */
struct rg_prealloc_pool {
    struct rg_prealloc_pool *next;
    CUmemoryPool pool;
    uint64_t high; /* since the mark was reset */
    uint64_t most; /* without such memory, whatever the mark: the pool may hold on to that */
};

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t number = 0;
    if (rg_driver.cuMemPoolGetAttribute(pool, attribute, &number) != CUDA_SUCCESS)
        return 0;
    return number;
}

static struct rg_prealloc_pool *find_pool(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = rg_prealloc_of(worker)->pools;
    while (known && known->pool != pool)
        known = known->next;
    return known;
}

/* Bytes of the pool that the program uses; what is ready counts in whole pages. */
static uint64_t pool_used(const struct rg_worker *worker, CUmemoryPool pool)
{
    uint64_t ready = 0;
    for (const struct rg_slab *slab = rg_prealloc_of(worker)->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            ready += slab->n * slab->bytes;
    const uint64_t used = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    return used > ready ? used - ready : 0;
}

void rg_prealloc_pool_note_use(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = pool ? find_pool(worker, pool) : NULL;
    const uint64_t used = known ? pool_used(worker, pool) : 0;
    if (known && used > known->high)
        known->high = used;
    if (known && used > known->most)
        known->most = used;
}

bool rg_prealloc_pool_keep(struct rg_worker *worker, CUmemoryPool pool)
{
    if (find_pool(worker, pool))
        return true;
    struct rg_prealloc_pool *known = malloc(sizeof *known);
    if (!known)
        return false;
    *known = (struct rg_prealloc_pool){.next = rg_prealloc_of(worker)->pools,
                                       .pool = pool,
                                       .high = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
                                       .most = pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)};
    rg_prealloc_of(worker)->pools = known;
    return true;
}

/* What NVIDIA's driver reserves for a pool at a time. */
#define POOL_STEP (32ull << 20)

static uint64_t pool_steps(uint64_t bytes)
{
    return (bytes + POOL_STEP - 1) & ~(POOL_STEP - 1);
}

void rg_prealloc_pool_trim(struct rg_worker *worker, CUmemoryPool pool)
{
    const struct rg_prealloc_pool *known = pool ? find_pool(worker, pool) : NULL;
    if (known)
        (void)rg_driver.cuMemPoolTrimTo(pool, pool_steps(known->most));
}

void rg_prealloc_pool_reserved(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct rg_prealloc_pool *known = find_pool(worker, pool);
    const uint64_t now = known ? pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) : 0;
    const uint64_t most = known && pool_steps(known->most) > now ? pool_steps(known->most) : now;
    if (known && *high > most)
        *high = most;
}

CUresult rg_execute_rgPoolsSettle(struct rg_request *request)
{
    CUstream stream;
    (void)request;
    /* one with nothing to wait for: pools settle when any stream is waited for */
    const CUresult result = rg_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* of a context that has failed, nobody expects figures */
    (void)rg_driver.cuStreamSynchronize(stream);
    (void)rg_driver.cuStreamDestroy_v2(stream);
    return CUDA_SUCCESS;
}

bool rg_prealloc_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct rg_prealloc_pool *known = find_pool(worker, pool);
    if (known)
        *high = known->high;
    return known != NULL;
}

void rg_prealloc_pool_reset(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = find_pool(worker, pool);
    if (known)
        known->high = pool_used(worker, pool);
}

CUmemoryPool rg_prealloc_pool_meant(CUmemoryPool pool)
{
    CUdevice device;
    if (!pool && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        rg_driver.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

CUresult rg_execute_cuMemAllocAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                    CUstream stream)
{
    rg_worker_memory_of_pools(request->worker);
    CUresult result = rg_driver.cuMemAllocAsync(dptr, bytesize, stream);
    if (result == CUDA_SUCCESS && rg_prealloc_of(request->worker)->pools)
        rg_prealloc_pool_note_use(request->worker, rg_prealloc_pool_meant(NULL));
    return result;
}

CUresult rg_execute_cuMemAllocFromPoolAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                            CUmemoryPool pool, CUstream stream)
{
    rg_worker_memory_of_pools(request->worker);
    CUresult result = rg_driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, stream);
    if (result == CUDA_SUCCESS && rg_prealloc_of(request->worker)->pools)
        rg_prealloc_pool_note_use(request->worker, pool);
    return result;
}

/* The next pool may have the address of one that ends. */
CUresult rg_execute_cuMemPoolDestroy(struct rg_request *request, CUmemoryPool pool)
{
    for (struct rg_prealloc_pool **link = &rg_prealloc_of(request->worker)->pools; *link;
         link = &(*link)->next)
        if ((*link)->pool == pool) {
            struct rg_prealloc_pool *gone = *link;
            *link = gone->next;
            free(gone);
            break;
        }
    for (struct rg_slab *slab = rg_prealloc_of(request->worker)->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            slab->pool = NULL; /* the client was to return it first */
    return rg_driver.cuMemPoolDestroy(pool);
}

void rg_prealloc_pools_fini(struct rg_prealloc *prealloc)
{
    while (prealloc->pools) {
        struct rg_prealloc_pool *pool = prealloc->pools;
        prealloc->pools = pool->next;
        free(pool);
    }
}
