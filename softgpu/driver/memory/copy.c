/*
 * copy.c - copies and fills of linear and pitched memory, and copies with arrays.
 *
 * Every form comes down to a `transfer`: rows and slices of bytes between two sides. A side is device memory
 * (checked against the allocations), page-locked or pageable host memory. When a call waits follows the API's
 * rules:
 *   - between device memories: never;
 *   - to or from pageable memory: a small source is staged at the call, everything else is waited for;
 *   - page-locked memory: the asynchronous forms never wait, and read or write at their place in the stream.
 * An array is device memory whose rows, and the place of each, are the array's own (array.h).
 */
#include <string.h>

#include "common/cuda/copy_peer.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/memory/peer_order.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

#define STAGED_MAX 65536

enum place { PLACE_DEVICE, PLACE_LOCKED, PLACE_PAGEABLE };

struct side {
    uint64_t address; /* of the first byte moved */
    size_t pitch, slice;
    enum place place;
};

struct transfer {
    struct side to, from;
    size_t width, height, depth;
    uint32_t fill_size; /* 0: a copy; else bytes of an element, `from` unused */
    uint32_t fill_value;
    bool in_order; /* a graph's: all host memory is as page-locked memory is */
};

static void move_row(unsigned char *to, const struct transfer *t, const unsigned char *from)
{
    if (t->fill_size == 0) {
        memmove(to, from, t->width);
    } else if (t->fill_size == 1) {
        memset(to, (int)t->fill_value, t->width);
    } else if (t->fill_size == 2) {
        uint16_t *p = (uint16_t *)(void *)to;
        for (size_t i = 0; i < t->width / 2; i++)
            p[i] = (uint16_t)t->fill_value;
    } else {
        uint32_t *p = (uint32_t *)(void *)to;
        for (size_t i = 0; i < t->width / 4; i++)
            p[i] = t->fill_value;
    }
}

static void move(const struct transfer *t)
{
    for (size_t z = 0; z < t->depth; z++)
        for (size_t y = 0; y < t->height; y++)
            move_row(
                (unsigned char *)(uintptr_t)(t->to.address + z * t->to.slice + y * t->to.pitch), t,
                (const unsigned char *)(uintptr_t)(t->from.address + z * t->from.slice + y * t->from.pitch));
}

/* Bytes from the first one moved to behind the last; false if that overflows. */
static bool extent(const struct transfer *t, const struct side *side, uint64_t *bytes)
{
    uint64_t rows, slices;
    return !__builtin_mul_overflow((uint64_t)(t->height - 1), (uint64_t)side->pitch, &rows) &&
           !__builtin_mul_overflow((uint64_t)(t->depth - 1), (uint64_t)side->slice, &slices) &&
           !__builtin_add_overflow(rows, slices, bytes) && !__builtin_add_overflow(*bytes, t->width, bytes) &&
           side->address + *bytes >= side->address;
}

/* Whether the side, if it is device memory, is still there. */
static bool held(const struct transfer *t, const struct side *side)
{
    uint64_t bytes;
    return !sg_address_is_device(side->address) ||
           (extent(t, side, &bytes) && sg_range_allows(side->address, bytes, side == &t->to));
}

/* Memory that was freed by a stream that did not wait for this one is met as a device would meet it. */
static void run_transfer(struct sg_task *task)
{
    const struct transfer *t = (const void *)task->payload;
    bool from_held = t->fill_size != 0 || held(t, &t->from);
    if (from_held && held(t, &t->to)) {
        move(t);
        return;
    }
    rg_warn("a copy or fill was queued for memory at 0x%llx that has been freed since",
            (unsigned long long)(from_held ? t->to.address : t->from.address));
    sg_context_poison(task->stream->object.context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What kind of memory the side is. `device`: the call says it is device memory, so it must be known. */
static CUresult place_side(const struct transfer *t, struct side *side, bool device)
{
    struct sg_range range;
    uint64_t bytes;
    if (!extent(t, side, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_range_find(side->address, &range)) {
        if (device || side->address == 0 || sg_address_is_device(side->address))
            return CUDA_ERROR_INVALID_VALUE;
        side->place = PLACE_PAGEABLE;
        return CUDA_SUCCESS;
    }
    bool host = range.kind == SG_RANGE_HOST || range.kind == SG_RANGE_REGISTERED;
    bool inside = range.kind == SG_RANGE_MAPPED ? sg_range_allows(side->address, bytes, side == &t->to)
                                                : bytes <= range.size - (side->address - range.base);
    if (!inside && (!host || device))
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_range_is_managed(
            range.kind)) /* the host sees it too: synchronous calls must have done their work */
        side->place = PLACE_LOCKED;
    else
        side->place = !host ? PLACE_DEVICE : inside ? PLACE_LOCKED : PLACE_PAGEABLE;
    return CUDA_SUCCESS;
}

static bool empty(const struct transfer *t)
{
    return t->width == 0 || t->height == 0 || t->depth == 0;
}

/* Makes one row of rows that follow each other without a gap. */
static void join_rows(struct transfer *t, size_t pitch)
{
    size_t bytes;
    if (pitch == t->width && t->depth == 1 && !__builtin_mul_overflow(t->width, t->height, &bytes)) {
        t->width = bytes;
        t->height = 1;
    }
}

/* A task of the transfer; `staged`: the source's bytes are taken along now. */
static struct sg_task *transfer_task(const struct transfer *t, size_t staged)
{
    struct sg_task *task = sg_task_new(sizeof *t + staged, run_transfer, NULL);
    if (task == NULL)
        return NULL;
    struct transfer *mine = (void *)task->payload;
    *mine = *t;
    if (staged > 0) {
        struct transfer stage = *t;
        mine->from = (struct side){(uintptr_t)(mine + 1), t->width, t->width * t->height, PLACE_PAGEABLE};
        stage.to = mine->from;
        move(&stage);
    }
    return task;
}

/* Whether a synchronous copy returns when its source has been read, which NVIDIA's driver may. */
static bool is_early(const struct transfer *t, bool asynchronous, bool small)
{
    return sg_behaviour()->nvidia && !asynchronous && small && t->from.place == PLACE_PAGEABLE &&
           t->to.place == PLACE_DEVICE && t->fill_size == 0 && sg_behave_chance(2) == 0;
}

static CUresult transfer(struct transfer *t, bool to_device, bool from_device, bool asynchronous,
                         CUstream handle)
{
    SG_REF(struct sg_stream) stream = NULL;
    RG_TRY(sg_stream_get(handle, &stream));
    if (empty(t))
        return CUDA_SUCCESS;
    RG_TRY(place_side(t, &t->to, to_device));
    if (t->fill_size == 0)
        RG_TRY(place_side(t, &t->from, from_device));
    else
        t->from.place = PLACE_DEVICE;
    if (t->in_order) {
        t->to.place = t->to.place == PLACE_PAGEABLE ? PLACE_LOCKED : t->to.place;
        t->from.place = t->from.place == PLACE_PAGEABLE ? PLACE_LOCKED : t->from.place;
    }
    bool pageable = t->to.place == PLACE_PAGEABLE || t->from.place == PLACE_PAGEABLE;
    bool on_device = t->to.place == PLACE_DEVICE && t->from.place == PLACE_DEVICE;
    bool wait = asynchronous ? pageable : !on_device;
    size_t staged = 0;
    const bool small = t->width <= STAGED_MAX && t->height * t->depth <= STAGED_MAX / t->width;
    if (asynchronous && t->from.place == PLACE_PAGEABLE && t->to.place != PLACE_PAGEABLE && small) {
        staged = t->width * t->height * t->depth;
        wait = false;
    }
    if (is_early(t, asynchronous, small)) {
        /* by the rules for pageable sources: what is before has been waited for, and the copy need not have been made */
        sg_stream_wait(stream);
        staged = t->width * t->height * t->depth;
        wait = false;
    } else if (asynchronous && staged > 0 && sg_behave_chance(4) == 1) { /* nor need it be asynchronous */
        wait = true;
    }
    struct sg_task *task = transfer_task(t, staged);
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!wait) {
        if (small)
            sg_submit_small(stream, task);
        else
            sg_submit(stream, task, NULL);
        return CUDA_SUCCESS;
    }
    sg_submit_wait(stream, task);
    if (!asynchronous)
        sg_exec_flush_output();
    return (CUresult)atomic_load(&stream->object.context->sticky);
}

/* --- one dimension --- */

static CUresult copy_1d(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t size,
                        bool asynchronous, CUstream stream)
{
    struct transfer t = {.to.address = to, .from.address = from, .width = size, .height = 1, .depth = 1};
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED, from,
                                        from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED, size,
                                        stream);
    return transfer(&t, to_device, from_device, asynchronous, stream);
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
static CUresult resolve_array(const struct described *d, const struct transfer *t, struct side *side)
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

static CUresult resolve(const struct described *d, const struct transfer *t, struct side *side, bool *device)
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
    uint64_t row_end, skip, slices;
    if (base == 0 || __builtin_add_overflow(d->x, t->width, &row_end))
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = d->pitch != 0 ? d->pitch : row_end;
    size_t rows = d->rows != 0 ? d->rows : d->y + t->height;
    if (pitch < row_end || (t->depth > 1 && (rows < t->height || rows - t->height < d->y)))
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

static CUresult copy_described(const struct described *to, const struct described *from, struct transfer *t,
                               bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    bool to_device = false, from_device = false;
    RG_TRY(sg_enter_context(&context));
    if (empty(t))
        return CUDA_SUCCESS;
    RG_TRY(resolve(to, t, &t->to, &to_device));
    RG_TRY(resolve(from, t, &t->from, &from_device));
    if (t->from.pitch == t->to.pitch)
        join_rows(t, t->to.pitch);
    return transfer(t, to_device, from_device, asynchronous, stream);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, bool limit_pitch, bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    RG_TRY(sg_enter_context(&context));
    if (c == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_copy_2d(c, stream) : rg_capture_refuse(stream);
    if (limit_pitch && c->Height > 1 &&
        ((c->srcMemoryType == CU_MEMORYTYPE_DEVICE && c->srcPitch > SG_MAX_PITCH) ||
         (c->dstMemoryType == CU_MEMORYTYPE_DEVICE && c->dstPitch > SG_MAX_PITCH)))
        return CUDA_ERROR_INVALID_VALUE;
    struct described to = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0,
                           c->dstPitch,      0,          c->dstArray};
    struct described from = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0,
                             c->srcPitch,      0,          c->srcArray};
    struct transfer t = {.width = c->WidthInBytes, .height = c->Height, .depth = 1};
    return copy_described(&to, &from, &t, asynchronous, stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, true, false, NULL);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, false, false, NULL);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, true, true, stream);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, bool asynchronous, bool in_order, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    RG_TRY(sg_enter_context(&context));
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_copy(c, stream) : rg_capture_refuse(stream);
    if (c == NULL || c->srcLOD != 0 || c->dstLOD != 0 || c->reserved0 != NULL || c->reserved1 != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct described to = {c->dstMemoryType, c->dstHost,  c->dstDevice, c->dstXInBytes, c->dstY,
                           c->dstZ,          c->dstPitch, c->dstHeight, c->dstArray};
    struct described from = {c->srcMemoryType, c->srcHost,  c->srcDevice, c->srcXInBytes, c->srcY,
                             c->srcZ,          c->srcPitch, c->srcHeight, c->srcArray};
    struct transfer t = {
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
    struct transfer t = {.width = size, .height = 1, .depth = 1};
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

/* --- fills --- */

static CUresult fill(uint64_t to, size_t pitch, uint32_t value, uint32_t size, size_t width, size_t height,
                     bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_context *context;
    struct transfer t = {.to = {.address = to, .pitch = pitch},
                         .height = height,
                         .depth = 1,
                         .fill_size = size,
                         .fill_value = value};
    RG_TRY(sg_enter_context(&context));
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_fill(to, pitch, value, size, width, height, stream)
                            : rg_capture_refuse(stream);
    if (__builtin_mul_overflow(width, size, &t.width) || to % size != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (height > 1 && (pitch < t.width || pitch % size != 0))
        return CUDA_ERROR_INVALID_VALUE;
    join_rows(&t, pitch);
    return transfer(&t, true, false, asynchronous, stream);
}

#define FILLS(suffix, type, bytes)                                                                           \
    CUresult cuMemsetD##suffix##_v2(CUdeviceptr to, type value, size_t n)                                    \
    {                                                                                                        \
        return fill(to, 0, value, bytes, n, 1, false, NULL);                                                 \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##Async(CUdeviceptr to, type value, size_t n, CUstream stream)                 \
    {                                                                                                        \
        return fill(to, 0, value, bytes, n, 1, true, stream);                                                \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) \
    {                                                                                                        \
        return fill(to, pitch, value, bytes, width, height, false, NULL);                                    \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##Async(CUdeviceptr to, size_t pitch, type value, size_t width,              \
                                        size_t height, CUstream stream)                                      \
    {                                                                                                        \
        return fill(to, pitch, value, bytes, width, height, true, stream);                                   \
    }

FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned int, 4)
