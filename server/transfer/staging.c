/* staging.c - pools of pinned buffers, packed copies, synchronous copies. See staging.h. */
#include "server/transfer/staging.h"

#include "generated/server/driver.h"
#include "server/transfer/advertised.h"
#include "server/transfer/credit.h"
#include "server/transfer/gpudirect.h"
#include "transport/multipath/multipath.h"

#include <stdlib.h>
#include <string.h>

#define IN_PIECE (512u << 10)

static _Atomic uint64_t given_count;

static CUresult create(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                       struct rg_staging_buffer **out)
{
    if (!rg_driver.cuMemHostAlloc || !rg_driver.cuEventCreate)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_staging_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = rg_driver.cuMemHostAlloc(&buffer->memory, size, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS) {
        result = rg_driver.cuEventCreate(&buffer->ready, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
        if (result != CUDA_SUCCESS)
            (void)rg_driver.cuMemFreeHost(buffer->memory);
    }
    if (result != CUDA_SUCCESS) {
        free(buffer);
        return result;
    }
    (void)rg_conn_register(worker->conn, buffer->memory, size); /* where that helps, and if it can be had */
    buffer->size = size;
    buffer->taken = true;
    pthread_mutex_lock(&worker->staging_lock);
    buffer->next = context->buffer;
    context->buffer = buffer;
    context->staging_bytes += size;
    pthread_mutex_unlock(&worker->staging_lock);
    *out = buffer;
    return CUDA_SUCCESS;
}

static void destroy(struct rg_worker *worker, struct rg_staging_buffer *list)
{
    while (list) {
        struct rg_staging_buffer *next = list->next;
        (void)rg_driver.cuEventDestroy_v2(list->ready);
        rg_lease_end(&list->hold);
        rg_conn_unregister(worker->conn, list->memory);
        (void)rg_driver.cuMemFreeHost(list->memory);
        free(list);
        list = next;
    }
}

/* Whether nothing uses the buffer; the lock is held. */
static bool is_free(struct rg_staging_buffer *buffer)
{
    if (buffer->pending && !buffer->taken && rg_driver.cuEventQuery(buffer->ready) == CUDA_SUCCESS)
        buffer->pending = false;
    return !buffer->taken && !buffer->pending && rg_lease_ended(&buffer->hold);
}

/* What is held longest of the buffers that nothing else is in the way of, if much is held. The lock is held. */
static struct rg_staging_buffer *held_longest(const struct rg_worker_context *context, size_t size)
{
    struct rg_staging_buffer *longest = NULL;
    size_t held = 0;
    for (struct rg_staging_buffer *buffer = context->buffer; buffer; buffer = buffer->next) {
        if (buffer->taken || buffer->pending || rg_lease_ended(&buffer->hold))
            continue;
        held += buffer->size;
        if (buffer->size >= size && (!longest || buffer->given < longest->given))
            longest = buffer;
    }
    return held + size > RG_STAGING_HELD ? longest : NULL;
}

void rg_staging_shrink(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct rg_staging_buffer *unused = NULL;
    pthread_mutex_lock(&worker->staging_lock);
    for (struct rg_staging_buffer **link = &context->buffer;
         *link && context->staging_bytes > RG_BULK_CREDIT;) {
        struct rg_staging_buffer *buffer = *link;
        if (!is_free(buffer)) {
            link = &buffer->next;
            continue;
        }
        rg_credit_release(worker, buffer);
        *link = buffer->next;
        context->staging_bytes -= buffer->size;
        buffer->next = unused;
        unused = buffer;
    }
    pthread_mutex_unlock(&worker->staging_lock);
    destroy(worker, unused);
}

CUresult rg_staging_take(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                         struct rg_staging_buffer **out)
{
    size = (size_t)rg_bulk_credit_of(size);
    struct rg_staging_buffer *best = NULL;
    pthread_mutex_lock(&worker->staging_lock);
    const bool crowded = context->staging_bytes + size > RG_BULK_CREDIT;
    for (struct rg_staging_buffer *buffer = context->buffer; buffer && (!best || best->size != size);
         buffer = buffer->next)
        if (buffer->size >= size && (crowded || buffer->size <= 4 * size) &&
            (!best || buffer->size < best->size) && is_free(buffer))
            best = buffer;
    if (!best)
        best = held_longest(context, size);
    if (best) {
        best->taken = true;
        rg_credit_release(worker, best);
    }
    pthread_mutex_unlock(&worker->staging_lock);
    if (best) {
        rg_lease_end(&best->hold);
        *out = best;
        return CUDA_SUCCESS;
    }
    return create(worker, context, size, out);
}

static void give(struct rg_worker *worker, struct rg_staging_buffer *buffer, bool pending)
{
    pthread_mutex_lock(&worker->staging_lock);
    buffer->given = atomic_fetch_add(&given_count, 1);
    buffer->pending = pending;
    buffer->taken = buffer->kept = false;
    if (worker->staging_waits)
        pthread_cond_signal(&worker->staging_given);
    pthread_mutex_unlock(&worker->staging_lock);
}

void rg_staging_give_after(struct rg_worker *worker, struct rg_staging_buffer *buffer, CUstream stream)
{
    if (buffer)
        /* If the event cannot be recorded the context has failed, and nothing will use the buffer any more. */
        give(worker, buffer, rg_driver.cuEventRecord(buffer->ready, stream) == CUDA_SUCCESS);
}

void rg_staging_give(struct rg_worker *worker, struct rg_staging_buffer *buffer)
{
    if (buffer)
        give(worker, buffer, false);
}

CUresult rg_staging_send(struct rg_worker *worker, struct rg_staging_buffer *buffer, uint64_t transfer,
                         size_t offset, size_t size, bool last)
{
    const enum rg_status status =
        rg_worker_send_transfer(worker, transfer, offset, buffer->memory, size, last, &buffer->hold);
    return status == RG_OK ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

void rg_staging_give_slots(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    for (int i = 0; i < 4; i++) {
        rg_staging_give_after(worker, stream->rendezvous_slots[i], stream->object);
        rg_staging_give_after(worker, stream->read_slots[i], stream->object);
        stream->rendezvous_slots[i] = stream->read_slots[i] = NULL;
    }
}

/* Whether a thread is at some buffer of the context's; the lock is held. */
static bool any_in_use(const struct rg_worker_context *context)
{
    const struct rg_staging_buffer *buffer = context->buffer;
    while (buffer && (!buffer->taken || buffer->kept))
        buffer = buffer->next;
    return buffer != NULL;
}

void rg_staging_drop(struct rg_worker *worker, struct rg_worker_context *context)
{
    pthread_mutex_lock(&worker->staging_lock);
    worker->staging_waits = true;
    while (any_in_use(context))
        pthread_cond_wait(&worker->staging_given, &worker->staging_lock);
    worker->staging_waits = false;
    struct rg_staging_buffer *list = context->buffer;
    for (struct rg_staging_buffer *buffer = list; buffer; buffer = buffer->next)
        rg_credit_release(worker, buffer);
    context->buffer = NULL;
    context->staging_bytes = 0;
    pthread_mutex_unlock(&worker->staging_lock);
    destroy(worker, list);
    rg_advertised_drop(worker, context);
    rg_gpudirect_drop(worker, context);
    if (context->synchronous)
        (void)rg_driver.cuEventDestroy_v2(context->synchronous);
    context->synchronous = NULL;
    free(context->legacy);
    context->legacy = NULL;
}

void rg_staging_synchronous(struct rg_request *request, struct rg_worker_context *context, CUstream stream)
{
    if (!context->synchronous &&
        rg_driver.cuEventCreate(&context->synchronous, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (rg_driver.cuEventRecord(context->synchronous, stream) != CUDA_SUCCESS)
        return;
    context->synchronous_seq++;
    context->synchronous_stream =
        stream && stream != CU_STREAM_LEGACY ? rg_request_stream_state(request, stream) : NULL;
}

void rg_staging_order(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct rg_object *entry = rg_objects_find(&worker->objects, stream->context);
    struct rg_worker_context *context = entry ? entry->extra : NULL;
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
static CUresult arrive_lent(struct rg_request *request, struct rg_worker_context *context, size_t size,
                            CUstream stream, rg_staging_copy copy, const void *what, size_t *done)
{
    CUresult result = CUDA_SUCCESS;
    if (rg_gpudirect_path(request->worker) ==
        RG_GPU_PATH_STAGING) /* else data may go past it: it is asked for */
        rg_advertised_tend(request->worker, context);
    while (*done < size && result == CUDA_SUCCESS) {
        void *at;
        const size_t piece = rg_request_take_advertised(request, size - *done, &at);
        if (!piece)
            break;
        result = copy(what, at, *done, piece, stream);
        rg_advertised_give_after(request->worker, context, at, stream);
        *done += piece;
    }
    return request->violated ? CUDA_ERROR_UNKNOWN : result;
}

CUresult rg_staging_arrive(struct rg_request *request, struct rg_worker_context *context, size_t size,
                           CUstream stream, rg_staging_copy copy, const void *what)
{
    size_t offset = 0;
    struct rg_staging_buffer *buffer;
    CUresult result = arrive_lent(request, context, size, stream, copy, what, &offset);
    if (result != CUDA_SUCCESS || offset == size)
        return result;
    result = rg_credit_take_buffer(request->worker, context, size, size - offset, &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    /* in pieces: what has arrived is copied while the rest arrives, and from memory that is still in a cache */
    unsigned char *at = buffer->memory;
    const size_t most = rg_conn_rails(request->worker->conn)
                            ? size
                            : IN_PIECE; /* all rails write what is asked for at once */
    while (offset < size && result == CUDA_SUCCESS) {
        const size_t piece = size - offset < most ? size - offset : most;
        if (rg_request_recv_bulk(request, at, piece) != RG_OK)
            result = CUDA_ERROR_UNKNOWN;
        else
            result = copy(what, at, offset, piece, stream);
        offset += piece;
        at += piece;
    }
    rg_staging_give_after(request->worker, buffer, stream);
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

CUresult rg_region_copy_rows(bool to_device, CUdeviceptr device, size_t pitch, size_t width, void *host,
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
