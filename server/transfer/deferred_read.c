/*
 * deferred_read.c - copies to the client's memory that leave when the stream gets there. See deferred.h.
 *
 * Behind the copy of each chunk to its buffer a host function lets it be sent (RG_NOTICE_DEFERRED_READ): by a
 * thread for all streams, while this one goes on as far as it has buffers left. What can be sent from where
 * it lies on the device is not copied at all.
 */
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/shares/worker/count.h"
#include "server/timeline/completion.h"
#include "server/transfer/deferred.h"
#include "server/transfer/gpudirect.h"

/* The list of items with chunks to be sent; guarded by the lock of deferred.h. */
struct reads {
    struct rg_deferred_item *first, **last;
    pthread_cond_t wake;
    pthread_t thread;
    bool thread_runs;
};

static struct reads *reads_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_DEFERRED_READ];
}

/* From a buffer; or, since the stream waits until all of it has been sent, from where it is. */
static void send_chunk(struct rg_deferred_item *item, size_t index)
{
    const size_t size = rg_deferred_chunk_size(item, index);
    const unsigned char *from =
        item->area ? item->device + index * item->chunk : item->slots[index % RG_DEFERRED_SLOTS];
    if (item->area)
        rg_gpudirect_sent(item->worker, size);
    rg_count_out(size);
    (void)rg_worker_send_transfer(item->worker, item->id, index * item->chunk, from, size,
                                  index + 1 == item->n_chunks,
                                  item->area ? NULL : item->leases[index % RG_DEFERRED_SLOTS]);
}

/* Before the next chunk, of this item or the next, is copied to its slot. The lock is held, and given up. */
static void end_lease(struct rg_deferred_item *item, size_t index)
{
    pthread_mutex_t *lock = rg_deferred_lock(item->worker);
    struct rg_lease *lease = item->leases[(index + 1) % RG_DEFERRED_SLOTS];
    if (item->area || !lease || !rg_deferred_work(item))
        return;
    pthread_mutex_unlock(lock);
    rg_lease_end(lease);
    pthread_mutex_lock(lock);
    rg_deferred_rest(item);
}

static void *sender_main(void *arg)
{
    struct rg_worker *worker = arg;
    struct reads *reads = reads_of(worker);
    pthread_mutex_t *lock = rg_deferred_lock(worker);
    pthread_mutex_lock(lock);
    while (!rg_worker_over(worker)) {
        struct rg_deferred_item *item = reads->first;
        if (!item) {
            pthread_cond_wait(&reads->wake, lock);
            continue;
        }
        const size_t index = item->sent;
        if (rg_deferred_work(item)) {
            pthread_mutex_unlock(lock);
            rg_completion_before_notice(worker);
            send_chunk(item, index);
            pthread_mutex_lock(lock);
            rg_deferred_rest(item);
        }
        item->sent++;
        if (item->sent == item->posted) {
            reads->first = item->next_send;
            if (!reads->first)
                reads->last = &reads->first;
            item->listed = false;
        }
        pthread_cond_broadcast(&item->changed);
    }
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Leaves the chunk that was posted to the sending thread; the lock is held. */
static void list_chunk(struct rg_deferred_item *item)
{
    struct reads *reads = reads_of(item->worker);
    if (item->listed)
        return;
    item->listed = true;
    item->next_send = NULL;
    *reads->last = item;
    reads->last = &item->next_send;
    pthread_cond_signal(&reads->wake);
}

/*
 * Behind the copy of chunk `index`: it can be sent; the stream goes on while buffers are left, at the end
 * when all of it has been sent. The last chunk, if all before it have left, is sent from here: the stream
 * would wait for the sending thread to do it, and of a small result that is all there is.
 */
static void CUDA_CB chunk_step(void *user)
{
    struct rg_deferred_step *step = user;
    struct rg_deferred_item *item = step->item;
    struct rg_worker *worker = item->worker;
    pthread_mutex_t *lock = rg_deferred_lock(worker);
    const bool last = step->index + 1 == item->n_chunks;
    const size_t enough = last                                  ? item->n_chunks
                          : step->index + 2 > RG_DEFERRED_SLOTS ? step->index + 2 - RG_DEFERRED_SLOTS
                                                                : 0;
    pthread_mutex_lock(lock);
    item->posted++;
    /* Where the client watches events, the other thread looks first whether they came; this one may not. */
    if (last && item->sent == step->index && !rg_completion_any(worker) && !rg_worker_over(worker) &&
        rg_deferred_work(item)) {
        pthread_mutex_unlock(lock);
        send_chunk(item, step->index);
        pthread_mutex_lock(lock);
        rg_deferred_rest(item);
        item->sent++;
    } else {
        list_chunk(item);
    }
    while (item->sent < enough && !rg_worker_over(worker))
        pthread_cond_wait(&item->changed, lock);
    if (item->sent >= enough)
        end_lease(item, step->index);
    if (last && item->sent == item->n_chunks)
        rg_deferred_destroy(item);
    pthread_mutex_unlock(lock);
}

static bool start_sender(struct rg_worker *worker)
{
    struct reads *reads = reads_of(worker);
    if (!reads->thread_runs)
        reads->thread_runs = rg_thread_create(&reads->thread, "rg-deferred", sender_main, worker) == RG_OK;
    return reads->thread_runs;
}

static CUresult start(struct rg_request *request, const struct rg_device_region *region, uint64_t id,
                      CUstream stream)
{
    struct rg_deferred_item *item = NULL;
    CUresult result = start_sender(request->worker)
                          ? rg_deferred_begin(request, region, id, RG_DEFERRED_READ, stream, &item)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        request->told = true;
        rg_deferred_notice(request->worker, RG_NOTICE_DEFERRED_READ, id, 0, 0, 1);
        return result;
    }
    const size_t n_chunks = item->n_chunks; /* the last step frees the item */
    for (size_t i = 0; i < n_chunks && result == CUDA_SUCCESS; i++) {
        if (!item->area)
            result = rg_device_region_copy(region, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                                           rg_deferred_chunk_size(item, i), stream);
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuLaunchHostFunc(stream, chunk_step, &item->steps[i]);
    }
    return result;
}

CUresult rg_execute_rgCopyOutDeferred(struct rg_request *request, CUdeviceptr src, size_t pitch, size_t width,
                                      size_t height, CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_rows(request, false, src, pitch, width, height, &region) || !region.total)
        return request->result;
    return start(request, &region, transfer, stream);
}

CUresult rg_execute_rgBoxOutDeferred(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                     CUstream stream, unsigned long long transfer)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, false, box, array, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return start(request, &region, transfer, stream);
}

static void init(struct rg_worker *worker)
{
    pthread_cond_init(&reads_of(worker)->wake, NULL);
    reads_of(worker)->last = &reads_of(worker)->first;
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    pthread_cond_broadcast(&reads_of(worker)->wake);
}

static void fini(struct rg_worker *worker)
{
    if (reads_of(worker)->thread_runs)
        pthread_join(reads_of(worker)->thread, NULL);
    pthread_cond_destroy(&reads_of(worker)->wake);
}

const struct rg_server_module rg_deferred_read_module = {
    .size = sizeof(struct reads),
    .init = init,
    .wake = wake,
    .fini = fini,
};
