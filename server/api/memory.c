/*
 * memory.c - properties and attributes of memory pools, whose width depends on the attribute; memory that is
 * freed.
 */
#include "generated/server/execute.h"
#include "server/core/worker.h"
#include "server/prealloc/prealloc.h"
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
    for (size_t i = 0; i < n; i++)
        properties[i].win32SecurityAttributes = NULL; /* an address in the client */
    return CUDA_SUCCESS;
}

/* Addresses that the driver knows as its memory or page-locked; nothing else that a device may reach here. */
CUresult rg_translate_CUmemDecompressParams(struct rg_request *request, CUmemDecompressParams *parts,
                                            size_t n)
{
    (void)request;
    if (!rg_driver.cuPointerGetAttribute)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < n; i++) {
        const void *used[] = {parts[i].src, parts[i].dst, parts[i].dstActBytes};
        for (size_t k = 0; k < sizeof used / sizeof *used; k++) {
            unsigned type;
            if (used[k] && rg_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                           (CUdeviceptr)(uintptr_t)used[k]) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_VALUE;
        }
        memset(parts[i].padding, 0, sizeof parts[i].padding);
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemPoolSetAttribute(struct rg_request *request, CUmemoryPool pool,
                                          CUmemPool_attribute attr, unsigned long long value)
{
    int number = (int)value;
    if (!rg_driver.cuMemPoolSetAttribute)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemPoolSetAttribute(pool, attr, is_int(attr) ? (void *)&number : &value);
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        rg_prealloc_pool_reset(request->worker, pool);
    return result;
}

CUresult rg_execute_rgMemPoolGetAttribute(struct rg_request *request, CUmemoryPool pool,
                                          CUmemPool_attribute attr, unsigned long long *value)
{
    int number = 0;
    if (!rg_driver.cuMemPoolGetAttribute)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemPoolGetAttribute(pool, attr, is_int(attr) ? (void *)&number : value);
    if (is_int(attr))
        *value = (unsigned)number;
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        (void)rg_prealloc_pool_high(request->worker, pool, value);
    return result;
}

CUresult rg_execute_cuMemFree_v2(struct rg_request *request, CUdeviceptr dptr)
{
    if (!rg_driver.cuMemFree_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_gpudirect_area *area = rg_gpudirect_take(request->worker, dptr);
    rg_request_may_block(request, true);
    rg_gpudirect_end(request, area);
    return rg_driver.cuMemFree_v2(dptr);
}

CUresult rg_execute_cuMemFreeAsync(struct rg_request *request, CUdeviceptr dptr, CUstream hStream)
{
    if (!rg_driver.cuMemFreeAsync)
        return CUDA_ERROR_NOT_SUPPORTED;
    rg_gpudirect_end(request, rg_gpudirect_take(request->worker,
                                                dptr)); /* memory that is no pool's can be freed so, too */
    return rg_driver.cuMemFreeAsync(dptr, hStream);
}
