/*
 * event.c - events: created without a round trip, recorded without waiting, queried without asking where that
 * will do.
 */
#include "client/api/memory_pool.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/timeline/timeline.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!phEvent || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = (CUevent)rg_handle_create(RG_KIND_EVENT);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)event);
    shadow->event = (struct rg_event){.context = rg_context_current_owner(), .flags = Flags};
    return rg_handle_made(RG_KIND_EVENT, (uint64_t)event, rg_op_cuEventCreate(&event, Flags), phEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    RG_TRY(rg_call_allowed(0));
    const bool orphan = rg_handle_orphaned(RG_KIND_EVENT, (uint64_t)hEvent); /* it went with its context */
    if (!orphan)
        RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)hEvent, CUDA_ERROR_INVALID_HANDLE));
    rg_capture_forget_event(hEvent);
    rg_timeline_forget_event(hEvent);
    const CUresult status = orphan ? CUDA_SUCCESS : rg_op_cuEventDestroy_v2(hEvent);
    rg_handle_delete(RG_KIND_EVENT, (uint64_t)hEvent);
    return status;
}

static CUresult check_event(CUevent event)
{
    RG_TRY(rg_call_allowed(0));
    return rg_handle_check(RG_KIND_EVENT, (uint64_t)event, CUDA_ERROR_INVALID_HANDLE);
}

/*
 * Checks that the event is of the stream's context; in *captured what the call returns if the stream
 * captures.
 */
static CUresult check_record(CUevent event, CUstream stream, unsigned flags, bool *taken, CUresult *captured)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE));
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)event, CUDA_ERROR_INVALID_HANDLE));
    if (flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    *taken = rg_capture_record(event, stream, flags, captured);
    if (*taken)
        return CUDA_SUCCESS;
    const struct rg_shadow *of_stream = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream),
                           *of_event = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)event);
    const uint64_t context =
        of_stream ? rg_context_owner(of_stream->stream.context) : rg_context_current_owner();
    return of_event && of_event->event.context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult record(CUevent event, CUstream stream, unsigned flags, bool with_flags)
{
    bool taken;
    CUresult captured;
    RG_TRY(check_record(event, stream, flags, &taken, &captured));
    return taken ? captured : rg_timeline_record(event, stream, flags, with_flags);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return record(hEvent, hStream, 0, false);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    return record(hEvent, hStream, flags, true);
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    RG_TRY(check_event(hEvent));
    RG_TRY(rg_handle_check(RG_KIND_CONTEXT, (uint64_t)hCtx, CUDA_ERROR_INVALID_CONTEXT));
    const struct rg_shadow *event = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)hEvent);
    if (!event || event->event.context != rg_context_owner((uint64_t)hCtx))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = rg_op_cuCtxRecordEvent(hCtx, hEvent);
    rg_timeline_unseen(hEvent);
    return rg_timeline_told(hEvent, status);
}

/* --- whether they have come ----------------------------------------------------------------------------- */

CUresult cuEventQuery(CUevent hEvent)
{
    CUresult captured;
    RG_TRY(check_event(hEvent));
    return rg_capture_queried(hEvent, &captured) ? captured : rg_timeline_query_event(hEvent);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    CUresult captured;
    RG_TRY(check_event(hEvent));
    if (rg_capture_asked(hEvent, &captured))
        return captured;
    RG_TRY(rg_timeline_wait_event(hEvent));
    rg_pools_waited();
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end, unsigned version)
{
    RG_TRY(rg_call_allowed(0));
    if (!milliseconds)
        return rg_invalid_value();
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)start, CUDA_ERROR_INVALID_HANDLE));
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)end, CUDA_ERROR_INVALID_HANDLE));
    if (rg_homes_differ(rg_home_of(RG_KIND_EVENT, (uint64_t)start), rg_home_of(RG_KIND_EVENT, (uint64_t)end)))
        return CUDA_ERROR_INVALID_HANDLE;
    return rg_timeline_event_time(milliseconds, start, end, version);
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(pMilliseconds, hStart, hEnd, 1);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(pMilliseconds, hStart, hEnd, 2);
}
