/*
 * copy.c - the copies of the API: each describes what it copies as two sides, which sg_transfer moves (transfer.h).
 *
 * An array is device memory whose rows, and the place of each, are the array's own (array.h).
 */
#include "softgpu/driver/memory/copy.h"

#include "common/cuda/copy_peer.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/peer_order.h"
#include "softgpu/driver/memory/transfer.h"

/* --- one dimension --- */

static CUresult copy_1d(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t size,
                        bool asynchronous, CUstream stream)
{
    struct sg_transfer t = {.to.address = to, .from.address = from, .width = size, .height = 1, .depth = 1};
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED, from,
                                        from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED, size,
                                        stream);
    return sg_transfer(&t, to_device, from_device, asynchronous, stream);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    return copy_1d(to, false, from, false, size, false, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    return copy_1d(to, false, from, false, size, true, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    return copy_1d(to, true, (uintptr_t)from, false, size, false, NULL);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    return copy_1d(to, true, (uintptr_t)from, false, size, true, stream);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    return copy_1d((uintptr_t)to, false, from, true, size, false, NULL);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    return copy_1d((uintptr_t)to, false, from, true, size, true, stream);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    return copy_1d(to, true, from, true, size, false, NULL);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    return copy_1d(to, true, from, true, size, true, stream);
}

static CUresult check_peers(CUcontext to, CUcontext from)
{
    SG_REF(struct sg_context) source = NULL;
    if (to == NULL || from == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    SG_CONTEXT_ARGUMENT_OR_RETURN(target, to);
    return sg_context_argument(from, &source);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t size)
{
    SG_IMPLY_CONTEXT(SG_KIND_CONTEXT, to_context);
    RG_TRY(check_peers(to_context, from_context));
    if (rg_capture_takes(NULL))
        return rg_capture_refuse(NULL);
    RG_TRY(sg_peer_order_before(to_context, from_context));
    RG_TRY(copy_1d(to, true, from, true, size, false, NULL));
    return sg_peer_order_after(to_context, from_context);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t size, CUstream stream)
{
    RG_TRY(check_peers(to_context, from_context));
    return copy_1d(to, true, from, true, size, true, stream);
}

/* --- boxes, as which copies in two dimensions and of arrays come, too (common/cuda/composed/copies.c) --- */

/* One side of a copy as the API describes it. */
struct described {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, rows; /* rows: of a slice */
    CUarray array;
};

/* The part of an array; whole texels of it. */
static CUresult resolve_array(const struct described *d, const struct sg_transfer *t, struct sg_side *side)
{
    SG_ARRAY_OR_RETURN(array, d->array);
    const uint64_t row = (uint64_t)array->width * array->texel_size;
    if (d->x > row || t->width > row - d->x || d->y > array->height || t->height > array->height - d->y ||
        d->z > array->depth || t->depth > array->depth - d->z || d->x % array->texel_size != 0 ||
        t->width % array->texel_size != 0)
        return CUDA_ERROR_INVALID_VALUE;
    side->pitch = array->pitch;
    side->slice = array->pitch * array->height;
    side->address = array->base + d->z * side->slice + d->y * array->pitch + d->x;
    return CUDA_SUCCESS;
}

static CUresult resolve(const struct described *d, const struct sg_transfer *t, struct sg_side *side,
                        bool *device)
{
    uint64_t base;
    switch (d->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)d->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = d->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        *device = true;
        return resolve_array(d, t, side);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* an offset may be larger than the pitch, as on a GPU (as the textures of Dr.Jit want): then it leads into a later row */
    uint64_t row_end, skip, slices;
    if (base == 0 || __builtin_add_overflow(d->x, t->width, &row_end))
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = d->pitch != 0 ? d->pitch : row_end;
    size_t rows = d->rows != 0 ? d->rows : d->y + t->height;
    if (pitch < t->width || (t->depth > 1 && (rows < t->height || rows - t->height < d->y)))
        return CUDA_ERROR_INVALID_VALUE;
    if (pitch > SG_MAX_PITCH && (t->height > 1 || t->depth > 1)) /* of host memory, too */
        return CUDA_ERROR_INVALID_VALUE;
    *device = d->type == CU_MEMORYTYPE_DEVICE;
    side->pitch = pitch;
    if (__builtin_mul_overflow(pitch, rows, &side->slice) ||
        __builtin_mul_overflow(d->z, side->slice, &slices) || __builtin_mul_overflow(d->y, pitch, &skip) ||
        __builtin_add_overflow(skip, slices, &skip) || __builtin_add_overflow(skip, d->x, &skip) ||
        __builtin_add_overflow(base, skip, &side->address))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, bool asynchronous, bool in_order, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    SG_CONTEXT_OR_RETURN(context);
    if (c == NULL || c->srcLOD != 0 || c->dstLOD != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_copy(c, stream) : rg_capture_refuse(stream);
    const struct described to = {c->dstMemoryType, c->dstHost,  c->dstDevice, c->dstXInBytes, c->dstY,
                                 c->dstZ,          c->dstPitch, c->dstHeight, c->dstArray};
    const struct described from = {c->srcMemoryType, c->srcHost,  c->srcDevice, c->srcXInBytes, c->srcY,
                                   c->srcZ,          c->srcPitch, c->srcHeight, c->srcArray};
    bool to_device = false, from_device = false;
    struct sg_transfer t = {
        .width = c->WidthInBytes, .height = c->Height, .depth = c->Depth, .in_order = in_order};
    if (sg_transfer_is_empty(&t))
        return CUDA_SUCCESS;
    RG_TRY(resolve(&to, &t, &t.to, &to_device));
    RG_TRY(resolve(&from, &t, &t.from, &from_device));
    if (t.from.pitch == t.to.pitch)
        sg_transfer_join_rows(&t, t.to.pitch);
    return sg_transfer(&t, to_device, from_device, asynchronous, stream);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, false, false, NULL);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, true, false, stream);
}

CUresult sg_copy_in_order(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, true, true, stream);
}

/* Between contexts: all devices are this process's memory. */
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
    SG_IMPLY_CONTEXT(SG_KIND_CONTEXT, copy != NULL ? copy->dstContext : NULL);
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(NULL))
        return rg_capture_refuse(NULL);
    CUcontext to, from;
    rg_cuda_contexts_of_peer(copy, &to, &from);
    RG_TRY(sg_peer_order_before(to, from));
    const CUDA_MEMCPY3D box = rg_cuda_copy_of_peer(copy);
    RG_TRY(copy_3d(&box, false, false, NULL));
    return sg_peer_order_after(to, from);
}
