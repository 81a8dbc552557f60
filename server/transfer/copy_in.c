/*
 * copy_in.c - copies to the device, whose data comes with the record.
 *
 * There are several ways for it (`protocols`), tried in this order; each brings some of the packed bytes, from the
 * front on, or none, and the last brings whatever is left: with the driver's call (inline), straight to the
 * GPU's memory, from memory that the client has written to by itself, and by a pinned buffer, piece by piece
 * as it arrives.
 *
 * Failures: the driver's, as the copy's result; bytes that do not fit the copy end the session. The
 * dispatcher.
 */
#include "generated/server/execute.h"
#include "server/shares/worker/count.h"
#include "server/transfer/advertised.h"
#include "server/transfer/device_region.h"
#include "server/transfer/gpudirect.h"
#include "server/transfer/staging.h"

#include <string.h>

#define PIECE (512u << 10)

struct copy {
    struct rg_request *request;
    struct rg_worker_context *context; /* current */
    const struct rg_device_region *region;
    CUstream stream;
    size_t done; /* packed bytes that are in the stream */
};

/*
 * A buffer for few bytes, or NULL: the driver takes those along itself, from any memory. But from memory that is not page-locked it may
 * also wait until the stream has done what is before them, which may depend on later records: so, while the context may be at work,
 * they lie in pinned memory, as long as not too much of that is in use.
 */
static struct rg_staging_buffer *buffer_for_few(struct rg_worker *worker, struct rg_worker_context *context)
{
    return rg_context_idle(worker, context) ? NULL : rg_staging_take_few(worker, context);
}

/* Small plain copies. */
static CUresult copy_inline(struct copy *copy)
{
    unsigned char data[RG_STAGING_SMALL] __attribute__((aligned(64)));
    struct rg_worker *worker = copy->request->worker;
    const size_t size = copy->region->total;
    if (size > sizeof data || !rg_device_region_is_plain(copy->region))
        return CUDA_SUCCESS;
    struct rg_staging_buffer *buffer = buffer_for_few(worker, copy->context);
    void *at = buffer ? buffer->memory : data;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (rg_request_recv_bulk(copy->request, at, size) == RG_OK) {
        copy->done = size;
        result = rg_driver.cuMemcpyHtoDAsync_v2(copy->region->device, at, size, copy->stream);
    }
    rg_staging_give_after(worker, buffer, copy->stream);
    return result;
}

static CUresult copy_gpudirect(struct copy *copy)
{
    const struct rg_device_region *region = copy->region;
    CUresult result = CUDA_SUCCESS;
    if (rg_device_region_is_plain(region) &&
        rg_gpudirect_copy_in(copy->request, copy->context, region->device, region->total, copy->stream,
                             &result))
        copy->done = region->total;
    return result;
}

/* What lies in memory that the client knows already. */
static CUresult copy_advertised(struct copy *copy)
{
    struct rg_worker *worker = copy->request->worker;
    CUresult result = CUDA_SUCCESS;
    if ((rg_conn_caps(worker->conn) & RG_CAP_ADVERTISES) &&
        rg_gpudirect_path(worker) == RG_GPU_PATH_STAGING) /* else data may go past it: it is asked for */
        rg_advertised_tend(worker, copy->context);
    while (copy->done < copy->region->total && result == CUDA_SUCCESS) {
        void *at;
        const size_t piece = rg_advertised_take(copy->request, copy->region->total - copy->done, &at);
        if (!piece)
            break;
        result = rg_device_region_copy(copy->region, at, copy->done, piece, copy->stream);
        rg_advertised_give_after(worker, copy->context, at, copy->stream);
        copy->done += piece;
    }
    return copy->request->violated ? CUDA_ERROR_UNKNOWN : result;
}

/* In pieces: what has arrived is copied while the rest arrives, and from memory that is still in a cache. */
static CUresult copy_staged(struct copy *copy)
{
    struct rg_worker *worker = copy->request->worker;
    const size_t total = copy->region->total;
    struct rg_staging_buffer *buffer;
    CUresult result = rg_staging_take_credited(worker, copy->context, total, total - copy->done, &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned char *at = buffer->memory;
    const size_t most =
        rg_conn_rails(worker->conn) ? total : PIECE; /* all rails write what is asked for at once */
    while (copy->done < total && result == CUDA_SUCCESS) {
        const size_t piece = total - copy->done < most ? total - copy->done : most;
        if (rg_request_recv_bulk(copy->request, at, piece) != RG_OK)
            result = CUDA_ERROR_UNKNOWN;
        else
            result = rg_device_region_copy(copy->region, at, copy->done, piece, copy->stream);
        copy->done += piece;
        at += piece;
    }
    rg_staging_give_after(worker, buffer, copy->stream);
    return result;
}

static CUresult (*const protocols[])(struct copy *copy) = {
    copy_inline,
    copy_gpudirect,
    copy_advertised,
    copy_staged,
};

static CUresult copy_in(struct rg_request *request, const struct rg_device_region *region, CUstream stream,
                        bool synchronous)
{
    if (region->total != request->bulk_left) {
        rg_request_violation(request, "%zu bytes of data for a copy of %zu", request->bulk_left,
                             region->total);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct copy copy = {.request = request, .region = region, .stream = stream};
    if (region->total && !(copy.context = rg_request_stream_context(request, stream)))
        return request->result;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; copy.done < region->total && result == CUDA_SUCCESS; i++)
        result = protocols[i](&copy);
    if (result == CUDA_SUCCESS)
        rg_count_in(region->total);
    if (synchronous && region->total && result == CUDA_SUCCESS)
        rg_stream_synchronous(request, copy.context, stream);
    return result;
}

CUresult rg_execute_rgCopyIn(struct rg_request *request, CUdeviceptr dst, size_t pitch, size_t width,
                             size_t height, CUstream stream, unsigned int synchronous)
{
    struct rg_device_region region;
    if (!rg_device_region_of_rows(request, true, dst, pitch, width, height, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_in(request, &region, stream, synchronous);
}

CUresult rg_execute_rgBoxIn(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                            CUstream stream, unsigned int synchronous)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, true, box, array, &region))
        return CUDA_ERROR_INVALID_VALUE;
    if (region.bad && region.total == request->bulk_left)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_in(request, &region, stream, synchronous);
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
    struct rg_staging_buffer *buffer = buffer_for_few(request->worker, context);
    if (buffer)
        data = memcpy(buffer->memory, data, size);
    CUresult result = rg_driver.cuMemcpyHtoDAsync_v2(dst, data, size, stream);
    rg_staging_give_after(request->worker, buffer, stream);
    if (result == CUDA_SUCCESS)
        rg_count_in(size);
    if (synchronous && result == CUDA_SUCCESS)
        rg_stream_synchronous(request, context, stream);
    return result;
}
