/*
 * copy.c - copies between the connection and the device, by way of pinned memory (staging.h).
 *
 * In: the bulk data of a record is received straight into a pinned buffer and copied from there in stream order. Out:
 * the copy is put into the stream at its place in the order of records; the wait for it, the sending, and what more
 * than one buffer takes happen while others' calls go on.
 */
#include "generated/server/execute.h"
#include "server/core/leader_followers.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"
#include "server/transfer/credit.h"
#include "server/transfer/deferred.h"
#include "server/transfer/gpudirect.h"
#include "server/transfer/staging.h"

#include <string.h>

#define OUT_PART (1u << 20)

/* Bytes of the rows, or 0 with a violation for rows that nothing could hold. */
static bool packed_size(struct rg_request *request, size_t pitch, size_t width, size_t height, size_t *out)
{
    size_t extent;
    if (__builtin_mul_overflow(width, height, out) || __builtin_mul_overflow(pitch, height, &extent) ||
        (height > 1 && pitch < width)) {
        rg_request_violation(request, "%zu rows of %zu bytes, %zu apart", height, width, pitch);
        return false;
    }
    return true;
}

/* One row, and rows without gaps, are a plain copy. */
static void flatten(size_t *pitch, size_t *width, size_t height)
{
    if (height == 1 || *pitch == *width)
        *width *= height, *pitch = *width;
}

/* --- to the device ----------------------------------------------------------------------------------------------- */

/* Small plain copies: the driver takes the bytes along itself. */
static CUresult copy_small(struct rg_request *request, CUdeviceptr dst, size_t size, CUstream stream)
{
    unsigned char data[RG_STAGING_SMALL] __attribute__((aligned(64)));
    if (rg_request_recv_bulk(request, data, size) != RG_OK)
        return CUDA_ERROR_UNKNOWN;
    return rg_driver.cuMemcpyHtoDAsync_v2(dst, data, size, stream);
}

struct rows {
    CUdeviceptr device;
    size_t pitch, width;
};

static CUresult copy_rows_in(const void *what, void *host, size_t offset, size_t size, CUstream stream)
{
    const struct rows *rows = what;
    return rg_region_copy_rows(true, rows->device, rows->pitch, rows->width, host, offset, size, stream);
}

CUresult rg_execute_rgCopyIn(struct rg_request *request, CUdeviceptr dst, size_t pitch, size_t width,
                             size_t height, CUstream stream, unsigned int synchronous)
{
    size_t size;
    if (!packed_size(request, pitch, width, height, &size))
        return CUDA_ERROR_INVALID_VALUE;
    if (size != request->bulk_left) {
        rg_request_violation(request, "%zu bytes of data for a copy of %zu", request->bulk_left, size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!size)
        return CUDA_SUCCESS;
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    if (!context)
        return request->result;
    flatten(&pitch, &width, height);
    CUresult result;
    if (size <= RG_STAGING_SMALL && pitch == width)
        result = copy_small(request, dst, size, stream);
    else if (pitch != width || !rg_gpudirect_copy_in(request, context, dst, size, stream, &result))
        result = rg_staging_arrive(request, context, size, stream, copy_rows_in,
                                   &(struct rows){dst, pitch, width});
    if (synchronous && result == CUDA_SUCCESS)
        rg_staging_synchronous(request, context, stream);
    return result;
}

CUresult rg_execute_rgCopyInSmall(struct rg_request *request, CUdeviceptr dst, CUstream stream,
                                  unsigned int synchronous, size_t size, const void *data)
{
    if (size > RG_STAGING_SMALL) {
        rg_request_violation(request, "a small copy of %zu bytes", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    if (!context)
        return request->result;
    /* The driver takes the bytes along itself. */
    CUresult result = rg_driver.cuMemcpyHtoDAsync_v2(dst, data, size, stream);
    if (synchronous && result == CUDA_SUCCESS)
        rg_staging_synchronous(request, context, stream);
    return result;
}

/* --- to the host --------------------------------------------------------------------------------------------------- */

struct transfer {
    CUdeviceptr src;
    size_t pitch, width, total, part;
    CUstream stream;
    uint64_t id;
};

static size_t part_size(const struct transfer *t, size_t offset)
{
    return t->total - offset < t->part ? t->total - offset : t->part;
}

/* Puts the copy of the part at `offset` into the stream, and an event behind it. */
static CUresult start_part(struct rg_worker *worker, struct rg_worker_context *context,
                           const struct transfer *t, size_t offset, struct rg_staging_buffer **out)
{
    struct rg_staging_buffer *buffer;
    CUresult result = rg_staging_take(worker, context, part_size(t, offset), &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_region_copy_rows(false, t->src, t->pitch, t->width, buffer->memory, offset,
                                 part_size(t, offset), t->stream);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuEventRecord(buffer->ready, t->stream);
    if (result != CUDA_SUCCESS) {
        rg_staging_give_after(worker, buffer, t->stream); /* some of it may be on its way */
        return result;
    }
    *out = buffer;
    return CUDA_SUCCESS;
}

/* More than one message: each part is sent while the next one is copied. The first has been started. */
static CUresult send_parts(struct rg_worker *worker, struct rg_worker_context *context,
                           const struct transfer *t, struct rg_staging_buffer *now)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t offset = 0; now; offset += t->part) {
        const size_t size = part_size(t, offset);
        struct rg_staging_buffer *next = NULL;
        if (offset + size < t->total)
            result = start_part(worker, context, t, offset + size, &next);
        CUresult waited = rg_driver.cuEventSynchronize(now->ready);
        if (result == CUDA_SUCCESS)
            result = waited;
        if (result == CUDA_SUCCESS)
            result = rg_staging_send(worker, now, t->id, offset, size, offset + size == t->total);
        rg_staging_give(worker, now);
        now = next;
        if (result != CUDA_SUCCESS && now) {
            (void)rg_driver.cuEventSynchronize(now->ready);
            rg_staging_give(worker, now);
            now = NULL;
        }
    }
    return result;
}

/*
 * Sends the data from where it lies on the device, if that can be done: nothing is copied there, and who sends waits for
 * the stream first. What other threads of the program let the device do to it meanwhile is theirs to order, as ever.
 */
static bool out_directly(struct rg_request *request, struct rg_worker_context *context,
                         const struct transfer *t, CUresult *result)
{
    struct rg_worker *worker = request->worker;
    struct rg_gpudirect_area *area =
        t->pitch == t->width ? rg_gpudirect_pin(worker, context, t->src, t->total) : NULL;
    if (!area)
        return false;
    struct rg_staging_buffer *small; /* for its event */
    *result = rg_staging_take(worker, context, 1, &small);
    if (*result != CUDA_SUCCESS) {
        rg_gpudirect_unpin(worker, area);
        return true;
    }
    *result = rg_driver.cuEventRecord(small->ready, t->stream);
    if (*result == CUDA_SUCCESS)
        *result = rg_wait_event(request, small->ready);
    rg_output_drain(worker);
    rg_staging_give(worker, small);
    const size_t piece = rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->pace));
    if (*result == CUDA_SUCCESS && t->total <= RG_BULK_MAX && !(t->id && t->total > piece)) {
        request->reply_bulk = (const void *)(uintptr_t)t->src;
        request->reply_bulk_size = t->total;
        request->reply_transfer = t->id;
        rg_executor_of(request)->reply_area = area;
        rg_gpudirect_sent(worker, t->total);
        return true;
    }
    if (*result == CUDA_SUCCESS && rg_request_detach(request)) {
        if (rg_worker_send_transfer(worker, t->id, 0, (const void *)(uintptr_t)t->src, t->total, true,
                                    NULL) != RG_OK)
            *result = CUDA_ERROR_UNKNOWN;
        rg_gpudirect_sent(worker, t->total);
    } else if (*result == CUDA_SUCCESS) {
        *result = request->result;
    }
    rg_gpudirect_unpin(worker, area);
    return true;
}

CUresult rg_execute_rgCopyOut(struct rg_request *request, CUdeviceptr src, size_t pitch, size_t width,
                              size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_worker *worker = request->worker;
    struct transfer t = {.src = src, .pitch = pitch, .width = width, .stream = stream, .id = transfer};
    if (!packed_size(request, pitch, width, height, &t.total))
        return CUDA_ERROR_INVALID_VALUE;
    if (!t.total)
        return CUDA_SUCCESS;
    /* where the client takes parts, those are sent while others are copied */
    const bool parts = t.total > RG_BULK_MAX || (transfer && t.total > OUT_PART);
    t.part = t.total > RG_BULK_MAX ? OUT_PART : parts ? OUT_PART / 2 : RG_BULK_MAX;
    flatten(&t.pitch, &t.width, height);
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    struct rg_staging_buffer *buffer = NULL;
    CUresult result = request->result;
    if (context && out_directly(request, context, &t, &result))
        return result;
    if (context)
        result = start_part(worker, context, &t, 0, &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    if (parts) {
        if (!rg_request_detach(request)) {
            rg_staging_give_after(worker, buffer, stream);
            return request->result;
        }
        result = send_parts(worker, context, &t, buffer);
        rg_output_drain(worker);
        return result;
    }
    result = rg_wait_event(request, buffer->ready);
    rg_output_drain(worker);
    if (result != CUDA_SUCCESS) {
        rg_staging_give_after(worker, buffer, stream);
        return result;
    }
    if (transfer && t.total > rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->pace))) {
        result = rg_request_detach(request) ? rg_staging_send(worker, buffer, t.id, 0, t.total, true)
                                            : request->result;
        rg_staging_give(worker, buffer);
        return result;
    }
    request->reply_bulk = buffer->memory;
    request->reply_bulk_size = t.total;
    request->reply_transfer = transfer;
    rg_executor_of(request)->reply_buffer = buffer;
    return CUDA_SUCCESS;
}

/* --- when the stream gets there -------------------------------------------------------------------------------------- */

static bool deferred_area(struct rg_request *request, struct rg_deferred_area *area, size_t height)
{
    if (!packed_size(request, area->pitch, area->width, height, &area->total))
        return false;
    flatten(&area->pitch, &area->width, height);
    return area->total != 0;
}

CUresult rg_execute_rgCopyInLate(struct rg_request *request, CUdeviceptr dst, size_t pitch, size_t width,
                                 size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_deferred_area area = {.transfer = transfer, .device = dst, .pitch = pitch, .width = width};
    if (!deferred_area(request, &area, height))
        return request->result;
    rg_credit_report(request->worker);
    /* Putting many parts into the stream may block until the first has been answered. */
    rg_request_separate_reader(request);
    return request->violated ? CUDA_ERROR_OUT_OF_MEMORY : rg_deferred_rendezvous(request, &area, stream);
}

CUresult rg_execute_rgCopyOutLate(struct rg_request *request, CUdeviceptr src, size_t pitch, size_t width,
                                  size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_deferred_area area = {.transfer = transfer, .device = src, .pitch = pitch, .width = width};
    return deferred_area(request, &area, height) ? rg_deferred_read(request, &area, stream) : request->result;
}

/* --- on the device ------------------------------------------------------------------------------------------------------ */

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
    if (!rg_driver.cuMemcpy2DAsync_v2 || !rg_driver.cuMemcpy2DUnaligned_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* the unaligned form takes every pitch; it has no asynchronous sibling, but between device memories it waits for
     * nothing, and works in the legacy stream as cuMemcpy2D does */
    return asynchronous || stream ? rg_driver.cuMemcpy2DAsync_v2(&copy, stream)
                                  : rg_driver.cuMemcpy2DUnaligned_v2(&copy);
}
