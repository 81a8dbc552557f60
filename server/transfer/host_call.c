/*
 * host_call.c - host functions of the client in streams: a host function of the driver tells the client
 * (RG_NOTICE_HOST_CALL), and the stream waits until that has run its own (RG_ANSWER_HOST_DONE). See deferred.h.
 *
 * What cannot be put into the stream is refused: the client is told that its function will not be run.
 */
#include "generated/server/execute.h"
#include "server/transfer/deferred.h"

/* From the notice on, the item is gone as soon as the client answers. */
static void tell(struct rg_deferred_item *item, CUresult status)
{
    struct rg_worker *worker = item->worker;
    const uint64_t id = item->id;
    pthread_mutex_t *lock = rg_deferred_lock(worker);
    pthread_mutex_lock(lock);
    item->due = true;
    pthread_mutex_unlock(lock);
    rg_deferred_notice(worker, RG_NOTICE_HOST_CALL, id, (uint64_t)status, 0, 0);
}

static void CUDA_CB host_function(void *item)
{
    tell(item, CUDA_SUCCESS);
}

static void CUDA_CB stream_callback(CUstream stream, CUresult status, void *item)
{
    (void)stream;
    tell(item, status);
}

static void refuse(struct rg_request *request, uint64_t id)
{
    rg_deferred_notice(request->worker, RG_NOTICE_HOST_CALL, id, 0, 1, 0);
    request->told = true;
}

/* The item, with a word for the stream; NULL with request->result or a violation set. */
static struct rg_deferred_item *make(struct rg_request *request, CUstream stream, uint64_t id)
{
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    struct rg_deferred_item *item =
        context ? rg_deferred_create(request, RG_DEFERRED_HOST_CALL, id, 0) : NULL;
    if (!item)
        return NULL;
    request->result = rg_deferred_take_word(item, context);
    if (request->result == CUDA_SUCCESS)
        return item;
    rg_deferred_cancel(item);
    return NULL;
}

static CUresult put(struct rg_deferred_item *item, bool callback, CUstream stream)
{
    return callback ? rg_driver.cuStreamAddCallback(stream, stream_callback, item, 0)
                    : rg_driver.cuLaunchHostFunc(stream, host_function, item);
}

CUresult rg_execute_rgHostCall(struct rg_request *request, CUstream stream, unsigned long long id,
                               unsigned int callback)
{
    struct rg_deferred_item *item = make(request, stream, id);
    if (!item && !request->violated)
        refuse(request, id);
    if (!item)
        return request->result;
    const struct rg_stream_word word = item->word; /* once it is in the stream, the item may be gone */
    CUresult result = put(item, callback, stream);
    if (result != CUDA_SUCCESS) {
        refuse(request, id);
        rg_deferred_cancel(item);
        return result;
    }
    result = rg_stream_word_await(&word, 1, stream);
    return result == CUDA_SUCCESS ? rg_stream_word_return(&word, stream) : result;
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
        rg_deferred_tell(item);
        item->word.cell = NULL; /* the stream's, which returns it */
        rg_deferred_destroy(item);
    }
    pthread_mutex_unlock(&deferred->lock);
    if (!good)
        return RG_ANSWERED_WRONG;
    atomic_fetch_sub(&worker->answers_due, 1);
    return RG_ANSWERED_GOOD;
}

const struct rg_server_module rg_host_call_module = {.answer = answer};
