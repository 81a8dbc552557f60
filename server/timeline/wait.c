/* wait.c - polling for a moment, then waiting. See wait.h. */
#include "server/timeline/wait.h"

#include "common/base/clock.h"
#include "common/base/tuning.h"
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"

#include <sched.h>

enum {
    VAIN_POLLS = 4, /* so many in a row, and the next waits are not polled for, but for one in so many: */
    POLL_AGAIN = 16,
};

static CUresult query_stream(void *stream)
{
    return rg_driver.cuStreamQuery ? rg_driver.cuStreamQuery(stream) : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult query_event(void *event)
{
    return rg_driver.cuEventQuery(event);
}

static bool worth_polling(struct rg_worker *worker)
{
    return worker->wait.mode != RG_WAIT_BLOCK &&
           (worker->vain_polls < VAIN_POLLS || ++worker->vain_polls % POLL_AGAIN == 0);
}

/* Asks until it is done, for a moment. */
static CUresult poll_for(struct rg_worker *worker, CUresult (*query)(void *), void *object)
{
    CUresult result = query(object);
    if (result != CUDA_ERROR_NOT_READY || !worth_polling(worker))
        return result;
    const uint64_t until = rg_now_ns() + RG_WAIT_POLL_NS;
    while (result == CUDA_ERROR_NOT_READY && rg_now_ns() < until) {
        sched_yield(); /* a device that is software may need this processor */
        result = query(object);
    }
    worker->vain_polls = result == CUDA_ERROR_NOT_READY ? worker->vain_polls + 1 : 0;
    return result;
}

/* Waits on a thread that holds nobody up. Whether it sleeps is up to the driver then, unless it never shall. */
static CUresult wait_apart(struct rg_request *request, CUresult (*query)(void *), void *object,
                           CUresult (*synchronize)(void *))
{
    if (!rg_request_detach(request))
        return request->result;
    if (request->worker->wait.mode == RG_WAIT_SPIN)
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

bool rg_stream_done_soon(struct rg_worker *worker, CUstream stream)
{
    CUresult result = poll_for(worker, query_stream, stream);
    return result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_wait_stream(struct rg_request *request, CUstream stream)
{
    CUresult result = poll_for(request->worker, query_stream, stream);
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_NOT_SUPPORTED)
        return wait_apart(request, query_stream, stream, synchronize_stream);
    /* of idle streams too: kernels' output comes out by it */
    return result == CUDA_SUCCESS ? rg_driver.cuStreamSynchronize(stream) : result;
}

CUresult rg_wait_event(struct rg_request *request, CUevent event)
{
    CUresult result = poll_for(request->worker, query_event, event);
    if (result == CUDA_ERROR_NOT_READY)
        return wait_apart(request, query_event, event, synchronize_event);
    return result == CUDA_SUCCESS ? rg_driver.cuEventSynchronize(event) : result;
}
