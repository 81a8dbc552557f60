/* primary.c - see primary.h. */
#include "common/cuda/composed/primary.h"

CUresult rg_call_in_primary_context(CUdevice device, CUresult (*call)(void *arguments), void *arguments)
{
    unsigned flags;
    int active = 0;
    CUcontext primary, none;
    CUresult result = cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuCtxPushCurrent_v2(primary);
    if (result == CUDA_SUCCESS) {
        result = call(arguments);
        (void)cuCtxPopCurrent_v2(&none);
    }
    if (active || result != CUDA_SUCCESS)
        (void)cuDevicePrimaryCtxRelease_v2(device);
    return result;
}
