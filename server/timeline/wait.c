/* wait.c - polling for a moment, then waiting. See wait.h. */
#include "server/timeline/wait.h"

#include "common/base/clock.h"
#include "common/base/tuning.h"
#include "common/sync/adaptive_wait.h"
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/modules.h"
#include "server/timeline/output.h"

#include <sched.h>

enum {
    VAIN_POLLS = 4, /* so many in a row, and the next waits are not polled for, but for one in so many: */
    POLL_AGAIN = 16,
};

/* The dispatcher's. */
struct wait {
    struct rg_adaptive_wait mode;
    unsigned vain_polls; /* in a row */
};

static void init(struct rg_worker *worker)
{
    struct wait *wait = worker->state[RG_MODULE_WAIT];
    rg_adaptive_wait_init(&wait->mode, RG_WAIT_DEFAULT);
}

const struct rg_server_module rg_wait_module = {.size = sizeof(struct wait), .init = init};

static CUresult query_stream(void *stream)
{
    return rg_driver.cuStreamQuery(stream);
}

static CUresult query_event(void *event)
{
    return rg_driver.cuEventQuery(event);
}

static bool worth_polling(struct wait *wait)
{
    return wait->mode.mode != RG_WAIT_BLOCK &&
           (wait->vain_polls < VAIN_POLLS || ++wait->vain_polls % POLL_AGAIN == 0);
}

/* Asks until it is done, for a moment. */
static CUresult poll_for(struct rg_worker *worker, CUresult (*query)(void *), void *object)
{
    struct wait *wait = worker->state[RG_MODULE_WAIT];
    CUresult result = query(object);
    if (result != CUDA_ERROR_NOT_READY || !worth_polling(wait))
        return result;
    const uint64_t until = rg_now_ns() + RG_WAIT_POLL_NS;
    while (result == CUDA_ERROR_NOT_READY && rg_now_ns() < until) {
        sched_yield(); /* a device that is software may need this processor */
        result = query(object);
    }
    wait->vain_polls = result == CUDA_ERROR_NOT_READY ? wait->vain_polls + 1 : 0;
    return result;
}

/* Waits on a thread that holds nobody up. Whether it sleeps is the driver's choice, unless it never shall. */
static CUresult wait_detached(struct rg_request *request, CUresult (*query)(void *), void *object,
                              CUresult (*synchronize)(void *))
{
    if (!rg_request_detach(request))
        return request->result;
    const struct wait *wait = request->worker->state[RG_MODULE_WAIT];
    if (wait->mode.mode == RG_WAIT_SPIN)
        while (query(object) == CUDA_ERROR_NOT_READY && !rg_worker_over(request->worker))
            sched_yield();
    return synchronize(object);
}

static CUresult synchronize_stream(void *stream)
{
    return rg_driver.cuStreamSynchronize(stream);
}

static CUresult synchronize_event(void *event)
{
    return rg_driver.cuEventSynchronize(event);
}

/* Polls for a moment: false if the stream still has work, or cannot be asked. */
static bool stream_done_soon(struct rg_worker *worker, CUstream stream)
{
    CUresult result = poll_for(worker, query_stream, stream);
    return result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_wait_stream(struct rg_request *request, CUstream stream)
{
    CUresult result = poll_for(request->worker, query_stream, stream);
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_NOT_SUPPORTED)
        return wait_detached(request, query_stream, stream, synchronize_stream);
    /* of idle streams too: kernels' output comes out by it */
    return result == CUDA_SUCCESS ? rg_driver.cuStreamSynchronize(stream) : result;
}

CUresult rg_wait_event(struct rg_request *request, CUevent event)
{
    CUresult result = poll_for(request->worker, query_event, event);
    if (result == CUDA_ERROR_NOT_READY)
        return wait_detached(request, query_event, event, synchronize_event);
    return result == CUDA_SUCCESS ? rg_driver.cuEventSynchronize(event) : result;
}

/* --- contexts ------------------------------------------------------------------------------------------- */

/* Whether all work of the context ends within a moment. */
static bool context_done_soon(struct rg_worker *worker, const struct rg_worker_context *context)
{
    if (!rg_context_has_few_streams(context) || !stream_done_soon(worker, CU_STREAM_LEGACY))
        return false;
    for (const struct rg_worker_stream *stream = context->streams; stream; stream = stream->next_of_context)
        if (!stream_done_soon(worker, stream->object))
            return false;
    return true;
}

static bool may_block(struct rg_request *request, const struct rg_worker_context *context)
{
    return !context || (request->worker->last_work > atomic_load(&context->idle_at) &&
                        !context_done_soon(request->worker, context));
}

CUresult rg_wait_legacy_stream(struct rg_request *request, CUstream stream)
{
    struct rg_worker_context *context = rg_request_context(request);
    if (!context)
        return request->result;
    /* it may have no work itself and yet be waited for until the streams that block it are done */
    if (may_block(request, context) && !rg_request_detach(request))
        return request->result;
    return rg_driver.cuStreamSynchronize(stream);
}

CUresult rg_wait_context(struct rg_request *request, struct rg_worker_context *context)
{
    const uint64_t seq = rg_executor_of(request)->seq;
    if (may_block(request, context) && !rg_request_detach(request))
        return request->result;
    CUresult result = rg_driver.cuCtxSynchronize();
    if (result == CUDA_SUCCESS && context)
        atomic_store(&context->idle_at, seq);
    rg_output_drain(request->worker);
    return result;
}
