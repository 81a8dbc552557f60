/* event.c - waiting for events. */
#include "generated/server/serve.h"
#include "server/output.h"
#include "server/wait.h"

CUresult rg_serve_cuEventSynchronize(struct rg_job *job, CUevent event)
{
    CUresult result = rg_wait_event(job, event);
    rg_output_drain(job->worker);
    return result;
}
