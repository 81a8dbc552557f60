/* copy.c - copies from one place on the device to another. The driver orders them. */
#include "generated/server/execute.h"
#include "server/transfer/device_region.h"

CUresult rg_execute_rgCopy2D(struct rg_request *request, CUdeviceptr dst, size_t dst_pitch, CUdeviceptr src,
                             size_t src_pitch, size_t width, size_t height, CUstream stream,
                             unsigned int asynchronous)
{
    (void)request;
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = src,
        .srcPitch = src_pitch,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = dst,
        .dstPitch = dst_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    /*
     * the unaligned form takes every pitch; it has no asynchronous sibling, but between device memories it
     * waits for nothing, and works in the legacy stream as cuMemcpy2D does
     */
    return asynchronous || stream ? rg_driver.cuMemcpy2DAsync_v2(&copy, stream)
                                  : rg_driver.cuMemcpy2DUnaligned_v2(&copy);
}

CUresult rg_execute_rgBoxCopy(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray to, CUarray from,
                              CUstream stream, unsigned int asynchronous)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, false, box, from, &region) || region.bad ||
        !rg_device_region_box_side(request, box, to, false, &region.box))
        return CUDA_ERROR_INVALID_VALUE;
    return asynchronous || stream ? rg_driver.cuMemcpy3DAsync_v2(&region.box, stream)
                                  : rg_driver.cuMemcpy3D_v2(&region.box);
}

/* --- levels of mipmapped arrays: they have ended with the whole ----------------------------------------- */

CUresult rg_execute_rgLevelForget(struct rg_request *request, CUarray level)
{
    (void)request, (void)level;
    return CUDA_SUCCESS;
}
