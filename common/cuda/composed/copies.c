/*
 * copies.c - copies in two dimensions, of rows of arrays, and of boxes between devices in a stream: each is a copy of a box
 * (cuMemcpy3D), which looks at the arguments and the context.
 */
#include "common/cuda/api.h"
#include "common/cuda/copy_peer.h"

#include <stddef.h>
#include <stdint.h>

/* --- two dimensions --- */

static CUDA_MEMCPY3D box_of_2d(const CUDA_MEMCPY2D *c)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    const CUDA_MEMCPY3D box = copy ? box_of_2d(copy) : (CUDA_MEMCPY3D){0};
    return cuMemcpy3D_v2(copy ? &box : NULL);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return cuMemcpy2D_v2(copy);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    const CUDA_MEMCPY3D box = copy ? box_of_2d(copy) : (CUDA_MEMCPY3D){0};
    return cuMemcpy3DAsync_v2(copy ? &box : NULL, stream);
}

/* --- between devices --- */

/* Addresses and arrays tell by themselves whose they are. */
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    const CUDA_MEMCPY3D box = copy ? rg_cuda_copy_of_peer(copy) : (CUDA_MEMCPY3D){0};
    return cuMemcpy3DAsync_v2(copy ? &box : NULL, stream);
}

/* --- bytes of the first row of arrays --- */

/* An end of such a copy: an array and an offset in it, or memory. */
struct end {
    CUmemorytype type;
    CUarray array;
    size_t offset;
    const void *host;
    CUdeviceptr device;
};

static struct end in_array(CUarray array, size_t offset)
{
    return (struct end){.type = CU_MEMORYTYPE_ARRAY, .array = array, .offset = offset};
}

static struct end in_host(const void *host)
{
    return (struct end){.type = CU_MEMORYTYPE_HOST, .host = host};
}

static struct end in_device(CUdeviceptr device)
{
    return (struct end){.type = CU_MEMORYTYPE_DEVICE, .device = device};
}

static CUDA_MEMCPY3D row(struct end to, struct end from, size_t size)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = from.type,
        .srcArray = from.array,
        .srcXInBytes = from.offset,
        .srcHost = from.host,
        .srcDevice = from.device,
        .dstMemoryType = to.type,
        .dstArray = to.array,
        .dstXInBytes = to.offset,
        .dstHost = (void *)(uintptr_t)to.host,
        .dstDevice = to.device,
        .WidthInBytes = size,
        .Height = 1,
        .Depth = 1,
    };
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t size, CUstream stream)
{
    const CUDA_MEMCPY3D box = row(in_array(to, offset), in_host(from), size);
    return cuMemcpy3DAsync_v2(&box, stream);
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t size)
{
    const CUDA_MEMCPY3D box = row(in_array(to, offset), in_host(from), size);
    return cuMemcpy3D_v2(&box);
}

CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t size, CUstream stream)
{
    const CUDA_MEMCPY3D box = row(in_host(to), in_array(from, offset), size);
    return cuMemcpy3DAsync_v2(&box, stream);
}

CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t size)
{
    const CUDA_MEMCPY3D box = row(in_host(to), in_array(from, offset), size);
    return cuMemcpy3D_v2(&box);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size)
{
    const CUDA_MEMCPY3D box = row(in_device(to), in_array(from, offset), size);
    return cuMemcpy3D_v2(&box);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size)
{
    const CUDA_MEMCPY3D box = row(in_array(to, offset), in_device(from), size);
    return cuMemcpy3D_v2(&box);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size)
{
    const CUDA_MEMCPY3D box = row(in_array(to, to_offset), in_array(from, from_offset), size);
    return cuMemcpy3D_v2(&box);
}
