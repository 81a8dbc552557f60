/*
 * copy.c - copies between servers: the two halves, each in a stream of its worker. See proto/peer.h and
 * server/transfer/deferred.h, whose items they are.
 *
 * Receiving: before the copy of each chunk to the device a host function asks the other worker for it, a few chunks ahead, and the
 * stream waits until the connection's reader has put it into its buffer. Sending: before the copy of each chunk from the device the
 * stream waits until it has been asked for, and behind it a host function sends it. No host function waits for the other server, whose
 * streams may wait for this one's (server/transfer/stream_word.h).
 *
 * Failures: a half that cannot be put into its stream tells the other one (RG_PEER_FAIL), which goes on with zeros and an
 * error; so do all when the connection is lost. Lock: that of struct rg_deferred.
 */
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/peers/transfers.h"
#include "server/shares/worker/count.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(RG_PEER_CHUNK == RG_DEFERRED_CHUNK, "both workers cut alike");

/* --- both halves ------------------------------------------------------------------------------------------ */

/* Behind the last chunk. */
static void end(struct rg_deferred_item *item, unsigned op)
{
    struct rg_worker *worker = item->worker;
    if (rg_worker_over(worker))
        return;
    pthread_mutex_lock(rg_deferred_lock(worker));
    while (item->at_work && !rg_worker_over(worker)) /* the reader, which is receiving into a buffer */
        pthread_cond_wait(&rg_deferred_of(worker)->settled, rg_deferred_lock(worker));
    const bool failed = item->failed;
    if (!item->gone && !rg_worker_over(worker)) /* else the reader may still come upon it */
        rg_deferred_destroy(item);
    pthread_mutex_unlock(rg_deferred_lock(worker));
    if (failed)
        rg_peer_report(worker, op);
}

/* --- receiving -------------------------------------------------------------------------------------------- */

/* Asks for chunks up to `last`, as far as that has not been done. */
static void ask(struct rg_deferred_item *item, size_t last)
{
    pthread_mutex_t *lock = rg_deferred_lock(item->worker);
    for (;;) {
        pthread_mutex_lock(lock);
        const size_t index = item->requested / item->chunk;
        const bool more = index < last && item->requested < item->total && rg_peer_waits(item);
        const struct rg_peer_message message = {.type = RG_PEER_ASK,
                                                .transfer = item->id,
                                                .offset = item->requested,
                                                .size = more ? rg_deferred_chunk_size(item, index) : 0};
        item->requested += message.size;
        pthread_mutex_unlock(lock);
        if (!more || rg_peer_send(item->peer, &message, NULL, 0) != RG_OK)
            return;
    }
}

/* What a chunk's buffer holds that never came is none of the copy's. The lock is held, and the buffer is not in use. */
static void clear(const struct rg_deferred_item *item, size_t index)
{
    memset(item->slots[index % RG_DEFERRED_SLOTS], 0, rg_deferred_chunk_size(item, index));
}

/* Those that were asked for. Of one that is coming, some may come still; the stream waits for that. */
void rg_peer_fail(struct rg_deferred_item *item)
{
    const bool receives = item->kind == RG_DEFERRED_PEER_RECEIVE;
    item->failed = true;
    if (receives && item->at_work) /* the reader says when it is done (rg_peer_copy_data) */
        return;
    for (size_t at = item->received; receives && !item->gone && at < item->requested;
         at = (at / item->chunk + 1) * item->chunk)
        clear(item, at / item->chunk);
    rg_deferred_tell(item);
}

static void CUDA_CB ask_step(void *user)
{
    const struct rg_deferred_step *step = user;
    struct rg_deferred_item *item = step->item;
    if (rg_worker_over(item->worker))
        return;
    ask(item, step->index + RG_DEFERRED_SLOTS);
    RG_SCOPED_LOCK(rg_deferred_lock(item->worker));
    if (item->failed && !item->gone && item->requested <= step->index * item->chunk)
        clear(item, step->index); /* the copies that used the buffer are done */
}

static void CUDA_CB received_step(void *user)
{
    end(user, RG_OP_rgPeerReceive);
}

/* --- sending ---------------------------------------------------------------------------------------------- */

/* Before the copy of a chunk to its buffer: what was sent from there to the client will not be sent again. */
static void CUDA_CB lease_step(void *user)
{
    const struct rg_deferred_step *step = user;
    struct rg_deferred_item *item = step->item;
    pthread_mutex_t *lock = rg_deferred_lock(item->worker);
    struct rg_lease *lease = item->leases[step->index % RG_DEFERRED_SLOTS];
    RG_SCOPED_LOCK(lock);
    if (!lease || !rg_peer_waits(item) || !rg_deferred_work(item))
        return;
    pthread_mutex_unlock(lock);
    rg_lease_end(lease);
    pthread_mutex_lock(lock);
    rg_deferred_rest(item);
}

static void CUDA_CB send_step(void *user)
{
    const struct rg_deferred_step *step = user;
    struct rg_deferred_item *item = step->item;
    pthread_mutex_t *lock = rg_deferred_lock(item->worker);
    const bool last = step->index + 1 == item->n_chunks;
    const size_t size = rg_deferred_chunk_size(item, step->index);
    const struct rg_peer_message message = {
        .type = RG_PEER_DATA, .transfer = item->id, .offset = step->index * item->chunk, .size = size};
    pthread_mutex_lock(lock);
    const bool wanted = rg_peer_waits(item) && rg_deferred_work(item);
    pthread_mutex_unlock(lock);
    if (wanted) {
        rg_count_out(size);
        (void)rg_peer_send_data(item->peer, &message, item->slots[step->index % RG_DEFERRED_SLOTS]);
        pthread_mutex_lock(lock);
        rg_deferred_rest(item);
        pthread_mutex_unlock(lock);
    }
    if (last)
        end(item, RG_OP_rgPeerSend);
}

/* --- records ---------------------------------------------------------------------------------------------- */

static CUresult put_receive(struct rg_deferred_item *item, const struct rg_device_region *region, size_t i,
                            CUstream stream)
{
    RG_TRY(rg_driver.cuLaunchHostFunc(stream, ask_step, &item->steps[i]));
    RG_TRY(rg_stream_word_await(&item->word, (uint32_t)i + 1, stream));
    return rg_device_region_copy(region, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                                 rg_deferred_chunk_size(item, i), stream);
}

static CUresult put_send(struct rg_deferred_item *item, const struct rg_device_region *region, size_t i,
                         CUstream stream)
{
    if (rg_conn_caps(item->worker->conn) & RG_CAP_RETRANSMITS)
        RG_TRY(rg_driver.cuLaunchHostFunc(stream, lease_step, &item->steps[i]));
    RG_TRY(rg_stream_word_await(&item->word, (uint32_t)i + 1, stream));
    RG_TRY(rg_device_region_copy(region, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                                 rg_deferred_chunk_size(item, i), stream));
    return rg_driver.cuLaunchHostFunc(stream, send_step, &item->steps[i]);
}

static CUresult start(struct rg_request *request, const struct rg_device_region *region,
                      enum rg_deferred_kind kind, CUstream stream, uint64_t id, unsigned number)
{
    struct rg_deferred_item *item = NULL;
    CUresult result = rg_deferred_begin(request, region, id, kind, stream, &item);
    if (result == CUDA_SUCCESS && !rg_peer_bind(item, number)) {
        rg_deferred_cancel(item);
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (result != CUDA_SUCCESS) {
        rg_peer_tell_failed(request->worker, number, id);
        return result;
    }
    const size_t n_chunks = item->n_chunks; /* the last step frees the item */
    for (size_t i = 0; i < n_chunks && result == CUDA_SUCCESS; i++)
        result = kind == RG_DEFERRED_PEER_RECEIVE ? put_receive(item, region, i, stream)
                                                  : put_send(item, region, i, stream);
    if (result == CUDA_SUCCESS && kind == RG_DEFERRED_PEER_RECEIVE)
        result = rg_driver.cuLaunchHostFunc(stream, received_step, item);
    if (result != CUDA_SUCCESS) { /* the item stays, as steps may be in the stream; but the last one is not */
        pthread_mutex_lock(rg_deferred_lock(request->worker));
        rg_peer_fail(item);
        pthread_mutex_unlock(rg_deferred_lock(request->worker));
        rg_peer_tell_failed(request->worker, number, id);
    }
    return result;
}

static CUresult start_rows(struct rg_request *request, enum rg_deferred_kind kind, CUdeviceptr address,
                           const size_t shape[3], CUstream stream, uint64_t id, unsigned number)
{
    struct rg_device_region region;
    if (!rg_device_region_of_rows(request, kind == RG_DEFERRED_PEER_RECEIVE, address, shape[0], shape[1],
                                  shape[2], &region) ||
        !region.total)
        return request->result;
    return start(request, &region, kind, stream, id, number);
}

static CUresult start_box(struct rg_request *request, enum rg_deferred_kind kind, const CUDA_MEMCPY3D *box,
                          CUarray array, CUstream stream, uint64_t id, unsigned number)
{
    struct rg_device_region region;
    if (!rg_device_region_of_box(request, kind == RG_DEFERRED_PEER_RECEIVE, box, array, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return start(request, &region, kind, stream, id, number);
}

CUresult rg_execute_rgPeerReceive(struct rg_request *request, CUdeviceptr dst, size_t pitch, size_t width,
                                  size_t height, CUstream stream, unsigned long long transfer,
                                  unsigned int peer)
{
    return start_rows(request, RG_DEFERRED_PEER_RECEIVE, dst, (const size_t[]){pitch, width, height}, stream,
                      transfer, peer);
}

CUresult rg_execute_rgPeerSend(struct rg_request *request, CUdeviceptr src, size_t pitch, size_t width,
                               size_t height, CUstream stream, unsigned long long transfer, unsigned int peer)
{
    return start_rows(request, RG_DEFERRED_PEER_SEND, src, (const size_t[]){pitch, width, height}, stream,
                      transfer, peer);
}

CUresult rg_execute_rgPeerReceiveBox(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                     CUstream stream, unsigned long long transfer, unsigned int peer)
{
    return start_box(request, RG_DEFERRED_PEER_RECEIVE, box, array, stream, transfer, peer);
}

CUresult rg_execute_rgPeerSendBox(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                  CUstream stream, unsigned long long transfer, unsigned int peer)
{
    return start_box(request, RG_DEFERRED_PEER_SEND, box, array, stream, transfer, peer);
}

/* --- what the other worker says ---------------------------------------------------------------------------- */

/* In order, without a gap; an empty one asks for nothing. */
static bool take_demand(size_t *demanded, const struct rg_peer_message *message)
{
    if (message->offset != *demanded || !message->size || message->size > RG_PEER_CHUNK)
        return false;
    *demanded += message->size;
    return true;
}

bool rg_peer_copy_ask(struct rg_peer *peer, const struct rg_peer_message *message)
{
    RG_SCOPED_LOCK(rg_deferred_lock(peer->worker));
    struct rg_deferred_item *item = rg_peer_item(peer, message->transfer);
    if (item) {
        const bool good = item->kind == RG_DEFERRED_PEER_SEND && take_demand(&item->demanded, message) &&
                          item->demanded <= item->total;
        rg_deferred_tell(item);
        return good;
    }
    struct rg_peer_early *early = rg_peer_early(peer, message->transfer);
    return early && take_demand(&early->demanded, message);
}

/* Data comes in order, in parts that lie within what was asked for. */
bool rg_peer_copy_data(struct rg_peer *peer, const struct rg_peer_message *message, size_t bulk_size)
{
    struct rg_worker *worker = peer->worker;
    struct rg_deferred *deferred = rg_deferred_of(worker);
    const uint64_t offset = message->offset, size = message->size;
    pthread_mutex_lock(&deferred->lock);
    struct rg_deferred_item *item = rg_peer_item(peer, message->transfer);
    const bool good = item && item->kind == RG_DEFERRED_PEER_RECEIVE && size == bulk_size && size &&
                      offset == item->received && size <= item->requested - item->received &&
                      size <= item->chunk - item->received % item->chunk;
    const bool wanted = good && !item->failed && rg_deferred_work(item);
    unsigned char *slot =
        wanted ? item->slots[offset / item->chunk % RG_DEFERRED_SLOTS] + offset % item->chunk : NULL;
    if (good && !wanted) /* the stream goes on, and may be done with the item before all has come */
        item->received += size;
    pthread_mutex_unlock(&deferred->lock);
    if (!good)
        return false;
    const bool came = rg_conn_recv_bulk(peer->conn, slot, size) == RG_OK;
    if (!wanted)
        return came;
    pthread_mutex_lock(&deferred->lock);
    item->received += came ? size : 0;
    if (came)
        rg_count_in(size);
    rg_deferred_rest(item);
    if (item->failed)
        rg_peer_fail(item);
    else
        rg_deferred_tell(item);
    pthread_mutex_unlock(&deferred->lock);
    return came;
}
