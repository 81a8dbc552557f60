/*
 * fence.c - a stream of one server waits for a stream of another: a signal in the one, a wait in the other, and a message between the
 * workers. See proto/peer.h.
 *
 * Failures: where the signal's context has failed, or one half cannot be put into its stream, the other half is told (RG_PEER_FAIL). A
 * wait whose signal will not come, also because the connection is lost, lets its stream go on, and the program is told before it
 * can know that the stream has got there.
 */
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/peers/transfers.h"

/* Called also when the context has failed. */
static void CUDA_CB signal_step(CUstream stream, CUresult status, void *user)
{
    struct rg_deferred_item *item = user;
    const struct rg_peer_message message = {.type = status == CUDA_SUCCESS ? RG_PEER_SIGNAL : RG_PEER_FAIL,
                                            .transfer = item->id};
    (void)stream;
    pthread_mutex_lock(rg_deferred_lock(item->worker));
    const bool wanted = rg_peer_waits(item);
    pthread_mutex_unlock(rg_deferred_lock(item->worker));
    if (wanted)
        (void)rg_peer_send(item->peer, &message, NULL, 0);
    if (rg_worker_over(item->worker))
        return;
    RG_SCOPED_LOCK(rg_deferred_lock(item->worker));
    rg_deferred_destroy(item);
}

/* Behind the wait. */
static void CUDA_CB waited_step(void *user)
{
    struct rg_deferred_item *item = user;
    struct rg_worker *worker = item->worker;
    pthread_mutex_t *lock = rg_deferred_lock(item->worker);
    pthread_mutex_lock(lock);
    const bool over = rg_worker_over(worker), came = item->answered;
    if (!over)
        rg_deferred_destroy(item);
    pthread_mutex_unlock(lock);
    if (!over && !came)
        rg_peer_report(worker, RG_OP_rgPeerWait);
}

static CUresult take_word(struct rg_request *request, struct rg_deferred_item *item, CUstream stream)
{
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    return context ? rg_deferred_take_word(item, context) : request->result;
}

/* If it fails behind the wait the item stays, as the stream has it, and *item is NULL. */
static CUresult put_wait(struct rg_deferred_item **item, CUstream stream)
{
    RG_TRY(rg_stream_word_await(&(*item)->word, 1, stream));
    const CUresult result = rg_driver.cuLaunchHostFunc(stream, waited_step, *item);
    if (result == CUDA_SUCCESS)
        return result;
    RG_SCOPED_LOCK(rg_deferred_lock((*item)->worker));
    (*item)->failed = true;
    rg_deferred_tell(*item);
    *item = NULL;
    return result;
}

static CUresult start(struct rg_request *request, enum rg_deferred_kind kind, CUstream stream, uint64_t id,
                      unsigned number)
{
    struct rg_deferred_item *item = rg_deferred_create(request, kind, id, 0);
    CUresult result = item ? CUDA_SUCCESS : request->result;
    if (result == CUDA_SUCCESS && kind == RG_DEFERRED_PEER_WAIT)
        result = take_word(request, item, stream);
    if (result == CUDA_SUCCESS && !rg_peer_bind(item, number))
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (result == CUDA_SUCCESS)
        result = kind == RG_DEFERRED_PEER_SIGNAL ? rg_driver.cuStreamAddCallback(stream, signal_step, item, 0)
                                                 : put_wait(&item, stream);
    if (result != CUDA_SUCCESS) {
        rg_peer_tell_failed(request->worker, number, id);
        if (item)
            rg_deferred_cancel(item);
    }
    return result;
}

CUresult rg_execute_rgPeerSignal(struct rg_request *request, CUstream stream, unsigned long long transfer,
                                 unsigned int peer)
{
    return start(request, RG_DEFERRED_PEER_SIGNAL, stream, transfer, peer);
}

CUresult rg_execute_rgPeerWait(struct rg_request *request, CUstream stream, unsigned long long transfer,
                               unsigned int peer)
{
    return start(request, RG_DEFERRED_PEER_WAIT, stream, transfer, peer);
}
