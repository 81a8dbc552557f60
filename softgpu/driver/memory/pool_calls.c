/*
 * pool_calls.c - pools as applications make, set and ask them. What is in them: pool.c.
 *
 * Locks: the state's for which pool is a device's current one, a pool's own for what is set.
 */
#include "common/cuda/host_pools/host_pools.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/pool.h"
#include "softgpu/driver/range/range.h"

static CUresult location_device(const CUmemLocation *location, struct sg_device **device)
{
    if (location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *device = sg_device(location->id);
    return *device != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (out == NULL || properties == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pools_have(&properties->location, properties->allocType))
        return rg_host_pool_create(out, properties);
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    const bool to_share = properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!to_share && properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return sg_unsupported("a pool that is shared by other than descriptors");
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
    if (rg_host_pool_is(handle))
        return rg_host_pool_destroy(handle);
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
    SG_DEVICE_OR_RETURN(device, ordinal);
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
    SG_DEVICE_OR_RETURN(device, ordinal);
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || pool->device != device || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_state.lock);
    device->current_pool = pool; /* destroying the pool resets this first */
    return CUDA_SUCCESS;
}

static CUresult location_pool(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type,
                              bool current)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (out == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pools_have(location, type))
        return rg_host_pool_of_location(out, location, type, current);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(location_device(location, &device));
    return device_pool(out, device->ordinal, current);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    return location_pool(out, location, type, false);
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    return location_pool(out, location, type, true);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    struct sg_device *device;
    RG_TRY(sg_enter());
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_host_pools_have(location, type))
        return rg_host_pool_set_current(location, type, pool);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(location_device(location, &device));
    return cuDeviceSetMemPool(device->ordinal, pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    RG_TRY(sg_enter());
    if (rg_host_pool_is(handle))
        return rg_host_pool_trim(handle, keep);
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_pool_release_above(pool, keep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    RG_TRY(sg_enter());
    if (rg_host_pool_is(handle))
        return rg_host_pool_get_attribute(handle, attribute, value);
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
        *(cuuint64_t *)value = sg_pool_in_use(pool);
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
    if (rg_host_pool_is(handle))
        return rg_host_pool_set_attribute(handle, attribute, value);
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
            pool->used_high = sg_pool_in_use(pool);
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
    if (rg_host_pool_is(handle))
        return rg_host_pool_set_access(handle, map, count);
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
    if (rg_host_pool_is(handle))
        return rg_host_pool_get_access(flags, handle, location);
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (pool == NULL || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(location_device(location, &device));
    RG_SCOPED_LOCK(&pool->lock);
    *flags = (CUmemAccess_flags)pool->peer_access[device->ordinal];
    return CUDA_SUCCESS;
}

void rg_host_pool_backend_release(CUdeviceptr address, bool managed)
{
    if (managed)
        (void)sg_range_free(address, SG_RANGE_MANAGED);
    else
        (void)sg_range_host_free((void *)(uintptr_t)address, SG_RANGE_HOST);
}
