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
    SG_REF(struct sg_context) target = NULL;
    SG_REF(struct sg_context) source = NULL;
    if (to == NULL || from == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    RG_TRY(sg_context_argument(to, &target));
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

/* --- two and three dimensions --- */

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
    SG_REF(struct sg_array) array = NULL;
    RG_TRY(sg_array_get(d->array, &array));
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

static CUresult copy_described(const struct described *to, const struct described *from,
                               struct sg_transfer *t, bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    bool to_device = false, from_device = false;
    RG_TRY(sg_enter_context(&context));
    if (sg_transfer_is_empty(t))
        return CUDA_SUCCESS;
    RG_TRY(resolve(to, t, &t->to, &to_device));
    RG_TRY(resolve(from, t, &t->from, &from_device));
    if (t->from.pitch == t->to.pitch)
        sg_transfer_join_rows(t, t->to.pitch);
    return sg_transfer(t, to_device, from_device, asynchronous, stream);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    RG_TRY(sg_enter_context(&context));
    if (c == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_copy_2d(c, stream) : rg_capture_refuse(stream);
    struct described to = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0,
                           c->dstPitch,      0,          c->dstArray};
    struct described from = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0,
                             c->srcPitch,      0,          c->srcArray};
    struct sg_transfer t = {.width = c->WidthInBytes, .height = c->Height, .depth = 1};
    return copy_described(&to, &from, &t, asynchronous, stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, false, NULL);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, false, NULL);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, true, stream);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, bool asynchronous, bool in_order, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    RG_TRY(sg_enter_context(&context));
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_copy(c, stream) : rg_capture_refuse(stream);
    if (c == NULL || c->srcLOD != 0 || c->dstLOD != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct described to = {c->dstMemoryType, c->dstHost,  c->dstDevice, c->dstXInBytes, c->dstY,
                           c->dstZ,          c->dstPitch, c->dstHeight, c->dstArray};
    struct described from = {c->srcMemoryType, c->srcHost,  c->srcDevice, c->srcXInBytes, c->srcY,
                             c->srcZ,          c->srcPitch, c->srcHeight, c->srcArray};
    struct sg_transfer t = {
        .width = c->WidthInBytes, .height = c->Height, .depth = c->Depth, .in_order = in_order};
    return copy_described(&to, &from, &t, asynchronous, stream);
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
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    RG_TRY(sg_enter_context(&context));
    if (c == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D copy = rg_cuda_copy_of_peer(c);
    return copy_3d(&copy, asynchronous, false, stream);
}

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
    RG_TRY(copy_3d_peer(copy, false, NULL));
    return sg_peer_order_after(to, from);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    return copy_3d_peer(copy, true, stream);
}

/* --- bytes of the first row of arrays --- */

static CUresult copy_row(struct described to, struct described from, size_t size, bool asynchronous,
                         CUstream stream)
{
    struct sg_transfer t = {.width = size, .height = 1, .depth = 1};
    RG_TRY(sg_enter());
    if (rg_capture_takes(stream)) {
        CUDA_MEMCPY3D copy = {
            .srcXInBytes = from.x,
            .srcMemoryType = from.type,
            .srcHost = from.host,
            .srcDevice = from.device,
            .srcArray = from.array,
            .dstXInBytes = to.x,
            .dstMemoryType = to.type,
            .dstHost = (void *)(uintptr_t)to.host,
            .dstDevice = to.device,
            .dstArray = to.array,
            .WidthInBytes = size,
            .Height = 1,
            .Depth = 1,
        };
        return asynchronous ? rg_capture_copy(&copy, stream) : rg_capture_refuse(stream);
    }
    return copy_described(&to, &from, &t, asynchronous, stream);
}

static struct described array_side(CUarray array, size_t offset)
{
    return (struct described){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static struct described host_side(const void *host)
{
    return (struct described){.type = CU_MEMORYTYPE_HOST, .host = host};
}

static struct described device_side(CUdeviceptr device)
{
    return (struct described){.type = CU_MEMORYTYPE_DEVICE, .device = device};
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t size)
{
    return copy_row(array_side(to, offset), host_side(from), size, false, NULL);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t size, CUstream stream)
{
    return copy_row(array_side(to, offset), host_side(from), size, true, stream);
}

CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t size)
{
    return copy_row(host_side(to), array_side(from, offset), size, false, NULL);
}

CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t size, CUstream stream)
{
    return copy_row(host_side(to), array_side(from, offset), size, true, stream);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size)
{
    return copy_row(device_side(to), array_side(from, offset), size, false, NULL);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size)
{
    return copy_row(array_side(to, offset), device_side(from), size, false, NULL);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size)
{
    return copy_row(array_side(to, to_offset), array_side(from, from_offset), size, false, NULL);
}
