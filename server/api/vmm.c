/*
 * vmm.c - physical memory of virtual memory management: handles are numbers of the driver's, which are kept
 * in the table of objects as others are. A handle that the client knows stands for one reference of the
 * driver's.
 */
#include "generated/server/execute.h"
#include "server/api/location.h"
#include "server/core/worker.h"

CUresult rg_translate_CUmemAllocationProp(struct rg_request *request, CUmemAllocationProp *properties,
                                          size_t n)
{
    (void)request;
    for (size_t i = 0; i < n; i++) {
        properties[i].win32HandleMetaData = NULL; /* an address in the client */
        if (rg_location_is_host(&properties[i].location))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuMemCreate(struct rg_request *request, uint64_t handle, size_t size,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUmemGenericAllocationHandle made = 0;
    CUresult result = rg_driver.cuMemCreate(&made, size, prop, flags);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_ALLOCATION, handle, (void *)(uintptr_t)made);
    return result;
}

CUresult rg_execute_cuMemRetainAllocationHandle(struct rg_request *request, uint64_t handle, void *addr)
{
    CUmemGenericAllocationHandle found = 0;
    RG_TRY(rg_driver.cuMemRetainAllocationHandle(&found, addr));
    void *object = (void *)(uintptr_t)found;
    if (rg_objects_find_object(&request->worker->objects, RG_KIND_ALLOCATION, object))
        (void)rg_driver.cuMemRelease(found); /* the client's handle has a reference already */
    rg_request_found(request, RG_KIND_ALLOCATION, handle, object);
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuMulticastCreate(struct rg_request *request, uint64_t handle,
                                      const CUmulticastObjectProp *prop)
{
    CUmemGenericAllocationHandle made = 0;
    CUresult result = rg_driver.cuMulticastCreate(&made, prop);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_ALLOCATION, handle, (void *)(uintptr_t)made);
    return result;
}
