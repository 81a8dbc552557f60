/* event.c - events: created without a round trip, recorded without waiting. */
#include "client/call.h"
#include "client/context.h"
#include "client/handle.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!phEvent || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = (CUevent)rg_handle_create(RG_KIND_EVENT);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)event);
    shadow->event = (struct rg_event){.context = rg_context_current(), .flags = Flags};
    status = rg_op_cuEventCreate(&event, Flags);
    if (status == CUDA_SUCCESS)
        *phEvent = event;
    else
        rg_handle_delete(RG_KIND_EVENT, (uint64_t)event);
    return status;
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_EVENT, (uint64_t)hEvent))
        return CUDA_ERROR_INVALID_HANDLE;
    rg_capture_forget_event(hEvent);
    status = rg_op_cuEventDestroy_v2(hEvent);
    rg_handle_delete(RG_KIND_EVENT, (uint64_t)hEvent);
    return status;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    return cuEventDestroy_v2(hEvent);
}
