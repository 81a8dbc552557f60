/*
 * memory_pool.c - pools of stream-ordered memory, and what is accounted for them here (memory_pool.h).
 *
 * What is ready of a pool (client/prealloc/) and not in use is given back before the program looks at the pool or changes it. The
 * account is of the whole process, not of a pool: too much is given back at worst. Any thread; no locks.
 */
#include "client/api/memory_pool.h"

#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/prealloc/prealloc.h"
#include "common/base/limits.h"
#include "common/cuda/host_pools/host_pools.h"
#include "generated/client/operations.h"

#include <stdatomic.h>

/* Whether pools may hold memory that they would have given back if their driver had seen all waits of the program. */
enum pools { NO_POOLS, WAITED, FREED };
static _Atomic enum pools pools;

void rg_pools_used(void)
{
    enum pools none = NO_POOLS;
    atomic_compare_exchange_strong(&pools, &none, WAITED);
}

void rg_pools_freed(void)
{
    atomic_store(&pools, FREED);
}

void rg_pools_waited(void)
{
    if (atomic_load_explicit(&pools, memory_order_relaxed) == FREED)
        atomic_store(&pools, WAITED);
}

void rg_pools_settle(void)
{
    const int state = atomic_load(&pools);
    if (state == NO_POOLS)
        return;
    rg_prealloc_give_back_pools();
    if (state == WAITED && rg_context_current_owner() &&
        rg_session_current()->op_numbers[RG_OP_rgPoolsSettle])
        (void)rg_op_rgPoolsSettle();
}

/*
 * The pools that cuMemAllocAsync takes from, as the program has chosen them (0: the device's default); lock-free, as who
 * changes the pool while others allocate does not know either which one they get.
 */
static _Atomic uint64_t current_pools[RG_DEVICES_MAX];

CUmemoryPool rg_pool_current(CUdevice device)
{
    return (CUmemoryPool)atomic_load(&current_pools[device]);
}

static void pool_ends(CUmemoryPool pool)
{
    for (unsigned device = 0; device < RG_DEVICES_MAX; device++) {
        uint64_t was = (uint64_t)pool;
        atomic_compare_exchange_strong(&current_pools[device], &was, 0);
    }
}

/* --- the API ---------------------------------------------------------------------------------------------- */

static CUresult check_pool(CUmemoryPool pool)
{
    RG_TRY(rg_call_allowed(0));
    return rg_handle_known(RG_KIND_POOL, (uint64_t)pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    RG_TRY(rg_call_allowed(0));
    if (rg_host_pool_is(pool))
        return rg_host_pool_destroy(pool);
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(pool);
    RG_TRY(rg_op_cuMemPoolDestroy(pool));
    pool_ends(pool);
    rg_handle_delete(RG_KIND_POOL, (uint64_t)pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    RG_TRY(rg_call_allowed(0));
    if (rg_host_pool_is(pool))
        return rg_host_pool_trim(pool, minBytesToKeep);
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(pool);
    return rg_op_cuMemPoolTrimTo(pool, minBytesToKeep);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(NULL); /* the next allocations are of another one */
    RG_TRY(rg_op_cuDeviceSetMemPool(dev, pool));
    if (rg_device(dev))
        atomic_store(&current_pools[dev], (uint64_t)pool);
    return CUDA_SUCCESS;
}

/* Attributes of pools are int or cuuint64_t, by name. */
static bool attribute_is_wide(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    if (rg_host_pool_is(pool))
        return rg_host_pool_set_attribute(pool, attr, value);
    if (!value || !rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    rg_prealloc_give_back_pool(pool); /* what is ready is not in use */
    unsigned long long number =
        attribute_is_wide(attr) ? *(cuuint64_t *)value : (unsigned long long)*(int *)value;
    return rg_op_rgMemPoolSetAttribute(pool, attr, number);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    if (rg_host_pool_is(pool))
        return rg_host_pool_get_attribute(pool, attr, value);
    if (!value || !rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned long long number = 0;
    rg_pools_settle();
    RG_TRY(rg_op_rgMemPoolGetAttribute(pool, attr, &number));
    if (attribute_is_wide(attr))
        *(cuuint64_t *)value = number;
    else
        *(int *)value = (int)number;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    RG_TRY(rg_call_allowed(0));
    if (rg_host_pool_is(pool))
        return rg_host_pool_set_access(pool, map, count);
    RG_TRY(check_pool(pool));
    return !map && count ? CUDA_ERROR_INVALID_VALUE : rg_op_cuMemPoolSetAccess(pool, map, count);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    RG_TRY(rg_call_allowed(0));
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pool_is(memPool))
        return rg_host_pool_get_access(flags, memPool, location);
    RG_TRY(check_pool(memPool));
    return rg_op_cuMemPoolGetAccess(flags, memPool, location);
}

/* --- pools by location: those of devices are the server's, the others are made here (host_pools.h) -------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    RG_TRY(rg_call_allowed(0));
    if (!pool || !poolProps)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pools_have(&poolProps->location, poolProps->allocType))
        return rg_host_pool_create(pool, poolProps);
    if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool made = (CUmemoryPool)rg_handle_create(RG_KIND_POOL);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return rg_handle_made(RG_KIND_POOL, (uint64_t)made, rg_op_cuMemPoolCreate(&made, poolProps), pool);
}

/* Whether the call is allowed and names what it must; that of a device's pool, also a device. */
static CUresult check_location(const void *out, const CUmemLocation *location, CUmemAllocationType type)
{
    RG_TRY(rg_call_allowed(0));
    if (!out || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pools_have(location, type))
        return CUDA_SUCCESS;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return rg_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    RG_TRY(check_location(pool_out, location, type));
    return rg_host_pools_have(location, type) ? rg_host_pool_of_location(pool_out, location, type, false)
                                              : cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    RG_TRY(check_location(pool, location, type));
    return rg_host_pools_have(location, type) ? rg_host_pool_of_location(pool, location, type, true)
                                              : cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    RG_TRY(check_location(pool, location, type));
    return rg_host_pools_have(location, type) ? rg_host_pool_set_current(location, type, pool)
                                              : cuDeviceSetMemPool(location->id, pool);
}
