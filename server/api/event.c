/* event.c - waiting for events. */
#include "generated/server/execute.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"

CUresult rg_execute_cuEventSynchronize(struct rg_request *request, CUevent event)
{
    CUresult result = rg_wait_event(request, event);
    rg_output_drain(request->worker);
    return result;
}
