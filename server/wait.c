/* wait.c - polling for a moment, then waiting. See wait.h. */
#include "server/wait.h"

#include "common/clock.h"
#include "generated/server/driver.h"

#include <sched.h>

/* About what two changes of threads cost. Others' calls stand still so long at most. */
#define POLL_NS 20000

bool rg_stream_done_soon(CUstream stream)
{
    const uint64_t until = rg_now_ns() + POLL_NS;
    CUresult result = rg_driver.cuStreamQuery ? rg_driver.cuStreamQuery(stream) : CUDA_ERROR_NOT_SUPPORTED;
    while (result == CUDA_ERROR_NOT_READY && rg_now_ns() < until) {
        sched_yield(); /* a device that is software may need this processor */
        result = rg_driver.cuStreamQuery(stream);
    }
    return result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_wait_stream(struct rg_job *job, CUstream stream)
{
    const uint64_t until = rg_now_ns() + POLL_NS;
    CUresult result = rg_driver.cuStreamQuery ? rg_driver.cuStreamQuery(stream) : CUDA_ERROR_NOT_SUPPORTED;
    while (result == CUDA_ERROR_NOT_READY && rg_now_ns() < until) {
        sched_yield(); /* a device that is software may need this processor */
        result = rg_driver.cuStreamQuery(stream);
    }
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_NOT_SUPPORTED)
        rg_job_hand_over(job);
    else if (result != CUDA_SUCCESS)
        return result;
    return rg_driver.cuStreamSynchronize(stream); /* of idle streams too: kernels' output comes out by it */
}

CUresult rg_wait_event(struct rg_job *job, CUevent event)
{
    const uint64_t until = rg_now_ns() + POLL_NS;
    CUresult result = rg_driver.cuEventQuery(event);
    while (result == CUDA_ERROR_NOT_READY && rg_now_ns() < until) {
        sched_yield();
        result = rg_driver.cuEventQuery(event);
    }
    if (result == CUDA_ERROR_NOT_READY)
        rg_job_hand_over(job);
    else if (result != CUDA_SUCCESS)
        return result;
    return rg_driver.cuEventSynchronize(event);
}
