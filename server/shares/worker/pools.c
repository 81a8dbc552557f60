/*
 * pools.c - stream-ordered memory. A pool is charged by what it has reserved, used or not; so only an allocation that makes it
 * reserve more can be too much. It may then reserve in steps of the driver's: charged afterwards, and undone where that is too
 * much although what the pools keep ready has been given back.
 */
#include "server/shares/worker/memory.h"

/* What an allocation will make the pool reserve at least. */
static uint64_t growth(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t reserved = 0, used = 0;
    if (rg_share_direct.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
            CUDA_SUCCESS ||
        rg_share_direct.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS)
        return bytes;
    const uint64_t spare = reserved > used ? reserved - used : 0;
    return bytes > spare ? bytes - spare : 0;
}

static CUresult give_back(CUdeviceptr address, CUmemoryPool pool, CUstream stream, CUdevice device)
{
    if (rg_share_direct.cuMemFreeAsync(address, stream) == CUDA_SUCCESS)
        (void)rg_share_direct.cuStreamSynchronize(stream);
    (void)rg_share_direct.cuMemPoolTrimTo(pool, 0);
    rg_meter_look(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory whose free is queued is waited for before more is refused, as the driver does. */
static bool begin(struct rg_meter *meter, CUdevice device, CUmemoryPool pool, uint64_t bytes)
{
    if (rg_meter_begin(meter, device, growth(pool, bytes)))
        return true;
    return rg_share_direct.cuCtxSynchronize() == CUDA_SUCCESS &&
           rg_meter_begin(meter, device, growth(pool, bytes));
}

/* Memory comes from the pool of the stream's device, which need not be that of the thread's context. */
static bool device_of(CUstream stream, CUdevice *device)
{
    return (rg_share.n_devices > 1 && rg_share_direct.cuStreamGetDevice(stream, device) == CUDA_SUCCESS) ||
           rg_meter_current(device);
}

/* `named`: the pool that the program has named; NULL: the device's current one. */
static CUresult allocate(CUdeviceptr *out, size_t size, CUmemoryPool named, CUstream stream)
{
    struct rg_meter meter;
    CUdevice device;
    CUmemoryPool pool = named;
    bool known = device_of(stream, &device);
    if (known && !pool)
        known = rg_share_direct.cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS;
    if (known && !rg_meter_pool_device(pool, &device)) {
        known = !named; /* another session's: nothing can be allocated from it */
        if (known)
            rg_meter_pool_add(pool, device);
    }
    if (known && !begin(&meter, device, pool, rg_meter_round(size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = named ? rg_share_direct.cuMemAllocFromPoolAsync(out, size, named, stream)
                                  : rg_share_direct.cuMemAllocAsync(out, size, stream);
    if (!known)
        return result;
    return rg_meter_pool_end(&meter, result) ? result : give_back(*out, pool, stream, device);
}

static CUresult allocate_async(CUdeviceptr *out, size_t size, CUstream stream)
{
    return allocate(out, size, NULL, stream);
}

static CUresult allocate_from_pool(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    return allocate(out, size, pool, stream);
}

static CUresult create(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    const CUresult result = rg_share_direct.cuMemPoolCreate(out, properties);
    if (result == CUDA_SUCCESS && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        rg_meter_pool_add(*out, properties->location.id);
    return result;
}

static CUresult destroy(CUmemoryPool pool)
{
    const CUresult result = rg_share_direct.cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS)
        rg_meter_pool_drop(pool);
    return result;
}

static CUresult trim(CUmemoryPool pool, size_t keep)
{
    CUdevice device;
    const CUresult result = rg_share_direct.cuMemPoolTrimTo(pool, keep);
    if (result == CUDA_SUCCESS && rg_meter_pool_device(pool, &device))
        rg_meter_look(device);
    return result;
}

void rg_share_enter_pools(void)
{
    RG_SHARE_ENTER(cuMemAllocAsync, allocate_async);
    RG_SHARE_ENTER(cuMemAllocFromPoolAsync, allocate_from_pool);
    RG_SHARE_ENTER(cuMemPoolCreate, create);
    RG_SHARE_ENTER(cuMemPoolDestroy, destroy);
    RG_SHARE_ENTER(cuMemPoolTrimTo, trim);
}
