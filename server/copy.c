/*
 * copy.c - copies between the connection and the device, by way of pinned memory (staging.h).
 *
 * In: the bulk data of a record is received straight into a pinned buffer and copied from there in stream order. Out:
 * the copy is put into the stream at its place in the order of records; the wait for it, the sending, and what more
 * than one buffer takes happen while others' calls go on.
 */
#include "generated/server/serve.h"
#include "server/direct.h"
#include "server/late.h"
#include "server/output.h"
#include "server/roles.h"
#include "server/room.h"
#include "server/staging.h"
#include "server/wait.h"

#include <string.h>

#define OUT_PART (1u << 20)

/* Bytes of the rows, or 0 with a violation for rows that nothing could hold. */
static bool packed_size(struct rg_job *job, size_t pitch, size_t width, size_t height, size_t *out)
{
    size_t extent;
    if (__builtin_mul_overflow(width, height, out) || __builtin_mul_overflow(pitch, height, &extent) ||
        (height > 1 && pitch < width)) {
        rg_job_violation(job, "%zu rows of %zu bytes, %zu apart", height, width, pitch);
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
static CUresult copy_small(struct rg_job *job, CUdeviceptr dst, size_t size, CUstream stream)
{
    unsigned char data[RG_STAGING_SMALL] __attribute__((aligned(64)));
    if (rg_job_recv_bulk(job, data, size) != RG_OK)
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
    return rg_copy_packed(true, rows->device, rows->pitch, rows->width, host, offset, size, stream);
}

CUresult rg_serve_rgCopyIn(struct rg_job *job, CUdeviceptr dst, size_t pitch, size_t width, size_t height,
                           CUstream stream, unsigned int synchronous)
{
    size_t size;
    if (!packed_size(job, pitch, width, height, &size))
        return CUDA_ERROR_INVALID_VALUE;
    if (size != job->bulk_left) {
        rg_job_violation(job, "%zu bytes of data for a copy of %zu", job->bulk_left, size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!size)
        return CUDA_SUCCESS;
    struct rg_context *context = rg_job_stream_context(job, stream);
    if (!context)
        return job->result;
    flatten(&pitch, &width, height);
    CUresult result;
    if (size <= RG_STAGING_SMALL && pitch == width)
        result = copy_small(job, dst, size, stream);
    else if (pitch != width || !rg_direct_copy_in(job, context, dst, size, stream, &result))
        result =
            rg_staging_arrive(job, context, size, stream, copy_rows_in, &(struct rows){dst, pitch, width});
    if (synchronous && result == CUDA_SUCCESS)
        rg_staging_synchronous(job, context, stream);
    return result;
}

CUresult rg_serve_rgCopyInSmall(struct rg_job *job, CUdeviceptr dst, CUstream stream,
                                unsigned int synchronous, size_t size, const void *data)
{
    if (size > RG_STAGING_SMALL) {
        rg_job_violation(job, "a small copy of %zu bytes", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct rg_context *context = rg_job_stream_context(job, stream);
    if (!context)
        return job->result;
    /* The driver takes the bytes along itself. */
    CUresult result = rg_driver.cuMemcpyHtoDAsync_v2(dst, data, size, stream);
    if (synchronous && result == CUDA_SUCCESS)
        rg_staging_synchronous(job, context, stream);
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
static CUresult start_part(struct rg_worker *worker, struct rg_context *context, const struct transfer *t,
                           size_t offset, struct rg_pinned **out)
{
    struct rg_pinned *pinned;
    CUresult result = rg_pinned_take(worker, context, part_size(t, offset), &pinned);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_copy_packed(false, t->src, t->pitch, t->width, pinned->memory, offset, part_size(t, offset),
                            t->stream);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuEventRecord(pinned->ready, t->stream);
    if (result != CUDA_SUCCESS) {
        rg_pinned_give_after(worker, pinned, t->stream); /* some of it may be on its way */
        return result;
    }
    *out = pinned;
    return CUDA_SUCCESS;
}

/* More than one message: each part is sent while the next one is copied. The first has been started. */
static CUresult send_parts(struct rg_worker *worker, struct rg_context *context, const struct transfer *t,
                           struct rg_pinned *now)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t offset = 0; now; offset += t->part) {
        const size_t size = part_size(t, offset);
        struct rg_pinned *next = NULL;
        if (offset + size < t->total)
            result = start_part(worker, context, t, offset + size, &next);
        CUresult waited = rg_driver.cuEventSynchronize(now->ready);
        if (result == CUDA_SUCCESS)
            result = waited;
        if (result == CUDA_SUCCESS)
            result = rg_pinned_land(worker, now, t->id, offset, size, offset + size == t->total);
        rg_pinned_give(worker, now);
        now = next;
        if (result != CUDA_SUCCESS && now) {
            (void)rg_driver.cuEventSynchronize(now->ready);
            rg_pinned_give(worker, now);
            now = NULL;
        }
    }
    return result;
}

/*
 * Sends the data from where it lies on the device, if that can be done: nothing is copied there, and who sends waits for
 * the stream first. What other threads of the program let the device do to it meanwhile is theirs to order, as ever.
 */
static bool out_directly(struct rg_job *job, struct rg_context *context, const struct transfer *t,
                         CUresult *result)
{
    struct rg_worker *worker = job->worker;
    struct rg_direct_area *area =
        t->pitch == t->width ? rg_direct_hold(worker, context, t->src, t->total) : NULL;
    if (!area)
        return false;
    struct rg_pinned *small; /* for its event */
    *result = rg_pinned_take(worker, context, 1, &small);
    if (*result != CUDA_SUCCESS) {
        rg_direct_let_go(worker, area);
        return true;
    }
    *result = rg_driver.cuEventRecord(small->ready, t->stream);
    if (*result == CUDA_SUCCESS)
        *result = rg_wait_event(job, small->ready);
    rg_output_drain(worker);
    rg_pinned_give(worker, small);
    const size_t piece = rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->pace));
    if (*result == CUDA_SUCCESS && t->total <= RG_BULK_MAX && !(t->id && t->total > piece)) {
        job->reply_bulk = (const void *)(uintptr_t)t->src;
        job->reply_bulk_size = t->total;
        job->reply_transfer = t->id;
        rg_thread_of(job)->reply_area = area;
        rg_direct_sent(worker, t->total);
        return true;
    }
    if (*result == CUDA_SUCCESS && rg_job_hand_over(job)) {
        if (rg_worker_land(worker, t->id, 0, (const void *)(uintptr_t)t->src, t->total, true, NULL) != RG_OK)
            *result = CUDA_ERROR_UNKNOWN;
        rg_direct_sent(worker, t->total);
    } else if (*result == CUDA_SUCCESS) {
        *result = job->result;
    }
    rg_direct_let_go(worker, area);
    return true;
}

CUresult rg_serve_rgCopyOut(struct rg_job *job, CUdeviceptr src, size_t pitch, size_t width, size_t height,
                            CUstream stream, unsigned long long transfer)
{
    struct rg_worker *worker = job->worker;
    struct transfer t = {.src = src, .pitch = pitch, .width = width, .stream = stream, .id = transfer};
    if (!packed_size(job, pitch, width, height, &t.total))
        return CUDA_ERROR_INVALID_VALUE;
    if (!t.total)
        return CUDA_SUCCESS;
    /* where the client takes parts, those are sent while others are copied */
    const bool parts = t.total > RG_BULK_MAX || (transfer && t.total > OUT_PART);
    t.part = t.total > RG_BULK_MAX ? OUT_PART : parts ? OUT_PART / 2 : RG_BULK_MAX;
    flatten(&t.pitch, &t.width, height);
    struct rg_context *context = rg_job_stream_context(job, stream);
    struct rg_pinned *pinned = NULL;
    CUresult result = job->result;
    if (context && out_directly(job, context, &t, &result))
        return result;
    if (context)
        result = start_part(worker, context, &t, 0, &pinned);
    if (result != CUDA_SUCCESS)
        return result;
    if (parts) {
        if (!rg_job_hand_over(job)) {
            rg_pinned_give_after(worker, pinned, stream);
            return job->result;
        }
        result = send_parts(worker, context, &t, pinned);
        rg_output_drain(worker);
        return result;
    }
    result = rg_wait_event(job, pinned->ready);
    rg_output_drain(worker);
    if (result != CUDA_SUCCESS) {
        rg_pinned_give_after(worker, pinned, stream);
        return result;
    }
    if (transfer && t.total > rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->pace))) {
        result = rg_job_hand_over(job) ? rg_pinned_land(worker, pinned, t.id, 0, t.total, true) : job->result;
        rg_pinned_give(worker, pinned);
        return result;
    }
    job->reply_bulk = pinned->memory;
    job->reply_bulk_size = t.total;
    job->reply_transfer = transfer;
    rg_thread_of(job)->reply_buffer = pinned;
    return CUDA_SUCCESS;
}

/* --- when the stream gets there -------------------------------------------------------------------------------------- */

static bool late_area(struct rg_job *job, struct rg_late_area *area, size_t height)
{
    if (!packed_size(job, area->pitch, area->width, height, &area->total))
        return false;
    flatten(&area->pitch, &area->width, height);
    return area->total != 0;
}

CUresult rg_serve_rgCopyInLate(struct rg_job *job, CUdeviceptr dst, size_t pitch, size_t width, size_t height,
                               CUstream stream, unsigned long long transfer)
{
    struct rg_late_area area = {.transfer = transfer, .device = dst, .pitch = pitch, .width = width};
    if (!late_area(job, &area, height))
        return job->result;
    rg_room_tell_now(job->worker);
    /* Putting many parts into the stream may block until the first has been answered. */
    rg_job_split(job);
    return job->violated ? CUDA_ERROR_OUT_OF_MEMORY : rg_late_pull(job, &area, stream);
}

CUresult rg_serve_rgCopyOutLate(struct rg_job *job, CUdeviceptr src, size_t pitch, size_t width,
                                size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_late_area area = {.transfer = transfer, .device = src, .pitch = pitch, .width = width};
    return late_area(job, &area, height) ? rg_late_landing(job, &area, stream) : job->result;
}

/* --- on the device ------------------------------------------------------------------------------------------------------ */

CUresult rg_serve_rgCopy2D(struct rg_job *job, CUdeviceptr dst, size_t dst_pitch, CUdeviceptr src,
                           size_t src_pitch, size_t width, size_t height, CUstream stream,
                           unsigned int asynchronous)
{
    (void)job;
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
