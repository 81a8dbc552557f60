/*
 * memory.c - properties and attributes of memory pools, whose width depends on the attribute; memory that is
 * freed.
 */
#include "generated/server/execute.h"
#include "server/api/location.h"
#include "server/core/worker.h"
#include "server/prealloc/pools.h"
#include "server/transfer/gpudirect.h"

#include <string.h>

/* The first three are ints, all later ones 64-bit numbers. */
static bool is_int(CUmemPool_attribute attribute)
{
    return attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult rg_translate_CUmemPoolProps(struct rg_request *request, CUmemPoolProps *properties, size_t n)
{
    (void)request;
    for (size_t i = 0; i < n; i++) {
        properties[i].win32SecurityAttributes = NULL; /* an address in the client */
        if (properties[i].allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ||
            rg_location_is_host(&properties[i].location))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult rg_translate_CUmemDecompressParams(struct rg_request *request, CUmemDecompressParams *parts,
                                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t from = (uintptr_t)parts[i].src, to = (uintptr_t)parts[i].dst,
                       told = (uintptr_t)parts[i].dstActBytes;
        if (!rg_request_device_memory(request, from, 0, parts[i].srcNumBytes, 1) ||
            !rg_request_device_memory(request, to, 0, parts[i].dstNumBytes, 1) ||
            (told && !rg_request_device_memory(request, told, 0, sizeof(cuuint32_t), 1)))
            return request->result;
        memset(parts[i].padding, 0, sizeof parts[i].padding);
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemPoolSetAttribute(struct rg_request *request, CUmemoryPool pool,
                                          CUmemPool_attribute attr, unsigned long long value)
{
    int number = (int)value;
    CUresult result = rg_driver.cuMemPoolSetAttribute(pool, attr, is_int(attr) ? (void *)&number : &value);
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        rg_prealloc_pool_reset(request->worker, pool);
    return result;
}

CUresult rg_execute_rgMemPoolGetAttribute(struct rg_request *request, CUmemoryPool pool,
                                          CUmemPool_attribute attr, unsigned long long *value)
{
    int number = 0;
    CUresult result = rg_driver.cuMemPoolGetAttribute(pool, attr, is_int(attr) ? (void *)&number : value);
    if (is_int(attr))
        *value = (unsigned)number;
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        (void)rg_prealloc_pool_high(request->worker, pool, value);
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        rg_prealloc_pool_reserved(request->worker, pool, value);
    return result;
}

CUresult rg_execute_cuMemFree_v2(struct rg_request *request, CUdeviceptr dptr)
{
    struct rg_gpudirect_area *area = rg_gpudirect_take(request->worker, dptr);
    rg_request_may_block(request, true);
    rg_gpudirect_end(request, area);
    return rg_driver.cuMemFree_v2(dptr);
}

CUresult rg_execute_cuMemFreeAsync(struct rg_request *request, CUdeviceptr dptr, CUstream hStream)
{
    rg_gpudirect_end(request, rg_gpudirect_take(request->worker,
                                                dptr)); /* memory that is no pool's can be freed so, too */
    rg_worker_memory_of_pools(request->worker);
    return rg_driver.cuMemFreeAsync(dptr, hStream);
}
