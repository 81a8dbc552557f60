/*
 * rendezvous.c - copies to the device that read the client's memory when the stream gets there. See
 * deferred.h.
 *
 * Before the copy of each chunk a host function asks the client for it (RG_NOTICE_RENDEZVOUS), a few chunks
 * ahead, and the stream waits until the reader has put it into its buffer (RG_ANSWER_DATA). Where the transport can, the
 * buffers are advertised, and the data comes to lie there by itself.
 */
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/shares/worker/count.h"
#include "server/transfer/credit.h"
#include "server/transfer/deferred.h"
#include "transport/memory.h"

/* Asks for chunks up to `end`, as far as that has not been done. */
static void ask(struct rg_deferred_item *item, size_t end)
{
    struct rg_worker *worker = item->worker;
    struct rg_deferred *deferred = rg_deferred_of(worker);
    for (;;) {
        pthread_mutex_lock(&deferred->lock);
        const size_t index = item->requested / item->chunk;
        const bool more = index < end && item->requested < item->total && rg_deferred_work(item);
        const size_t offset = item->requested, size = more ? rg_deferred_chunk_size(item, index) : 0;
        item->requested += size;
        pthread_mutex_unlock(&deferred->lock);
        if (!more)
            return;
        const bool advertised =
            rg_conn_advertise(worker->conn, item->id, offset, item->slots[index % RG_DEFERRED_SLOTS], size) ==
            RG_OK; /* where that helps */
        rg_deferred_notice(worker, RG_NOTICE_RENDEZVOUS, item->id, offset, size, 0);
        pthread_mutex_lock(&deferred->lock);
        item->advertised |= advertised;
        rg_deferred_rest(item);
        pthread_mutex_unlock(&deferred->lock);
    }
}

/* Before the copy of chunk `index`: the copies before it are done, so their buffers can be filled again. */
static void CUDA_CB chunk_step(void *user)
{
    struct rg_deferred_step *step = user;
    struct rg_deferred_item *item = step->item;
    if (!rg_worker_over(item->worker))
        ask(item, step->index + (item->n_chunks < RG_DEFERRED_SLOTS ? item->n_chunks : RG_DEFERRED_SLOTS));
}

/* Behind the last copy. */
static void CUDA_CB last_step(void *user)
{
    struct rg_deferred_item *item = user;
    struct rg_worker *worker = item->worker;
    pthread_mutex_t *lock = rg_deferred_lock(worker);
    RG_SCOPED_LOCK(lock);
    if (!item->gone && !rg_worker_over(worker)) /* else its data may be on its way */
        rg_deferred_destroy(item);
}

static CUresult start(struct rg_request *request, const struct rg_device_region *region, uint64_t id,
                      CUstream stream)
{
    rg_credit_report(request->worker);
    rg_request_separate_reader(request); /* many chunks in the stream may block until the first is answered */
    if (request->violated)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_deferred_item *item = NULL;
    CUresult result = rg_deferred_begin(request, region, id, RG_DEFERRED_RENDEZVOUS, stream, &item);
    if (result != CUDA_SUCCESS) {
        /* The client need not keep it: a part of no bytes at the end. */
        rg_deferred_notice(request->worker, RG_NOTICE_RENDEZVOUS, id, region->total, 0, 0);
        return result;
    }
    for (size_t i = 0; i < item->n_chunks && result == CUDA_SUCCESS; i++) {
        result = rg_driver.cuLaunchHostFunc(stream, chunk_step, &item->steps[i]);
        if (result == CUDA_SUCCESS)
            result = rg_stream_word_await(&item->word, (uint32_t)i + 1, stream);
        if (result == CUDA_SUCCESS)
            result = rg_device_region_copy(region, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                                           rg_deferred_chunk_size(item, i), stream);
    }
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuLaunchHostFunc(stream, last_step, item);
    return result; /* if it failed, the item stays: steps may be in the stream */
}

CUresult rg_execute_rgCopyInDeferred(struct rg_request *request, CUdeviceptr dst, size_t pitch, size_t width,
                                     size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_rows(request, true, dst, pitch, width, height, &region) || !region.total)
        return request->result;
    return start(request, &region, transfer, stream);
}

CUresult rg_execute_rgBoxInDeferred(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                    CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, true, box, array, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return start(request, &region, transfer, stream);
}

/* Data comes in order, in parts that lie within what was asked for. */
static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *data, size_t bulk_size)
{
    (void)header;
    if (data->type != RG_ANSWER_DATA)
        return RG_ANSWERED_NOT_MINE;
    struct rg_deferred *deferred = rg_deferred_of(worker);
    const uint64_t offset = data->arg[0], size = data->arg[1];
    pthread_mutex_lock(&deferred->lock);
    struct rg_deferred_item *item = rg_deferred_find(worker, data->id);
    const bool good = item && item->kind == RG_DEFERRED_RENDEZVOUS && size == bulk_size && size &&
                      offset == item->received && size <= item->requested - item->received &&
                      size <= item->chunk - item->received % item->chunk;
    const bool wanted = good && rg_deferred_work(item);
    pthread_mutex_unlock(&deferred->lock);
    if (!good)
        return RG_ANSWERED_WRONG;
    /* The item cannot go away while this part of it is missing; nor can a buffer that is advertised. */
    unsigned char *slot = item->slots[offset / item->chunk % RG_DEFERRED_SLOTS];
    const bool came =
        rg_conn_recv_bulk(worker->conn, wanted ? slot + offset % item->chunk : NULL, size) == RG_OK;
    if (came && offset % item->chunk + size == rg_deferred_chunk_size(item, offset / item->chunk))
        rg_conn_withdraw(worker->conn, item->id, slot);
    pthread_mutex_lock(&deferred->lock);
    item->received += came ? size : 0;
    if (came && wanted)
        rg_count_in(size);
    const bool all = came && rg_deferred_has_all(item);
    if (wanted)
        rg_deferred_rest(item);
    else
        pthread_cond_broadcast(&deferred->settled);
    rg_deferred_tell(item);
    pthread_mutex_unlock(&deferred->lock);
    if (!came)
        rg_worker_end(worker, 0, NULL);
    if (all)
        atomic_fetch_sub(&worker->answers_due, 1);
    return RG_ANSWERED_GOOD;
}

const struct rg_server_module rg_rendezvous_module = {.answer = answer};
