/*
 * page_request.c - requests for pages. They are answered outside of the sequence of records, so that they
 * overtake calls that wait. A request that the worker does not answer before its session ends fails. Any
 * thread but the reader.
 */
#include "client/managed/page_request.h"

#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/transfer/registry.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

struct pending {
    struct rg_transfer transfer;
    struct rg_page_request *request;
};

static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;

static void answer(struct rg_page_request *request, CUresult result)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    request->result = result;
    request->done = true;
    pthread_cond_broadcast(&answered);
}

static enum rg_status receive(struct rg_session *session, const struct rg_region *to, size_t size)
{
    RG_THREAD_INSIDE(NULL);
    return rg_region_receive(to, 0, size, session->conn);
}

static bool take_answer(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size)
{
    struct rg_session *const session = transfer->session;
    struct rg_page_request *request = ((struct pending *)transfer)->request;
    const bool good = notice->arg[1] == bulk_size && (bulk_size == 0 || bulk_size == request->size);
    if (good)
        rg_registry_take(notice->id);
    pthread_mutex_unlock(&rg_registry_lock);
    if (!good)
        return false;
    const struct rg_region memory = rg_region_line(RG_REGION_HOST, (uintptr_t)request->data, request->size);
    const enum rg_status status = bulk_size ? receive(session, &memory, bulk_size) : RG_OK;
    CUresult result = status == RG_OK ? (CUresult)notice->arg[0] : CUDA_ERROR_DEVICE_UNAVAILABLE;
    request->busy = notice->arg[2] & 1;
    request->steady = !(notice->arg[2] & 2);
    if (result == CUDA_SUCCESS && !bulk_size && !request->busy)
        result = CUDA_ERROR_UNKNOWN; /* no data, and no reason */
    answer(request, result);
    free(transfer);
    return true;
}

static void lost(struct rg_transfer *transfer)
{
    answer(((struct pending *)transfer)->request, CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static const struct rg_transfer_kind kind = {
    .notice = RG_NOTICE_MANAGED, .progress = take_answer, .lost = lost};

void rg_page_request_send(struct rg_page_request *request)
{
    request->result = CUDA_ERROR_OUT_OF_MEMORY;
    request->busy = request->done = false;
    request->id = 0;
    struct pending *pending = rg_registry_new(request->session, &kind, sizeof *pending);
    if (!pending)
        return;
    pending->request = request;
    request->id = rg_registry_add(&pending->transfer);
    rg_probe_bytes(0, request->size);
    struct rg_answer question = {.type = RG_ANSWER_MANAGED_OUT,
                                 .reserved = request->flags,
                                 .id = request->id,
                                 .arg = {request->address, request->size, request->context}};
    rg_queue_answer(request->session, &question, NULL, 0, NULL);
}

void rg_page_request_wait(struct rg_page_request *request)
{
    struct rg_transfer *transfer = NULL;
    if (!request->id)
        return;
    const uint64_t since = rg_probe_wait();
    pthread_mutex_lock(&rg_registry_lock);
    while (!request->done) {
        /* the session is over; if it is not registered any more, somebody is about to be done with it */
        if (!rg_session_lives(request->session) && (transfer = rg_registry_take(request->id))) {
            request->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
            break;
        }
        pthread_cond_wait(&answered, &rg_registry_lock);
    }
    pthread_mutex_unlock(&rg_registry_lock);
    rg_probe_waited(since, 0);
    free(transfer);
    rg_receiver_expect_notices(request->session, -1);
}
