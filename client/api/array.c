/*
 * array.c - arrays, and copies of boxes between host memory, device memory and arrays.
 *
 * An array's extents are kept in its shadow, so that what lies outside of it is refused before anything is sent. When
 * host memory is read and written follows the rules of copy.c: a source has been read when the call returns, unless it
 * is pinned and something queued may still write it; into pinned memory, asynchronously, data lands when the stream
 * gets there.
 */
#include "client/api/box.h"
#include "client/api/copy.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"
#include "client/managed/pinned.h"
#include "client/managed/unified.h"
#include "client/multiserver/fence.h"
#include "client/timeline/timeline.h"
#include "client/transfer/credit.h"
#include "client/transfer/pieces.h"
#include "client/transfer/transfer.h"
#include "common/base/limits.h"
#include "common/cuda/copy_peer.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <string.h>

#define MAX_ROWS 512 /* iovecs of one message */

/* --- arrays ---------------------------------------------------------------------------------------------- */

size_t rg_texel_size(CUarray_format format, unsigned channels)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * (size_t)channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * (size_t)channels;
    default:
        return 0;
    }
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, bool plain)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!out || !descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t size = rg_texel_size(descriptor->Format, descriptor->NumChannels);
    if (!size)
        return rg_unsupported("an array of a format that is not linear");
    CUarray array = (CUarray)rg_handle_create(RG_KIND_ARRAY);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (plain)
        status = rg_op_cuArrayCreate_v2(
            &array, &(CUDA_ARRAY_DESCRIPTOR){descriptor->Width, descriptor->Height, descriptor->Format,
                                             descriptor->NumChannels});
    else
        status = rg_op_cuArray3DCreate_v2(&array, descriptor);
    if (status != CUDA_SUCCESS) {
        rg_handle_delete(RG_KIND_ARRAY, (uint64_t)array);
        return status;
    }
    struct rg_array *shadow = &rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)array)->array;
    shadow->descriptor = *descriptor;
    shadow->texel_size = size;
    *out = array;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    if (!pAllocateArray)
        return create(pHandle, NULL, true);
    return create(pHandle,
                  &(CUDA_ARRAY3D_DESCRIPTOR){.Width = pAllocateArray->Width,
                                             .Height = pAllocateArray->Height,
                                             .Format = pAllocateArray->Format,
                                             .NumChannels = pAllocateArray->NumChannels},
                  true);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    return create(pHandle, pAllocateArray, false);
}

CUresult cuArrayDestroy(CUarray hArray)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)hArray);
    if (!shadow || shadow->array.level)
        return CUDA_ERROR_INVALID_HANDLE;
    status = rg_op_cuArrayDestroy(hArray);
    rg_handle_delete(RG_KIND_ARRAY, (uint64_t)hArray);
    return status;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)hArray);
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = shadow->array.descriptor;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = cuArray3DGetDescriptor_v2(&d, hArray);
    if (status == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
    return status;
}

/* --- the sides of a copy --------------------------------------------------------------------------------- */

struct side {
    CUmemorytype type; /* host, device or array */
    uint64_t address;  /* of the first byte; arrays: none */
    size_t pitch, slice;
    CUarray array;
};

static bool add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*sum, product, sum);
}

static CUresult resolve_array(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *copy,
                              struct side *out)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)array);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUDA_ARRAY3D_DESCRIPTOR *d = &shadow->array.descriptor;
    const size_t texel = shadow->array.texel_size, row = d->Width * texel, height = d->Height ? d->Height : 1,
                 depth = d->Depth ? d->Depth : 1;
    if (x > row || copy->WidthInBytes > row - x || y > height || copy->Height > height - y || z > depth ||
        copy->Depth > depth - z || x % texel || copy->WidthInBytes % texel)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct side){.type = CU_MEMORYTYPE_ARRAY, .array = array};
    return CUDA_SUCCESS;
}

static CUresult resolve_memory(uint64_t base, bool device, size_t x, size_t y, size_t z, size_t pitch,
                               size_t rows, const CUDA_MEMCPY3D *copy, struct side *out)
{
    uint64_t row_end = x, extent = copy->WidthInBytes;
    if (!add_product(&row_end, copy->WidthInBytes, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (!pitch)
        pitch = row_end;
    if (!rows)
        rows = y + copy->Height;
    if (!base || pitch < row_end || (copy->Depth > 1 && (rows < copy->Height || rows - copy->Height < y)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct side){
        .type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST, .address = base + x, .pitch = pitch};
    if (__builtin_mul_overflow(pitch, rows, &out->slice) || !add_product(&out->address, y, pitch) ||
        !add_product(&out->address, z, out->slice) || !add_product(&extent, copy->Height - 1, pitch) ||
        !add_product(&extent, copy->Depth - 1, out->slice))
        return CUDA_ERROR_INVALID_VALUE;
    if (device && !rg_pinned_on_device(out->address, extent, extent, 1))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The source (or destination) of a copy of something. */
static CUresult resolve(const CUDA_MEMCPY3D *c, bool source, struct side *out)
{
    const CUmemorytype type = source ? c->srcMemoryType : c->dstMemoryType;
    const size_t x = source ? c->srcXInBytes : c->dstXInBytes, y = source ? c->srcY : c->dstY,
                 z = source ? c->srcZ : c->dstZ, pitch = source ? c->srcPitch : c->dstPitch,
                 rows = source ? c->srcHeight : c->dstHeight;
    const uint64_t host = (uint64_t)(source ? c->srcHost : c->dstHost),
                   memory = source ? c->srcDevice : c->dstDevice;
    switch (type) {
    case CU_MEMORYTYPE_ARRAY:
        return resolve_array(source ? c->srcArray : c->dstArray, x, y, z, c, out);
    case CU_MEMORYTYPE_HOST: /* managed memory is the device's */
        return resolve_memory(host, rg_on_device(host, 0, 1, 1), x, y, z, pitch, rows, c, out);
    case CU_MEMORYTYPE_DEVICE:
        return resolve_memory(memory, true, x, y, z, pitch, rows, c, out);
    case CU_MEMORYTYPE_UNIFIED:
        return resolve_memory(memory, rg_on_device(memory, 0, 1, 1), x, y, z, pitch, rows, c, out);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- between host and device ------------------------------------------------------------------------------ */

struct transfer {
    struct rg_host_region host;
    CUDA_MEMCPY3D box; /* the device's side of the copy */
    CUarray array;
    CUstream stream;
    bool asynchronous;
    bool passing; /* the memory is ours, and not there any more when the call has returned */
    bool stays;   /* see copy.c */
};

static bool is_pinned(const struct transfer *t, size_t slice)
{
    if (rg_copies_in_order)
        return true;
    struct rg_range range;
    const uint64_t start = (uint64_t)t->host.memory,
                   size =
                       (t->box.Depth - 1) * slice + (t->box.Height - 1) * t->host.pitch + t->box.WidthInBytes;
    return rg_map_find(start, &range) && !rg_range_on_device(&range) &&
           size <= range.size - (start - range.start);
}

/* The copy's destination from byte x of row y of slice z on; of memory, the address says where that is. */
static CUDA_MEMCPY3D part_from(const struct transfer *t, size_t x, size_t y, size_t z)
{
    CUDA_MEMCPY3D part = t->box;
    if (part.dstMemoryType == CU_MEMORYTYPE_DEVICE) {
        part.dstDevice += x + (y + z * part.dstHeight) * part.dstPitch;
    } else {
        part.dstXInBytes += x;
        part.dstY += y;
        part.dstZ += z;
    }
    return part;
}

static CUresult send(const struct transfer *t, const CUDA_MEMCPY3D *part, size_t offset)
{
    struct iovec rows[MAX_ROWS];
    const size_t size = part->WidthInBytes * part->Height * part->Depth;
    size_t covered;
    int n = rg_region_iovec(&t->host, offset, size, rows, MAX_ROWS, &covered);
    if (covered != size)
        return CUDA_ERROR_UNKNOWN;
    const bool ends = offset + size == rg_region_size(&t->host);
    const uint64_t began = rg_now_ns();
    struct rg_thread *thread = rg_thread_current();
    thread->position = 0; /* no record's */
    CUresult status =
        rg_op_rgBoxIn(part, t->array, t->stream, ends && !t->asynchronous && !t->stays, rows, n);
    if (status != CUDA_SUCCESS && !thread->position)
        rg_credit_return(rg_session_current(), size);
    rg_piece_sent(rg_session_current(), size, began);
    return status;
}

/* Whether the source may be read when the stream is there, after the call has returned. */
static bool may_be_read_late(const struct transfer *t, size_t slice)
{
    return t->asynchronous && !t->passing && is_pinned(t, slice);
}

/* `part` of the copy is asked for by the worker when the stream is there. *id: by this name. */
static CUresult put_late(const struct transfer *t, const CUDA_MEMCPY3D *part,
                         const struct rg_host_region *host, uint64_t *id)
{
    *id = rg_rendezvous_create(rg_session_current(), host);
    if (!*id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_op_rgBoxInLate(part, t->array, t->stream, *id);
    if (status != CUDA_SUCCESS)
        rg_transfer_cancel(*id);
    return status;
}

/* There is no room for the rest: rows from `row` on, the first of them from `at` on. See send_late of copy.c. */
static CUresult send_late(const struct transfer *t, size_t slice, size_t row, size_t at)
{
    const size_t height = t->box.Height, rows = height * t->box.Depth;
    CUresult status = CUDA_SUCCESS;
    uint64_t ids[3] = {0}; /* the rest of a row, of a slice, and of the slices */
    unsigned n = 0;
    bool put = false;
    while (row < rows && status == CUDA_SUCCESS) {
        const size_t y = row % height, z = row / height;
        CUDA_MEMCPY3D part = part_from(t, at, y, z);
        struct rg_host_region host = {.memory = t->host.memory + z * slice + y * t->host.pitch + at,
                                      .pitch = t->host.pitch};
        part.WidthInBytes -= at;
        part.Height = at ? 1 : height - y; /* the rest of a row, of a slice, or all slices that are left */
        part.Depth = y || at ? 1 : t->box.Depth - z;
        host.width = part.WidthInBytes;
        host.height = part.Height * part.Depth;
        host.rows = part.Depth > 1 ? height : 0;
        host.slice = slice;
        status = put_late(t, &part, &host, &ids[n++]);
        put |= status == CUDA_SUCCESS;
        row += host.height;
        at = 0;
    }
    if (!put || may_be_read_late(t, slice))
        return status;
    const CUresult waited = rg_op_cuStreamSynchronize(t->stream);
    for (unsigned i = 0; i < n; i++)
        rg_transfer_revoke(ids[i]);
    return status == CUDA_SUCCESS ? waited : status;
}

static CUresult send_in(struct transfer *t, size_t slice)
{
    CUresult status = CUDA_SUCCESS;
    if (rg_transfers_may_write_host()) {
        if (may_be_read_late(t, slice))
            return put_late(t, &t->box, &t->host, &(uint64_t){0});
        if (!t->asynchronous) /* what the stream does first may write the source */
            status = rg_timeline_wait_stream(t->stream);
    }
    t->stays = !t->asynchronous && rg_timeline_blocks_on_stream(t->stream);
    const size_t width = t->box.WidthInBytes, height = t->box.Height, depth = t->box.Depth;
    const bool gapless = t->host.pitch == width && (depth == 1 || slice == width * height);
    for (size_t row = 0; row < height * depth && status == CUDA_SUCCESS;) {
        size_t most = rg_piece(rg_session_current()) / width; /* rows of a message */
        if (!gapless && most > MAX_ROWS)
            most = MAX_ROWS;
        const size_t y = row % height, z = row / height;
        CUDA_MEMCPY3D part = part_from(t, 0, y, z);
        part.Height = part.Depth = 1;
        if (!most) { /* a row is more than one message */
            for (size_t at = 0; at < width && status == CUDA_SUCCESS; at += part.WidthInBytes) {
                const size_t piece = rg_piece(rg_session_current());
                part = part_from(t, at, y, z);
                part.Height = part.Depth = 1;
                part.WidthInBytes = width - at < piece ? width - at : piece;
                if (!rg_credit_take(rg_session_current(), part.WidthInBytes))
                    return send_late(t, slice, row, at);
                status = send(t, &part, row * width + at);
            }
            row++;
            continue;
        }
        if (y == 0 && most >= height) {
            part.Height = height;
            part.Depth = most / height < depth - z ? most / height : depth - z;
        } else {
            part.Height = most < height - y ? most : height - y;
        }
        if (!rg_credit_take(rg_session_current(), part.Height * part.Depth * width))
            return send_late(t, slice, row, 0);
        status = send(t, &part, row * width);
        row += part.Height * part.Depth;
    }
    return status;
}

/* As send_held of copy.c. */
static CUresult send_held(struct transfer *t, size_t slice)
{
    struct rg_lease hold = {0};
    rg_call_begin_lease(may_be_read_late(t, slice) ? &rg_lease_until_reply : &hold);
    const CUresult status = send_in(t, slice);
    rg_call_end_lease(&hold);
    return status;
}

/* By way of memory of our own where host and device share pages (rg_unified_meets_region). */
static CUresult box_in(const struct transfer *t, size_t slice)
{
    struct transfer own = *t;
    CUresult status;
    if (rg_unified_meets_region(&t->host)) {
        if (!rg_region_gather(&t->host, &own.host))
            return CUDA_ERROR_OUT_OF_MEMORY;
        own.passing = true;
        status = send_held(&own, t->box.WidthInBytes * t->box.Height);
        free(own.host.memory);
    } else {
        const bool held = rg_pinned_forbid_mapping();
        status = send_held(&own, slice);
        rg_pinned_allow_mapping(held);
    }
    return own.stays && status == CUDA_SUCCESS ? rg_timeline_wait_stream(own.stream) : status;
}

static CUresult receive_out(const struct transfer *t, size_t slice)
{
    const bool late = t->asynchronous && rg_optimise[RG_OPT_LATE] && is_pinned(t, slice);
    uint64_t id = rg_deferred_read_create(rg_session_current(), &t->host, late);
    if (!id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!late) {
        CUresult status = rg_op_rgBoxOut(&t->box, t->array, t->stream, id);
        rg_deferred_read_destroy(id);
        return status;
    }
    CUresult status = rg_op_rgBoxOutLate(&t->box, t->array, t->stream, id);
    if (status != CUDA_SUCCESS)
        rg_transfer_cancel(id);
    return status;
}

static CUresult box_out(const struct transfer *t, size_t slice)
{
    if (rg_unified_meets_region(&t->host)) {
        struct transfer through = *t;
        if (!rg_region_prepare(&t->host, &through.host))
            return CUDA_ERROR_OUT_OF_MEMORY;
        through.asynchronous = false;
        CUresult status = receive_out(&through, t->box.WidthInBytes * t->box.Height);
        rg_region_scatter(&t->host, &through.host, status == CUDA_SUCCESS);
        return status;
    }
    const bool held = rg_pinned_forbid_mapping();
    CUresult status = receive_out(t, slice);
    rg_pinned_allow_mapping(held);
    return status;
}

static CUresult host_to_host(const CUDA_MEMCPY3D *c, const struct side *to, const struct side *from,
                             CUstream stream)
{
    CUresult status = rg_op_cuStreamSynchronize(stream);
    for (size_t z = 0; z < c->Depth && status == CUDA_SUCCESS; z++)
        for (size_t y = 0; y < c->Height; y++)
            memmove((void *)(uintptr_t)(to->address + z * to->slice + y * to->pitch),
                    (const void *)(uintptr_t)(from->address + z * from->slice + y * from->pitch),
                    c->WidthInBytes);
    return status;
}

/* Puts a side on the device into what is sent. */
static void describe(const CUDA_MEMCPY3D *c, const struct side *side, bool source, CUDA_MEMCPY3D *box)
{
    if (source) {
        box->srcMemoryType = side->type;
        box->srcXInBytes = c->srcXInBytes;
        box->srcY = c->srcY;
        box->srcZ = c->srcZ;
        if (side->type == CU_MEMORYTYPE_DEVICE) {
            box->srcXInBytes = box->srcY = box->srcZ = 0;
            box->srcDevice = side->address;
            box->srcPitch = side->pitch;
            box->srcHeight = side->slice / side->pitch;
        }
        return;
    }
    box->dstMemoryType = side->type;
    box->dstXInBytes = c->dstXInBytes;
    box->dstY = c->dstY;
    box->dstZ = c->dstZ;
    if (side->type == CU_MEMORYTYPE_DEVICE) {
        box->dstXInBytes = box->dstY = box->dstZ = 0;
        box->dstDevice = side->address;
        box->dstPitch = side->pitch;
        box->dstHeight = side->slice / side->pitch;
    }
}

static uint64_t owner_of(const struct side *side)
{
    return side->type == CU_MEMORYTYPE_ARRAY  ? rg_home_of(RG_KIND_ARRAY, (uint64_t)side->array)
           : side->type == CU_MEMORYTYPE_HOST ? 0
                                              : rg_home_of_address(side->address);
}

CUresult rg_copy_box(const CUDA_MEMCPY3D *c, CUstream stream, bool asynchronous)
{
    struct side to, from;
    if (!c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_SUCCESS;
    CUresult status = resolve(c, true, &from);
    if (status == CUDA_SUCCESS)
        status = resolve(c, false, &to);
    if (status != CUDA_SUCCESS)
        return status;
    stream = rg_effective_stream(stream);
    const bool to_host = to.type == CU_MEMORYTYPE_HOST, from_host = from.type == CU_MEMORYTYPE_HOST;
    if (to_host && from_host)
        return host_to_host(c, &to, &from, stream);
    struct transfer t = {
        .stream = stream, .asynchronous = asynchronous, .array = to_host ? from.array : to.array};
    t.box.WidthInBytes = c->WidthInBytes;
    t.box.Height = c->Height;
    t.box.Depth = c->Depth;
    if (!from_host)
        describe(c, &from, true, &t.box);
    if (!to_host)
        describe(c, &to, false, &t.box);
    const uint64_t to_owner = owner_of(&to), from_owner = owner_of(&from);
    if (!to_host && !from_host && rg_homes_differ(to_owner, from_owner)) {
        const struct rg_peer_copy copy = {
            .to = {to_owner, 0, 0, to.array}, .from = {from_owner, 0, 0, from.array}, .box = &t.box};
        return rg_peer_copy(&copy, stream, !asynchronous);
    }
    if (!to_host && !from_host)
        return rg_pinned_copied(rg_op_rgBoxCopy(&t.box, to.array, from.array, stream, asynchronous),
                                to.address, from.address, stream, asynchronous);
    const struct side *host = to_host ? &to : &from;
    t.host = (struct rg_host_region){.memory = (unsigned char *)(uintptr_t)host->address,
                                     .pitch = host->pitch,
                                     .width = c->WidthInBytes,
                                     .height = c->Height * c->Depth,
                                     .rows = c->Depth > 1 ? c->Height : 0,
                                     .slice = host->slice};
    struct rg_proxy proxy;
    status = rg_proxy_begin(&proxy, to_host ? from_owner : to_owner, stream, !asynchronous);
    if (status != CUDA_SUCCESS)
        return status;
    t.stream = proxy.stream;
    return rg_proxy_end(&proxy, to_host ? box_out(&t, host->slice) : box_in(&t, host->slice));
}

/* --- the calls --------------------------------------------------------------------------------------------- */

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool asynchronous)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_STREAM, (uint64_t)stream))
        return rg_bad_handle(CUDA_ERROR_INVALID_HANDLE);
    if (!c || c->srcLOD || c->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous ? rg_capture_refuse(stream) : rg_capture_copy(c, stream);
    return rg_copy_box(c, stream, asynchronous);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, true);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, bool asynchronous)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D copy = rg_cuda_copy_of_peer(c);
    return copy_3d(&copy, stream, asynchronous);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d_peer(pCopy, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d_peer(pCopy, hStream, true);
}

/* --- one dimension ---------------------------------------------------------------------------------------- */

/* A side of a copy in one dimension: an array and an offset, or memory. */
struct line_side {
    CUmemorytype type;
    CUarray array;
    size_t offset;
    const void *host;
    CUdeviceptr device;
};

static struct line_side in_array(CUarray array, size_t offset)
{
    return (struct line_side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .offset = offset};
}

static struct line_side in_host(const void *host)
{
    return (struct line_side){.type = CU_MEMORYTYPE_HOST, .host = host};
}

static struct line_side in_device(CUdeviceptr device)
{
    return (struct line_side){.type = CU_MEMORYTYPE_DEVICE, .device = device};
}

static CUresult copy_line(struct line_side to, struct line_side from, size_t size, CUstream stream,
                          bool asynchronous)
{
    CUDA_MEMCPY3D copy = {
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
    return copy_3d(&copy, stream, asynchronous);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(in_array(dstArray, dstOffset), in_host(srcHost), ByteCount, hStream, true);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return copy_line(in_array(dstArray, dstOffset), in_host(srcHost), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(in_host(dstHost), in_array(srcArray, srcOffset), ByteCount, hStream, true);
}

CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_line(in_host(dstHost), in_array(srcArray, srcOffset), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_line(in_device(dstDevice), in_array(srcArray, srcOffset), ByteCount, NULL, false);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(in_array(dstArray, dstOffset), in_device(srcDevice), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    return copy_line(in_array(dstArray, dstOffset), in_array(srcArray, srcOffset), ByteCount, NULL, false);
}
