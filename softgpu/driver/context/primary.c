/*
 * primary.c - the primary context of each device: one object for the life of the device that is switched on
 * by the first retain and off by the last release.
 *
 * Each life has a generation number, by which things of an earlier life are known as dead. All of it is under
 * the process's lock.
 */
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/core/device.h"

static CUresult primary_retain(struct sg_device *device)
{
    struct sg_context *context = device->primary;
    RG_SCOPED_LOCK(&sg_state.lock);
    const CUresult started = context->retained == 0 ? sg_context_start(context) : CUDA_SUCCESS;
    if (started == CUDA_SUCCESS)
        context->retained++;
    return started;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(primary_retain(device));
    *out = sg_context_handle(device->primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    struct sg_context *context = device->primary;
    RG_SCOPED_LOCK(&sg_state.lock);
    bool held = context->retained > 0;
    bool last = held && --context->retained == 0;
    if (last)
        sg_context_stop(context);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    struct sg_context *context = device->primary;
    RG_SCOPED_LOCK(&sg_state.lock);
    if (context->retained > 0) {
        sg_context_stop(context);
        context->flags = 0;
        sg_context_start(context); /* those who hold it go on with an empty one */
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (!sg_context_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_state.lock);
    device->primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_state.lock);
    *flags = device->primary->flags;
    *active = device->primary->retained > 0;
    return CUDA_SUCCESS;
}
