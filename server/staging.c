/* staging.c - pools of pinned buffers, packed copies, synchronous copies. See staging.h. */
#include "server/staging.h"

#include "generated/server/driver.h"
#include "server/direct.h"
#include "server/lent.h"
#include "server/room.h"
#include "transport/bundle/bundle.h"

#include <stdlib.h>
#include <string.h>

#define IN_PIECE (512u << 10)

static _Atomic uint64_t given_count;

static CUresult create(struct rg_worker *worker, struct rg_context *context, size_t size,
                       struct rg_pinned **out)
{
    if (!rg_driver.cuMemHostAlloc || !rg_driver.cuEventCreate)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_pinned *pinned = calloc(1, sizeof *pinned);
    if (!pinned)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = rg_driver.cuMemHostAlloc(&pinned->memory, size, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS) {
        result = rg_driver.cuEventCreate(&pinned->ready, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
        if (result != CUDA_SUCCESS)
            (void)rg_driver.cuMemFreeHost(pinned->memory);
    }
    if (result != CUDA_SUCCESS) {
        free(pinned);
        return result;
    }
    (void)rg_conn_register(worker->conn, pinned->memory, size); /* where that helps, and if it can be had */
    pinned->size = size;
    pinned->taken = true;
    pthread_mutex_lock(&worker->staging_lock);
    pinned->next = context->pinned;
    context->pinned = pinned;
    context->pinned_bytes += size;
    pthread_mutex_unlock(&worker->staging_lock);
    *out = pinned;
    return CUDA_SUCCESS;
}

static void destroy(struct rg_worker *worker, struct rg_pinned *list)
{
    while (list) {
        struct rg_pinned *next = list->next;
        (void)rg_driver.cuEventDestroy_v2(list->ready);
        rg_hold_end(&list->hold);
        rg_conn_unregister(worker->conn, list->memory);
        (void)rg_driver.cuMemFreeHost(list->memory);
        free(list);
        list = next;
    }
}

/* Whether nothing uses the buffer; the lock is held. */
static bool is_free(struct rg_pinned *pinned)
{
    if (pinned->pending && !pinned->taken && rg_driver.cuEventQuery(pinned->ready) == CUDA_SUCCESS)
        pinned->pending = false;
    return !pinned->taken && !pinned->pending && rg_hold_ended(&pinned->hold);
}

/* What is held longest of the buffers that nothing else is in the way of, if much is held. The lock is held. */
static struct rg_pinned *held_longest(const struct rg_context *context, size_t size)
{
    struct rg_pinned *longest = NULL;
    size_t held = 0;
    for (struct rg_pinned *pinned = context->pinned; pinned; pinned = pinned->next) {
        if (pinned->taken || pinned->pending || rg_hold_ended(&pinned->hold))
            continue;
        held += pinned->size;
        if (pinned->size >= size && (!longest || pinned->given < longest->given))
            longest = pinned;
    }
    return held + size > RG_STAGING_HELD ? longest : NULL;
}

void rg_staging_shrink(struct rg_worker *worker, struct rg_context *context)
{
    struct rg_pinned *unused = NULL;
    pthread_mutex_lock(&worker->staging_lock);
    for (struct rg_pinned **link = &context->pinned; *link && context->pinned_bytes > RG_BULK_CREDIT;) {
        struct rg_pinned *pinned = *link;
        if (!is_free(pinned)) {
            link = &pinned->next;
            continue;
        }
        rg_room_forget(worker, pinned);
        *link = pinned->next;
        context->pinned_bytes -= pinned->size;
        pinned->next = unused;
        unused = pinned;
    }
    pthread_mutex_unlock(&worker->staging_lock);
    destroy(worker, unused);
}

CUresult rg_pinned_take(struct rg_worker *worker, struct rg_context *context, size_t size,
                        struct rg_pinned **out)
{
    size = (size_t)rg_bulk_credit_of(size);
    struct rg_pinned *best = NULL;
    pthread_mutex_lock(&worker->staging_lock);
    const bool crowded = context->pinned_bytes + size > RG_BULK_CREDIT;
    for (struct rg_pinned *pinned = context->pinned; pinned && (!best || best->size != size);
         pinned = pinned->next)
        if (pinned->size >= size && (crowded || pinned->size <= 4 * size) &&
            (!best || pinned->size < best->size) && is_free(pinned))
            best = pinned;
    if (!best)
        best = held_longest(context, size);
    if (best) {
        best->taken = true;
        rg_room_forget(worker, best);
    }
    pthread_mutex_unlock(&worker->staging_lock);
    if (best) {
        rg_hold_end(&best->hold);
        *out = best;
        return CUDA_SUCCESS;
    }
    return create(worker, context, size, out);
}

static void give(struct rg_worker *worker, struct rg_pinned *pinned, bool pending)
{
    pthread_mutex_lock(&worker->staging_lock);
    pinned->given = atomic_fetch_add(&given_count, 1);
    pinned->pending = pending;
    pinned->taken = pinned->kept = false;
    if (worker->staging_waits)
        pthread_cond_signal(&worker->staging_given);
    pthread_mutex_unlock(&worker->staging_lock);
}

void rg_pinned_give_after(struct rg_worker *worker, struct rg_pinned *pinned, CUstream stream)
{
    if (pinned)
        /* If the event cannot be recorded the context has failed, and nothing will use the buffer any more. */
        give(worker, pinned, rg_driver.cuEventRecord(pinned->ready, stream) == CUDA_SUCCESS);
}

void rg_pinned_give(struct rg_worker *worker, struct rg_pinned *pinned)
{
    if (pinned)
        give(worker, pinned, false);
}

CUresult rg_pinned_land(struct rg_worker *worker, struct rg_pinned *pinned, uint64_t transfer, size_t offset,
                        size_t size, bool last)
{
    const enum rg_status status =
        rg_worker_land(worker, transfer, offset, pinned->memory, size, last, &pinned->hold);
    return status == RG_OK ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

void rg_stream_give_slots(struct rg_worker *worker, struct rg_stream *stream)
{
    for (int i = 0; i < 4; i++) {
        rg_pinned_give_after(worker, stream->pull_slots[i], stream->object);
        rg_pinned_give_after(worker, stream->landing_slots[i], stream->object);
        stream->pull_slots[i] = stream->landing_slots[i] = NULL;
    }
}

/* Whether a thread is at some buffer of the context's; the lock is held. */
static bool any_in_use(const struct rg_context *context)
{
    const struct rg_pinned *pinned = context->pinned;
    while (pinned && (!pinned->taken || pinned->kept))
        pinned = pinned->next;
    return pinned != NULL;
}

void rg_staging_drop(struct rg_worker *worker, struct rg_context *context)
{
    pthread_mutex_lock(&worker->staging_lock);
    worker->staging_waits = true;
    while (any_in_use(context))
        pthread_cond_wait(&worker->staging_given, &worker->staging_lock);
    worker->staging_waits = false;
    struct rg_pinned *list = context->pinned;
    for (struct rg_pinned *pinned = list; pinned; pinned = pinned->next)
        rg_room_forget(worker, pinned);
    context->pinned = NULL;
    context->pinned_bytes = 0;
    pthread_mutex_unlock(&worker->staging_lock);
    destroy(worker, list);
    rg_lent_drop(worker, context);
    rg_direct_drop(worker, context);
    if (context->synchronous)
        (void)rg_driver.cuEventDestroy_v2(context->synchronous);
    context->synchronous = NULL;
    free(context->legacy);
    context->legacy = NULL;
}

void rg_staging_synchronous(struct rg_job *job, struct rg_context *context, CUstream stream)
{
    if (!context->synchronous &&
        rg_driver.cuEventCreate(&context->synchronous, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (rg_driver.cuEventRecord(context->synchronous, stream) != CUDA_SUCCESS)
        return;
    context->synchronous_seq++;
    context->synchronous_stream =
        stream && stream != CU_STREAM_LEGACY ? rg_job_stream_state(job, stream) : NULL;
}

void rg_staging_order(struct rg_worker *worker, struct rg_stream *stream)
{
    struct rg_object *entry = rg_objects_find(&worker->objects, stream->context);
    struct rg_context *context = entry ? entry->extra : NULL;
    if (!context || stream->seen_synchronous == context->synchronous_seq)
        return;
    stream->seen_synchronous = context->synchronous_seq;
    /* The stream itself, and blocking streams after the legacy stream, come after it anyway. */
    if (context->synchronous_stream == stream || (!context->synchronous_stream && !stream->non_blocking))
        return;
    if (rg_driver.cuEventQuery(context->synchronous) != CUDA_SUCCESS)
        (void)rg_driver.cuStreamWaitEvent(stream->object, context->synchronous, 0);
}

/* --- what arrives ----------------------------------------------------------------------------------------------------- */

/* What lies in memory lent to the client already; *done bytes of `size`. */
static CUresult arrive_lent(struct rg_job *job, struct rg_context *context, size_t size, CUstream stream,
                            rg_staging_copy copy, const void *what, size_t *done)
{
    CUresult result = CUDA_SUCCESS;
    if (rg_gpu_path(job->worker) == RG_GPU_PATH_STAGING) /* else data may go past it: it is asked for */
        rg_lent_tend(job->worker, context);
    while (*done < size && result == CUDA_SUCCESS) {
        void *at;
        const size_t piece = rg_job_take_lent(job, size - *done, &at);
        if (!piece)
            break;
        result = copy(what, at, *done, piece, stream);
        rg_lent_give_after(job->worker, context, at, stream);
        *done += piece;
    }
    return job->violated ? CUDA_ERROR_UNKNOWN : result;
}

CUresult rg_staging_arrive(struct rg_job *job, struct rg_context *context, size_t size, CUstream stream,
                           rg_staging_copy copy, const void *what)
{
    size_t offset = 0;
    struct rg_pinned *pinned;
    CUresult result = arrive_lent(job, context, size, stream, copy, what, &offset);
    if (result != CUDA_SUCCESS || offset == size)
        return result;
    result = rg_room_take(job->worker, context, size, size - offset, &pinned);
    if (result != CUDA_SUCCESS)
        return result;
    /* in pieces: what has arrived is copied while the rest arrives, and from memory that is still in a cache */
    unsigned char *at = pinned->memory;
    const size_t most =
        rg_bundle_rails(job->worker->conn) ? size : IN_PIECE; /* all rails write what is asked for at once */
    while (offset < size && result == CUDA_SUCCESS) {
        const size_t piece = size - offset < most ? size - offset : most;
        if (rg_job_recv_bulk(job, at, piece) != RG_OK)
            result = CUDA_ERROR_UNKNOWN;
        else
            result = copy(what, at, offset, piece, stream);
        offset += piece;
        at += piece;
    }
    rg_pinned_give_after(job->worker, pinned, stream);
    return result;
}

/* --- packed copies -------------------------------------------------------------------------------------------------- */

static CUresult copy_linear(bool to_device, CUdeviceptr device, void *host, size_t size, CUstream stream)
{
    return to_device ? rg_driver.cuMemcpyHtoDAsync_v2(device, host, size, stream)
                     : rg_driver.cuMemcpyDtoHAsync_v2(host, device, size, stream);
}

static CUresult copy_rows(bool to_device, CUdeviceptr device, size_t pitch, size_t width, size_t height,
                          void *host, CUstream stream)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .WidthInBytes = width,
        .Height = height,
    };
    if (to_device) {
        copy.srcHost = host;
        copy.srcPitch = width;
        copy.dstDevice = device;
        copy.dstPitch = pitch;
    } else {
        copy.srcDevice = device;
        copy.srcPitch = pitch;
        copy.dstHost = host;
        copy.dstPitch = width;
    }
    if (!rg_driver.cuMemcpy2DAsync_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    return rg_driver.cuMemcpy2DAsync_v2(&copy, stream);
}

CUresult rg_copy_packed(bool to_device, CUdeviceptr device, size_t pitch, size_t width, void *host,
                        size_t offset, size_t size, CUstream stream)
{
    if (pitch == width)
        return copy_linear(to_device, device + offset, host, size, stream);
    CUresult result = CUDA_SUCCESS;
    unsigned char *at = host;
    while (size && result == CUDA_SUCCESS) {
        const size_t row = offset / width, column = offset % width;
        const CUdeviceptr start = device + row * pitch + column;
        size_t part;
        if (column || size < width) {
            part = width - column < size ? width - column : size;
            result = copy_linear(to_device, start, at, part, stream);
        } else {
            const size_t rows = size / width;
            part = rows * width;
            result = rows == 1 ? copy_linear(to_device, start, at, part, stream)
                               : copy_rows(to_device, start, pitch, width, rows, at, stream);
        }
        at += part;
        offset += part;
        size -= part;
    }
    return result;
}
