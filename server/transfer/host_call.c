/*
 * host_call.c - host functions of the client in streams: a host function of the driver tells the client
 * (RG_NOTICE_HOST_CALL) and waits until it has run its own (RG_ANSWER_HOST_DONE). See deferred.h.
 *
 * What cannot be put into the stream is refused: the client is told that its function will not be run.
 */
#include "generated/server/execute.h"
#include "server/transfer/deferred.h"

static void run(struct rg_deferred_item *item, CUresult status)
{
    struct rg_worker *worker = item->worker;
    pthread_mutex_t *lock = &rg_deferred_of(worker)->lock;
    pthread_mutex_lock(lock);
    item->due = true;
    pthread_mutex_unlock(lock);
    rg_deferred_notice(worker, RG_NOTICE_HOST_CALL, item->id, (uint64_t)status, 0, 0);
    pthread_mutex_lock(lock);
    while (!item->answered && !rg_worker_over(worker))
        pthread_cond_wait(&item->changed, lock);
    if (item->answered)
        rg_deferred_destroy(item);
    pthread_mutex_unlock(lock);
}

static void CUDA_CB host_function(void *item)
{
    run(item, CUDA_SUCCESS);
}

static void CUDA_CB stream_callback(CUstream stream, CUresult status, void *item)
{
    (void)stream;
    run(item, status);
}

static void refuse(struct rg_request *request, uint64_t id)
{
    rg_deferred_notice(request->worker, RG_NOTICE_HOST_CALL, id, 0, 1, 0);
    request->told = true;
}

CUresult rg_execute_rgHostCall(struct rg_request *request, CUstream stream, unsigned long long id,
                               unsigned int callback)
{
    struct rg_deferred_item *item = rg_deferred_create(request, RG_DEFERRED_HOST_CALL, id, 0);
    if (!item && !request->violated)
        refuse(request, id);
    if (!item)
        return request->result;
    CUresult result = callback ? rg_driver.cuStreamAddCallback(stream, stream_callback, item, 0)
                               : rg_driver.cuLaunchHostFunc(stream, host_function, item);
    if (result != CUDA_SUCCESS) {
        refuse(request, id);
        rg_deferred_cancel(item);
    }
    return result;
}

static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *done, size_t bulk_size)
{
    (void)header;
    if (done->type != RG_ANSWER_HOST_DONE)
        return RG_ANSWERED_NOT_MINE;
    struct rg_deferred *deferred = rg_deferred_of(worker);
    pthread_mutex_lock(&deferred->lock);
    struct rg_deferred_item *item = rg_deferred_find(worker, done->id);
    const bool good =
        !bulk_size && item && item->kind == RG_DEFERRED_HOST_CALL && item->due && !item->answered;
    if (good) {
        item->answered = true;
        pthread_cond_signal(&item->changed);
    }
    pthread_mutex_unlock(&deferred->lock);
    if (!good)
        return RG_ANSWERED_WRONG;
    atomic_fetch_sub(&worker->answers_due, 1);
    return RG_ANSWERED_GOOD;
}

const struct rg_server_module rg_host_call_module = {.answer = answer};
