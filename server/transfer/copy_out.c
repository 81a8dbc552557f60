/*
 * copy_out.c - copies to the client that it waits for.
 *
 * The copy is put into the stream at its place in the order of records; the wait for it, the sending, and
 * what more than one buffer takes happen while others' calls go on. There are three ways, the first that fits
 * is taken:
 *
 *   gpudirect  from where the data lies on the device, once the stream has got there
 *   parts      more than a message takes, or than pays off: each part is sent while the next one is copied
 *   whole      one buffer, which travels with the reply
 *
 * Boxes go in parts, as those that ask for them take nothing else.
 */
#include "generated/server/execute.h"
#include "server/core/worker.h"
#include "server/shares/worker/count.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"
#include "server/transfer/device_region.h"
#include "server/transfer/gpudirect.h"
#include "server/transfer/staging.h"

#define PART (1u << 20)

struct copy {
    struct rg_request *request;
    struct rg_worker *worker;
    struct rg_worker_context *context; /* current */
    const struct rg_device_region *region;
    CUstream stream;
    uint64_t transfer; /* the client's; 0: it takes the data with the reply alone */
    size_t part;
};

static size_t part_size(const struct copy *copy, size_t offset)
{
    const size_t left = copy->region->total - offset;
    return left < copy->part ? left : copy->part;
}

/* Whether so much goes in pieces between which others' messages go, where the client takes them. */
static bool takes_pieces(const struct copy *copy)
{
    return copy->transfer &&
           copy->region->total > rg_conn_piece(copy->worker->conn, rg_chunk_size_get(&copy->worker->chunk));
}

static void reply_with(const struct copy *copy, const void *data)
{
    copy->request->reply_bulk = data;
    copy->request->reply_bulk_size = copy->region->total;
    copy->request->reply_transfer = copy->transfer;
}

static void give_buffer(struct rg_worker *worker, void *buffer)
{
    rg_staging_give(worker, buffer);
}

static void unpin_area(struct rg_worker *worker, void *area)
{
    rg_gpudirect_unpin(worker, area);
}

/* Waits for all that is in the stream now. */
static CUresult wait_for_stream(const struct copy *copy)
{
    struct rg_staging_buffer *small; /* for its event */
    RG_TRY(rg_staging_take(copy->worker, copy->context, 1, &small));
    CUresult result = rg_driver.cuEventRecord(small->ready, copy->stream);
    if (result == CUDA_SUCCESS)
        result = rg_wait_event(copy->request, small->ready);
    rg_output_drain(copy->worker);
    rg_staging_give(copy->worker, small);
    return result;
}

/*
 * Sends the data from where it lies on the device: nothing is copied there. What other threads of the program
 * let the device do to it meanwhile is theirs to order, as ever. False: that cannot be done.
 */
static bool send_gpudirect(const struct copy *copy, CUresult *result)
{
    const struct rg_device_region *region = copy->region;
    struct rg_gpudirect_area *area =
        rg_device_region_is_plain(region)
            ? rg_gpudirect_pin(copy->worker, copy->context, region->device, region->total)
            : NULL;
    if (!area)
        return false;
    const void *from = (const void *)(uintptr_t)region->device;
    *result = wait_for_stream(copy);
    if (*result == CUDA_SUCCESS && region->total <= RG_BULK_MAX && !takes_pieces(copy)) {
        reply_with(copy, from);
        copy->request->reply_sent = unpin_area;
        copy->request->reply_owner = area;
        rg_gpudirect_sent(copy->worker, region->total);
        return true;
    }
    if (*result == CUDA_SUCCESS && rg_request_detach(copy->request)) {
        if (rg_worker_send_transfer(copy->worker, copy->transfer, 0, from, region->total, true, NULL) !=
            RG_OK)
            *result = CUDA_ERROR_UNKNOWN;
        rg_gpudirect_sent(copy->worker, region->total);
    } else if (*result == CUDA_SUCCESS) {
        *result = copy->request->result;
    }
    rg_gpudirect_unpin(copy->worker, area);
    return true;
}

/* Puts the copy of the part at `offset` into the stream, and an event behind it. */
static CUresult start_part(const struct copy *copy, size_t offset, struct rg_staging_buffer **out)
{
    struct rg_staging_buffer *buffer;
    const size_t size = part_size(copy, offset);
    RG_TRY(rg_staging_take(copy->worker, copy->context, size, &buffer));
    CUresult result = rg_device_region_copy(copy->region, buffer->memory, offset, size, copy->stream);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuEventRecord(buffer->ready, copy->stream);
    if (result != CUDA_SUCCESS) {
        rg_staging_give_after(copy->worker, buffer, copy->stream); /* some of it may be on its way */
        return result;
    }
    *out = buffer;
    return CUDA_SUCCESS;
}

/* The first part has been started. */
static CUresult send_parts(const struct copy *copy, struct rg_staging_buffer *now)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t offset = 0; now; offset += copy->part) {
        const size_t size = part_size(copy, offset);
        struct rg_staging_buffer *next = NULL;
        if (offset + size < copy->region->total)
            result = start_part(copy, offset + size, &next);
        CUresult waited = rg_driver.cuEventSynchronize(now->ready);
        if (result == CUDA_SUCCESS)
            result = waited;
        if (result == CUDA_SUCCESS)
            result = rg_staging_send(copy->worker, now, copy->transfer, offset, size,
                                     offset + size == copy->region->total);
        rg_staging_give(copy->worker, now);
        now = next;
        if (result != CUDA_SUCCESS && now) {
            (void)rg_driver.cuEventSynchronize(now->ready);
            rg_staging_give(copy->worker, now);
            now = NULL;
        }
    }
    rg_output_drain(copy->worker);
    return result;
}

static CUresult send_whole(const struct copy *copy, struct rg_staging_buffer *buffer)
{
    CUresult result = rg_wait_event(copy->request, buffer->ready);
    rg_output_drain(copy->worker);
    if (result != CUDA_SUCCESS) {
        rg_staging_give_after(copy->worker, buffer, copy->stream);
        return result;
    }
    if (takes_pieces(copy)) {
        result = rg_request_detach(copy->request)
                     ? rg_staging_send(copy->worker, buffer, copy->transfer, 0, copy->region->total, true)
                     : copy->request->result;
        rg_staging_give(copy->worker, buffer);
        return result;
    }
    reply_with(copy, buffer->memory);
    copy->request->reply_lease = &buffer->lease;
    copy->request->reply_sent = give_buffer;
    copy->request->reply_owner = buffer;
    return CUDA_SUCCESS;
}

static CUresult send_region(struct rg_request *request, const struct rg_device_region *region,
                            CUstream stream, uint64_t transfer)
{
    struct copy copy = {.request = request,
                        .worker = request->worker,
                        .context = rg_request_stream_context(request, stream),
                        .region = region,
                        .stream = stream,
                        .transfer = transfer};
    /* where the client takes parts, those are sent while others are copied */
    const bool parts = region->boxed || region->total > RG_BULK_MAX || (transfer && region->total > PART);
    copy.part = region->total > RG_BULK_MAX ? PART : parts ? PART / 2 : RG_BULK_MAX;
    if (!copy.context)
        return request->result;
    CUresult result = CUDA_SUCCESS;
    if (send_gpudirect(&copy, &result))
        return result;
    struct rg_staging_buffer *first;
    RG_TRY(start_part(&copy, 0, &first));
    if (!parts)
        return send_whole(&copy, first);
    if (rg_request_detach(request))
        return send_parts(&copy, first);
    rg_staging_give_after(request->worker, first, stream);
    return request->result;
}

static CUresult copy_out(struct rg_request *request, const struct rg_device_region *region, CUstream stream,
                         uint64_t transfer)
{
    const CUresult result = send_region(request, region, stream, transfer);
    if (result == CUDA_SUCCESS)
        rg_count_out(region->total);
    return result;
}

CUresult rg_execute_rgCopyOut(struct rg_request *request, CUdeviceptr src, size_t pitch, size_t width,
                              size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_rows(request, false, src, pitch, width, height, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return region.total ? copy_out(request, &region, stream, transfer) : CUDA_SUCCESS;
}

CUresult rg_execute_rgBoxOut(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                             CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, false, box, array, &region) || region.bad)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_out(request, &region, stream, transfer);
}
