/*
 * copy.c - copies between host and device.
 *
 * Host → device leaves from the caller's memory without waiting: when the call returns the source has been read, as
 * CUDA futures for pageable memory; a synchronous one waits where other threads may have to go on first
 * (rg_timeline_blocks_on_stream). Pinned memory of an asynchronous copy is read at once too, unless something queued
 * may still write it (a copy to the host, a host function): then the worker asks for it when the stream is there.
 * Device → host waits for the data; into pinned memory, asynchronously, it lands when the stream gets there.
 */
#include "client/api/copy.h"
#include "client/api/box.h"
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
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROWS = 512,   /* iovecs of one message */
    SMALL_COPY = 8192 /* bytes that are cheaper to copy into the batch than to send by themselves */
};

/* A copy in two dimensions; a plain one has height 1. */
struct copy {
    struct rg_host_region host;
    CUdeviceptr device;
    size_t device_pitch;
    CUstream stream;
    bool asynchronous;
    bool passing; /* the memory is ours, and not there any more when the call has returned */
    bool stays;   /* to the device: the call waits until it is done */
};

/* Set during a copy of a graph on this thread: all host memory is as page-locked memory is. */
__thread bool rg_copies_in_order;

static bool is_pinned(const struct rg_host_region *region)
{
    if (rg_copies_in_order)
        return true;
    struct rg_range range;
    const uint64_t start = (uint64_t)region->memory,
                   size = (region->height - 1) * region->pitch + region->width;
    return rg_map_find(start, &range) && !rg_range_on_device(&range) &&
           size <= range.size - (start - range.start);
}

/*
 * Sends packed bytes [offset, offset + size) of rows that fit into one message. Other streams are ordered after the end of a
 * synchronous copy that nobody waits for; not after its beginning, as it may yet turn out that the call has to wait for its stream.
 */
static CUresult send_part(const struct copy *copy, CUdeviceptr device, size_t width, size_t height,
                          size_t offset)
{
    const bool ends = offset + width * height == copy->host.width * copy->host.height;
    struct iovec rows[MAX_ROWS];
    size_t covered;
    int n = rg_region_iovec(&copy->host, offset, width * height, rows, MAX_ROWS, &covered);
    const uint64_t began = rg_now_ns();
    struct rg_thread *thread = rg_thread_current();
    thread->position = 0; /* no record's */
    CUresult status = rg_op_rgCopyIn(device, copy->device_pitch, width, height, copy->stream,
                                     ends && !copy->asynchronous && !copy->stays, rows, n);
    if (status != CUDA_SUCCESS && !thread->position)
        rg_credit_return(rg_session_current(), width * height);
    rg_piece_sent(rg_session_current(), covered, began);
    return status;
}

/* Whether the source may be read when the stream is there, after the call has returned. */
static bool may_be_read_late(const struct copy *copy)
{
    return copy->asynchronous && !copy->passing && is_pinned(&copy->host);
}

/* Packed bytes from `offset` on, of rows or the rest of one row, are asked for by the worker when the stream is there. *id: by
 * this name. */
static CUresult put_late(const struct copy *copy, const struct rg_host_region *host, CUdeviceptr device,
                         uint64_t *id)
{
    *id = rg_rendezvous_create(rg_session_current(), host);
    if (!*id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status =
        rg_op_rgCopyInLate(device, copy->device_pitch, host->width, host->height, copy->stream, *id);
    if (status != CUDA_SUCCESS)
        rg_transfer_cancel(*id);
    return status;
}

/* There is no room for the rest: rows from `row` on, the first of them from `at` on. */
static CUresult send_late(const struct copy *copy, size_t row, size_t at)
{
    struct rg_host_region host = copy->host;
    CUresult status = CUDA_SUCCESS;
    uint64_t ids[2] = {0};
    bool put = false;
    if (at) {
        const struct rg_host_region part = {
            host.memory + row * host.pitch + at, host.width - at, host.width - at, 1, 0, 0};
        status = put_late(copy, &part, copy->device + row * copy->device_pitch + at, &ids[0]);
        put = status == CUDA_SUCCESS;
        row++;
    }
    host.memory += row * host.pitch;
    host.height -= row;
    if (status == CUDA_SUCCESS && host.height) {
        status = put_late(copy, &host, copy->device + row * copy->device_pitch, &ids[1]);
        put |= status == CUDA_SUCCESS;
    }
    /* what a driver does with more than it keeps aside: the call returns when its source has been read */
    if (!put || may_be_read_late(copy))
        return status;
    const CUresult waited = rg_op_cuStreamSynchronize(copy->stream);
    rg_transfer_revoke(ids[0]);
    rg_transfer_revoke(ids[1]);
    return status == CUDA_SUCCESS ? waited : status;
}

/* How many whole rows a piece has; 0 if a row is longer than one. */
static size_t rows_per_message(const struct rg_host_region *region, size_t piece)
{
    size_t rows = piece / region->width;
    return region->height > 1 && region->pitch != region->width && rows > MAX_ROWS ? MAX_ROWS : rows;
}

static CUresult send_in(struct copy *copy)
{
    CUresult status = CUDA_SUCCESS;
    if (rg_transfers_may_write_host()) {
        if (may_be_read_late(copy))
            return put_late(copy, &copy->host, copy->device, &(uint64_t){0});
        if (!copy->asynchronous) /* what the stream does first may write the source */
            status = rg_timeline_wait_stream(copy->stream);
        if (status != CUDA_SUCCESS)
            return status;
    }
    copy->stays = !copy->asynchronous && rg_timeline_blocks_on_stream(copy->stream);
    const size_t width = copy->host.width, height = copy->host.height;
    if (height == 1 && width <= SMALL_COPY && rg_optimise[RG_OPT_BATCH]) {
        /* by way of our own memory: reading the application's may fault, which must not happen under the stream lock */
        unsigned char data[SMALL_COPY];
        memcpy(data, copy->host.memory, width);
        return rg_op_rgCopyInSmall(copy->device, copy->stream, !copy->asynchronous && !copy->stays, width,
                                   data);
    }
    for (size_t row = 0, n = 0; row < height && status == CUDA_SUCCESS; row += n) {
        const CUdeviceptr device = copy->device + row * copy->device_pitch;
        n = rows_per_message(&copy->host, rg_piece(rg_session_current()));
        if (n) {
            n = height - row < n ? height - row : n;
            if (!rg_credit_take(rg_session_current(), n * width))
                return send_late(copy, row, 0);
            status = send_part(copy, device, width, n, row * width);
            continue;
        }
        n = 1;
        for (size_t at = 0, size = 0; at < width && status == CUDA_SUCCESS; at += size) {
            size = rg_piece(rg_session_current());
            size = width - at < size ? width - at : size;
            if (!rg_credit_take(rg_session_current(), size))
                return send_late(copy, row, at);
            status = send_part(copy, device + at, size, 1, row * width + at);
        }
    }
    return status;
}

/* The memory is the application's again when its call returns, or later where it may be read then, too. */
static CUresult send_held(struct copy *copy)
{
    struct rg_lease hold = {0};
    rg_call_begin_lease(may_be_read_late(copy) ? &rg_lease_until_reply : &hold);
    const CUresult status = send_in(copy);
    rg_call_end_lease(&hold);
    return status;
}

static CUresult copy_in_here(const struct copy *copy)
{
    const struct rg_host_region *host = &copy->host;
    if (!rg_pinned_on_device(copy->device, copy->device_pitch, host->width, host->height))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = CUDA_SUCCESS;
    for (size_t row = 0; row < host->height && status == CUDA_SUCCESS; row++)
        status = rg_pinned_scan(host->memory + row * host->pitch, host->width);
    if (status != CUDA_SUCCESS)
        return status;
    struct copy own = *copy;
    if (rg_unified_meets_region(host)) {
        if (!rg_region_gather(host, &own.host))
            return CUDA_ERROR_OUT_OF_MEMORY;
        own.passing = true;
        status = send_held(&own);
        free(own.host.memory);
    } else {
        const bool held = rg_pinned_forbid_mapping();
        status = send_held(&own);
        rg_pinned_allow_mapping(held);
    }
    if (own.stays && status == CUDA_SUCCESS)
        return rg_timeline_wait_stream(own.stream);
    return rg_pinned_copied(status, copy->device, 0, copy->stream, copy->asynchronous);
}

static CUresult copy_out_waiting(const struct copy *copy)
{
    const struct rg_host_region *host = &copy->host;
    struct rg_call reply;
    uint64_t id = 0;
    /* with the reply, or by itself in pieces: from some size on that is up to the worker */
    const size_t size = host->width * host->height;
    if (size <= RG_BULK_MAX)
        rg_call_expect_bulk(host->memory, host->pitch, host->width, host->height);
    if (size > RG_BULK_MAX || (size > RG_CHUNK_SIZE_LEAST && rg_optimise[RG_OPT_PIECES]) ||
        rg_deferred_read_gains(rg_session_current(), host)) {
        id = rg_deferred_read_create(rg_session_current(), host, false);
        if (!id)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = rg_op_rgCopyOut(copy->device, copy->device_pitch, host->width, host->height,
                                      copy->stream, id, &reply);
    rg_call_done(&reply);
    rg_call_expect_bulk(NULL, 0, 0, 0);
    if (id)
        rg_deferred_read_destroy(id);
    if (status == CUDA_SUCCESS)
        rg_timeline_waited(copy->stream);
    return status;
}

static CUresult receive_out(const struct copy *copy)
{
    if (!copy->asynchronous || !rg_optimise[RG_OPT_LATE] || !is_pinned(&copy->host))
        return copy_out_waiting(copy);
    uint64_t id = rg_deferred_read_create(rg_session_current(), &copy->host, true);
    if (!id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_op_rgCopyOutLate(copy->device, copy->device_pitch, copy->host.width,
                                          copy->host.height, copy->stream, id);
    if (status != CUDA_SUCCESS)
        rg_transfer_cancel(id);
    return status;
}

static CUresult copy_out_here(const struct copy *copy)
{
    const struct rg_host_region *host = &copy->host;
    if (!rg_pinned_on_device(copy->device, copy->device_pitch, host->width, host->height))
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_unified_meets_region(host)) {
        struct copy through = *copy;
        if (!rg_region_prepare(host, &through.host))
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult status = copy_out_waiting(&through);
        rg_region_scatter(host, &through.host, status == CUDA_SUCCESS);
        return status;
    }
    const bool held = rg_pinned_forbid_mapping();
    CUresult status = receive_out(copy);
    rg_pinned_allow_mapping(held);
    return status;
}

/* Either way, in the stream's order and context: also where the memory is of another server than the stream. */
static CUresult transfer(const struct copy *copy, CUresult (*move)(const struct copy *copy))
{
    struct rg_proxy proxy;
    CUresult status =
        rg_proxy_begin(&proxy, rg_home_of_address(copy->device), copy->stream, !copy->asynchronous);
    if (status != CUDA_SUCCESS)
        return status;
    struct copy here = *copy;
    here.stream = proxy.stream;
    return rg_proxy_end(&proxy, move(&here));
}

static CUresult copy_in(const struct copy *copy)
{
    return transfer(copy, copy_in_here);
}

static CUresult copy_out(const struct copy *copy)
{
    return transfer(copy, copy_out_here);
}

/* A copy of rows from device to device, if that is between two servers; false: it is not. */
static bool crosses(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch, size_t width,
                    size_t height, CUstream stream, bool asynchronous, CUresult *status)
{
    const struct rg_peer_copy copy = {.to = {rg_home_of_address(to), to, to_pitch, NULL},
                                      .from = {rg_home_of_address(from), from, from_pitch, NULL},
                                      .width = width,
                                      .height = height};
    if (!rg_homes_differ(copy.to.owner, copy.from.owner))
        return false;
    *status = rg_on_device(to, to_pitch, width, height) && rg_on_device(from, from_pitch, width, height)
                  ? rg_peer_copy(&copy, rg_effective_stream(stream), !asynchronous)
                  : CUDA_ERROR_INVALID_VALUE;
    return true;
}

/* --- one dimension ---------------------------------------------------------------------------------------- */

/* What all copies check before they look at their arguments. */
static CUresult check(CUstream stream)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status == CUDA_SUCCESS && !rg_handle_known(RG_KIND_STREAM, (uint64_t)stream))
        status = rg_bad_handle(CUDA_ERROR_INVALID_HANDLE);
    return status;
}

static struct copy plain(const void *host, CUdeviceptr device, size_t size, CUstream stream,
                         bool asynchronous)
{
    return (struct copy){.host = {(unsigned char *)(uintptr_t)host, size, size, 1, 0, 0},
                         .device = device,
                         .device_pitch = size,
                         .stream = rg_effective_stream(stream),
                         .asynchronous = asynchronous};
}

static bool on_device(CUdeviceptr address)
{
    return rg_on_device(address, 0, 1, 1);
}

static CUresult device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                                 bool asynchronous)
{
    CUresult status = check(stream);
    if (status != CUDA_SUCCESS || !size)
        return status;
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_DEVICE, size, stream);
    if (crosses(to, size, from, size, size, 1, stream, asynchronous, &status))
        return status;
    if (!rg_pinned_on_device(to, 0, size, 1) || !rg_pinned_on_device(from, 0, size, 1))
        return CUDA_ERROR_INVALID_VALUE;
    status = asynchronous ? rg_op_cuMemcpyDtoDAsync_v2(to, from, size, stream)
                          : rg_op_cuMemcpyDtoD_v2(to, from, size);
    return rg_pinned_copied(status, to, from, rg_effective_stream(stream), asynchronous);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return device_to_device(dstDevice, srcDevice, ByteCount, NULL, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return device_to_device(dstDevice, srcDevice, ByteCount, hStream, true);
}

/* Addresses tell whose they are; contexts of different servers need no access to each other. */
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount)
{
    CUresult status = check(NULL);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_CONTEXT, (uint64_t)dstContext) ||
        !rg_handle_known(RG_KIND_CONTEXT, (uint64_t)srcContext))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (rg_capture_takes(NULL))
        return rg_capture_refuse(NULL);
    if (ByteCount && crosses(dstDevice, ByteCount, srcDevice, ByteCount, ByteCount, 1, NULL, false, &status))
        return status;
    if (!rg_on_device(dstDevice, 0, ByteCount, 1) || !rg_on_device(srcDevice, 0, ByteCount, 1))
        return CUDA_ERROR_INVALID_VALUE;
    return rg_op_cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    CUresult status = check(hStream);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_CONTEXT, (uint64_t)dstContext) ||
        !rg_handle_known(RG_KIND_CONTEXT, (uint64_t)srcContext))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (rg_capture_takes(hStream))
        return rg_capture_copy_1d(dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, CU_MEMORYTYPE_DEVICE, ByteCount,
                                  hStream);
    if (ByteCount &&
        crosses(dstDevice, ByteCount, srcDevice, ByteCount, ByteCount, 1, hStream, true, &status))
        return status;
    if (!rg_on_device(dstDevice, 0, ByteCount, 1) || !rg_on_device(srcDevice, 0, ByteCount, 1))
        return CUDA_ERROR_INVALID_VALUE;
    return rg_op_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

static CUresult host_to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                               bool asynchronous)
{
    CUresult status = check(stream);
    if (status != CUDA_SUCCESS || !size)
        return status;
    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous ? rg_capture_refuse(stream)
                             : rg_capture_copy_1d(to, CU_MEMORYTYPE_DEVICE, (CUdeviceptr)from,
                                                  CU_MEMORYTYPE_HOST, size, stream);
    if (on_device((CUdeviceptr)from)) /* managed memory: what the host holds of it goes to the device first */
        return device_to_device(to, (CUdeviceptr)from, size, stream, asynchronous);
    struct copy copy = plain(from, to, size, stream, asynchronous);
    return copy_in(&copy);
}

static CUresult device_to_host(void *to, CUdeviceptr from, size_t size, CUstream stream, bool asynchronous)
{
    CUresult status = check(stream);
    if (status != CUDA_SUCCESS || !size)
        return status;
    if (!to)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous ? rg_capture_refuse(stream)
                             : rg_capture_copy_1d((CUdeviceptr)to, CU_MEMORYTYPE_HOST, from,
                                                  CU_MEMORYTYPE_DEVICE, size, stream);
    if (on_device((CUdeviceptr)to))
        return device_to_device((CUdeviceptr)to, from, size, stream, asynchronous);
    struct copy copy = plain(to, from, size, stream, asynchronous);
    return copy_out(&copy);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return host_to_device(dstDevice, srcHost, ByteCount, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return host_to_device(dstDevice, srcHost, ByteCount, hStream, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return device_to_host(dstHost, srcDevice, ByteCount, NULL, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return device_to_host(dstHost, srcDevice, ByteCount, hStream, true);
}

/* A copy whose direction follows from the addresses. */
static CUresult any_to_any(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool asynchronous)
{
    const bool to_device = on_device(to), from_device = on_device(from);
    if (to_device && from_device)
        return device_to_device(to, from, size, stream, asynchronous);
    if (to_device)
        return host_to_device(to, (const void *)(uintptr_t)from, size, stream, asynchronous);
    if (from_device)
        return device_to_host((void *)(uintptr_t)to, from, size, stream, asynchronous);
    CUresult status = check(stream);
    if (status != CUDA_SUCCESS || !size)
        return status;
    if (!to || !from)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, CU_MEMORYTYPE_HOST, from, CU_MEMORYTYPE_HOST, size, stream);
    status = rg_op_cuStreamSynchronize(rg_effective_stream(stream));
    if (status == CUDA_SUCCESS)
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    return status;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return any_to_any(dst, src, ByteCount, NULL, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return any_to_any(dst, src, ByteCount, hStream, true);
}

/* --- two dimensions --------------------------------------------------------------------------------------- */

struct side {
    bool device;
    uint64_t address;
    size_t pitch;
};

/* Where one side of a 2D copy is. */
static CUresult resolve(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                        size_t pitch, size_t width, size_t height, struct side *out)
{
    uint64_t base;
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)host;
        out->device = on_device(base); /* managed memory */
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = device;
        out->device = true;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = device;
        out->device = on_device(device);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pitch == 0 && height + y <= 1)
        pitch = width + x;
    if (!base || pitch < width + x)
        return CUDA_ERROR_INVALID_VALUE;
    out->address = base + y * pitch + x;
    out->pitch = pitch;
    return CUDA_SUCCESS;
}

/* A copy from the host to the host in a stream. */
struct host_move {
    struct side from, to;
    size_t width, height;
};

static void move_now(void *argument)
{
    struct host_move *move = argument;
    for (size_t row = 0; row < move->height; row++)
        memmove((void *)(uintptr_t)(move->to.address + row * move->to.pitch),
                (void *)(uintptr_t)(move->from.address + row * move->from.pitch), move->width);
    free(move);
}

static CUresult move_later(const struct host_move *what, CUstream stream)
{
    struct host_move *move = malloc(sizeof *move);
    if (!move)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *move = *what;
    CUresult status = cuLaunchHostFunc(stream, move_now, move);
    if (status != CUDA_SUCCESS)
        free(move);
    return status;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool asynchronous)
{
    CUresult status = check(stream);
    if (status != CUDA_SUCCESS)
        return status;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous ? rg_capture_refuse(stream) : rg_capture_copy_2d(p, stream);
    if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        const CUDA_MEMCPY3D box = {
            .srcXInBytes = p->srcXInBytes,
            .srcY = p->srcY,
            .srcMemoryType = p->srcMemoryType,
            .srcHost = p->srcHost,
            .srcDevice = p->srcDevice,
            .srcArray = p->srcArray,
            .srcPitch = p->srcPitch,
            .dstXInBytes = p->dstXInBytes,
            .dstY = p->dstY,
            .dstMemoryType = p->dstMemoryType,
            .dstHost = p->dstHost,
            .dstDevice = p->dstDevice,
            .dstArray = p->dstArray,
            .dstPitch = p->dstPitch,
            .WidthInBytes = p->WidthInBytes,
            .Height = p->Height,
            .Depth = 1,
        };
        return rg_copy_box(&box, stream, asynchronous);
    }
    struct side from, to;
    const size_t width = p->WidthInBytes, height = p->Height;
    if (!width || !height)
        return CUDA_SUCCESS;
    status = resolve(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY, p->srcPitch, width,
                     height, &from);
    if (status == CUDA_SUCCESS)
        status = resolve(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes, p->dstY, p->dstPitch,
                         width, height, &to);
    if (status != CUDA_SUCCESS)
        return status;
    stream = rg_effective_stream(stream);
    if (from.device && to.device &&
        !(rg_pinned_on_device(to.address, to.pitch, width, height) &&
          rg_pinned_on_device(from.address, from.pitch, width, height)))
        return CUDA_ERROR_INVALID_VALUE;
    if (from.device && to.device &&
        crosses(to.address, to.pitch, from.address, from.pitch, width, height, stream, asynchronous, &status))
        return status;
    if (from.device && to.device)
        return rg_pinned_copied(rg_op_rgCopy2D(to.address, to.pitch, from.address, from.pitch, width, height,
                                               stream, asynchronous),
                                to.address, from.address, stream, asynchronous);
    if (!from.device && !to.device && rg_copies_in_order)
        return move_later(&(struct host_move){.from = from, .to = to, .width = width, .height = height},
                          stream);
    if (!from.device && !to.device) {
        status = rg_op_cuStreamSynchronize(stream);
        for (size_t row = 0; row < height && status == CUDA_SUCCESS; row++)
            memmove((void *)(uintptr_t)(to.address + row * to.pitch),
                    (void *)(uintptr_t)(from.address + row * from.pitch), width);
        return status;
    }
    const struct side *host = to.device ? &from : &to, *device = to.device ? &to : &from;
    struct copy copy = {.host = {(unsigned char *)(uintptr_t)host->address, host->pitch, width, height, 0, 0},
                        .device = device->address,
                        .device_pitch = device->pitch,
                        .stream = stream,
                        .asynchronous = asynchronous};
    return to.device ? copy_in(&copy) : copy_out(&copy);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, true);
}

CUresult rg_copy_in_order(const CUDA_MEMCPY3D *p, CUstream stream)
{
    CUresult status = CUDA_SUCCESS;
    const size_t from_rows = p->srcHeight ? p->srcHeight : p->srcY + p->Height;
    const size_t to_rows = p->dstHeight ? p->dstHeight : p->dstY + p->Height;
    rg_copies_in_order = true;
    if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        status = rg_copy_box(p, stream, true);
        rg_copies_in_order = false;
        return status;
    }
    for (size_t z = 0; z < p->Depth && status == CUDA_SUCCESS; z++) {
        CUDA_MEMCPY2D slice = {
            .srcXInBytes = p->srcXInBytes,
            .srcY = p->srcY + (p->srcZ + z) * from_rows,
            .srcMemoryType = p->srcMemoryType,
            .srcHost = p->srcHost,
            .srcDevice = p->srcDevice,
            .srcPitch = p->srcPitch ? p->srcPitch : p->srcXInBytes + p->WidthInBytes,
            .dstXInBytes = p->dstXInBytes,
            .dstY = p->dstY + (p->dstZ + z) * to_rows,
            .dstMemoryType = p->dstMemoryType,
            .dstHost = p->dstHost,
            .dstDevice = p->dstDevice,
            .dstPitch = p->dstPitch ? p->dstPitch : p->dstXInBytes + p->WidthInBytes,
            .WidthInBytes = p->WidthInBytes,
            .Height = p->Height,
        };
        if (slice.Height > 1 && slice.srcPitch == slice.WidthInBytes &&
            slice.dstPitch == slice.WidthInBytes) {
            slice.WidthInBytes *= slice.Height; /* rows without gaps: one */
            slice.srcXInBytes += slice.srcY * slice.srcPitch;
            slice.dstXInBytes += slice.dstY * slice.dstPitch;
            slice.srcY = slice.dstY = 0;
            slice.srcPitch = slice.srcXInBytes + slice.WidthInBytes;
            slice.dstPitch = slice.dstXInBytes + slice.WidthInBytes;
            slice.Height = 1;
        }
        status = copy_2d(&slice, stream, true);
    }
    rg_copies_in_order = false;
    return status;
}
