/*
 * resource.c - what of a device a context may use: all its multiprocessors. They cannot be divided (green
 * contexts).
 */
#include "softgpu/driver/driver.h"

#include <string.h>

/*
 * Threads of blocks of a cluster run at the same time here whichever multiprocessors they are on: any one
 * will do.
 */
static CUresult describe(const struct sg_device *device, CUdevResource *resource, CUdevResourceType type)
{
    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = (unsigned)device->multiprocessors;
    resource->sm.minSmPartitionSize = resource->sm.smCount;
    resource->sm.smCoscheduledAlignment = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    RG_TRY(sg_enter());
    const struct sg_device *named = sg_device(device);
    return named == NULL ? CUDA_ERROR_INVALID_DEVICE : describe(named, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type)
{
    SG_REF(struct sg_context) context = NULL;
    if (handle == NULL) /* the manual does not say that it stands for the current one here */
        return CUDA_ERROR_INVALID_CONTEXT;
    RG_TRY(sg_context_argument(handle, &context));
    return describe(context->device, resource, type);
}
