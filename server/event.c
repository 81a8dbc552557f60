/* event.c - waiting for events. */
#include "generated/server/serve.h"
#include "server/output.h"
#include "server/worker.h"

CUresult rg_serve_cuEventSynchronize(struct rg_job *job, CUevent event)
{
    if (!rg_driver.cuEventSynchronize)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuEventQuery ? rg_driver.cuEventQuery(event) : CUDA_ERROR_NOT_READY;
    if (result == CUDA_ERROR_NOT_READY) {
        rg_job_hand_over(job);
        result = rg_driver.cuEventSynchronize(event);
    }
    rg_output_drain(job->worker);
    return result;
}
