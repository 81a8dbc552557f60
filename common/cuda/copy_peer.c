/* copy_peer.c - see copy_peer.h. */
#include "common/cuda/copy_peer.h"

CUDA_MEMCPY3D rg_cuda_copy_of_peer(const CUDA_MEMCPY3D_PEER *c)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcZ = c->srcZ,
        .srcLOD = c->srcLOD,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .srcHeight = c->srcHeight,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstZ = c->dstZ,
        .dstLOD = c->dstLOD,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .dstHeight = c->dstHeight,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = c->Depth,
    };
}

void rg_cuda_contexts_of_peer(const CUDA_MEMCPY3D_PEER *c, CUcontext *to, CUcontext *from)
{
    *to = c->dstMemoryType == CU_MEMORYTYPE_HOST ? NULL : c->dstContext;
    *from = c->srcMemoryType == CU_MEMORYTYPE_HOST ? NULL : c->srcContext;
}
