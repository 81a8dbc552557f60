/*
 * stream.c - streams, words that they wait for, and host functions. A stream's flags, priority and context are answered here; host
 * functions are registered and run when the worker says that the stream has reached them (host_call.c).
 */
#include "client/api/stream.h"

#include "client/api/device.h"
#include "client/api/memory_pool.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/pinned.h"
#include "client/multiserver/cross_fence.h"
#include "client/multiserver/proxy.h"
#include "client/prealloc/prealloc.h"
#include "client/timeline/pace.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <stdatomic.h>

static atomic_ullong next_id = 16; /* the default streams have small ones */

unsigned long long rg_stream_next_id(void)
{
    return atomic_fetch_add(&next_id, 1);
}

static CUresult create(CUstream *phStream, unsigned flags, int priority, bool with_priority)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!phStream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = (CUstream)rg_handle_create(RG_KIND_STREAM);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream)->stream =
        (struct rg_stream){.context = rg_context_current_handle(),
                           .flags = flags,
                           .priority = priority,
                           .id = rg_stream_next_id()};
    CUresult status = with_priority ? rg_op_cuStreamCreateWithPriority(&stream, flags, priority)
                                    : rg_op_cuStreamCreate(&stream, flags);
    return rg_handle_made(RG_KIND_STREAM, (uint64_t)stream, status, phStream);
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return create(phStream, Flags, 0, false);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    /*
     * Priorities out of the device's range are clamped, as the driver does (0 is the lowest on all of them).
     */
    if (priority > 0)
        priority = 0;
    int least = 0, greatest = 0;
    if (priority < 0 && cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS && priority < greatest)
        priority = greatest;
    return create(phStream, flags, priority, true);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    const bool orphan = rg_handle_orphaned(RG_KIND_STREAM, (uint64_t)hStream);
    RG_TRY(rg_call_allowed(0));
    if (rg_stream_is_default(hStream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!orphan) {
        RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)hStream, CUDA_ERROR_INVALID_HANDLE));
        RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    }
    rg_prealloc_give_back_stream(hStream);
    if (!orphan) /* else it went with its context; where this fails, the worker may still have it */
        RG_TRY(rg_op_cuStreamDestroy_v2(hStream));
    rg_timeline_end_stream(hStream);
    return CUDA_SUCCESS;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

CUresult cuStreamSynchronize(CUstream hStream)
{
    RG_TRY(rg_stream_check(hStream));
    if (rg_capture_takes(hStream))
        return rg_capture_refuse(hStream);
    RG_TRY(rg_timeline_wait_stream(hStream));
    rg_pools_waited();
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream)
{
    RG_TRY(rg_call_allowed(0));
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)hStream, CUDA_ERROR_INVALID_HANDLE));
    return rg_capture_takes(hStream) ? rg_capture_refuse(hStream) : rg_timeline_query_stream(hStream);
}

/* --- what is known of a stream -------------------------------------------------------------------------- */

/* What is known of `stream`; the default streams belong to the current context. */
static CUresult describe(CUstream stream, const void *out, struct rg_stream *known)
{
    stream = rg_effective_stream(stream);
    RG_TRY(rg_call_allowed(rg_stream_is_default(stream) ? RG_TRAIT_CONTEXT : 0));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_stream_is_default(stream)) {
        *known = (struct rg_stream){.context = rg_context_current_handle(), .id = (uintptr_t)stream};
        if (stream == CU_STREAM_PER_THREAD)
            known->id = 3 + (unsigned long long)rg_thread_current()->number * 2 + RG_OBJECTS_MAX;
        return CUDA_SUCCESS;
    }
    const struct rg_shadow *shadow;
    RG_TRY(rg_handle_live(RG_KIND_STREAM, (uint64_t)stream, &shadow));
    *known = shadow->stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct rg_stream known;
    RG_TRY(describe(hStream, flags, &known));
    *flags = known.flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct rg_stream known;
    RG_TRY(describe(hStream, priority, &known));
    *priority = known.priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct rg_stream known;
    RG_TRY(describe(hStream, streamId, &known));
    *streamId = known.id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct rg_stream known;
    RG_TRY(describe(hStream, pctx, &known));
    *pctx = (CUcontext)known.context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    struct rg_stream known = {0};
    RG_TRY(describe(hStream, &hStream, &known));
    const struct rg_shadow *context = rg_handle_shadow(RG_KIND_CONTEXT, known.context);
    const uint64_t green = context ? context->context.green : 0;
    if (hStream == CU_STREAM_PER_THREAD && green)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pCtx)
        return CUDA_ERROR_INVALID_VALUE;
    *pCtx = (CUcontext)rg_context_owner(known.context);
    if (pGreenCtx)
        *pGreenCtx = (CUgreenCtx)green;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct rg_stream known;
    RG_TRY(describe(hStream, device, &known));
    struct rg_shadow *context = rg_handle_shadow(RG_KIND_CONTEXT, known.context);
    if (!context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *device = context->context.device;
    return CUDA_SUCCESS;
}

/* --- words in memory ------------------------------------------------------------------------------------ */

/* Checks what a wait says, and finds the stream to put it into: the word may be of another server. */
static CUresult begin_wait(struct rg_proxy *proxy, CUstream stream, CUdeviceptr address, size_t size,
                           unsigned flags)
{
    CUdevice device;
    if (flags & CU_STREAM_WAIT_VALUE_FLUSH) {
        RG_TRY(cuStreamGetDevice(stream, &device));
        if (!rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    if ((flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) > CU_STREAM_WAIT_VALUE_NOR || address % size ||
        !rg_pinned_on_device(address, 0, size, 1, false))
        return CUDA_ERROR_INVALID_VALUE;
    *proxy = (struct rg_proxy){.stream = stream};
    return rg_several_servers()
               ? rg_proxy_begin(proxy, rg_home_of_address(address), rg_effective_stream(stream), false)
               : CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    struct rg_proxy proxy;
    RG_TRY(rg_stream_check(stream));
    if (rg_capture_takes(stream))
        return rg_capture_memop(CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags, stream);
    RG_TRY(begin_wait(&proxy, stream, addr, 4, flags));
    rg_pace_gate();
    return rg_proxy_end(&proxy, rg_op_cuStreamWaitValue32_v2(proxy.stream, addr, value, flags));
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    struct rg_proxy proxy;
    RG_TRY(rg_stream_check(stream));
    if (rg_capture_takes(stream))
        return rg_capture_memop(CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags, stream);
    RG_TRY(begin_wait(&proxy, stream, addr, 8, flags));
    rg_pace_gate();
    return rg_proxy_end(&proxy, rg_op_cuStreamWaitValue64_v2(proxy.stream, addr, value, flags));
}

#define BATCH_MAX 256 /* of the API */

typedef CUresult batch_function(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                                unsigned flags);

/* One of a batch by itself: its memory may be of another server than the stream. */
static CUresult operate(CUstream stream, CUstreamBatchMemOpParams *o, batch_function *put)
{
    switch (o->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return cuStreamWaitValue32_v2(stream, o->waitValue.address, o->waitValue.value, o->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return cuStreamWaitValue64_v2(stream, o->waitValue.address, o->waitValue.value64, o->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return cuStreamWriteValue32_v2(stream, o->writeValue.address, o->writeValue.value,
                                       o->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return cuStreamWriteValue64_v2(stream, o->writeValue.address, o->writeValue.value64,
                                       o->writeValue.flags);
    default:
        return put(stream, 1, o, 0);
    }
}

static CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags,
                      batch_function *put)
{
    RG_TRY(rg_stream_check(stream));
    if (!operations || count > BATCH_MAX || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return rg_capture_memops(operations, count, flags, stream);
    rg_pace_gate();
    if (!rg_several_servers())
        return put(stream, count, operations, flags);
    for (unsigned i = 0; i < count; i++)
        RG_TRY(operate(stream, &operations[i], put));
    return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                            unsigned int flags)
{
    return batch(stream, count, paramArray, flags, rg_op_cuStreamBatchMemOp);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                               unsigned int flags)
{
    return batch(stream, count, paramArray, flags, rg_op_cuStreamBatchMemOp_v2);
}

/* --- host functions ------------------------------------------------------------------------------------- */

static CUresult host_call(CUstream stream, CUhostFn function, CUstreamCallback callback, void *user)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!function && !callback)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE));
    if (rg_capture_takes(stream))
        return function ? rg_capture_host(function, user, stream) : rg_capture_refuse(stream);
    uint64_t id = rg_host_call_create(rg_home_session(rg_home_of(RG_KIND_STREAM, (uint64_t)stream)), function,
                                      callback, stream, user);
    if (!id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_pace_gate();
    CUresult status = rg_op_rgHostCall(rg_effective_stream(stream), id, callback != NULL);
    if (status != CUDA_SUCCESS)
        rg_transfer_cancel(id);
    return status;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return host_call(hStream, fn, NULL, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return host_call(hStream, NULL, callback, userData);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    CUresult captured;
    RG_TRY(rg_stream_check(hStream));
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)hEvent, CUDA_ERROR_INVALID_HANDLE));
    if (Flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_wait(hEvent, hStream, Flags, &captured))
        return captured;
    rg_pace_may_gate();
    const bool apart = rg_homes_differ(rg_home_of(RG_KIND_EVENT, (uint64_t)hEvent),
                                       rg_home_of(RG_KIND_STREAM, (uint64_t)hStream));
    return rg_timeline_told(hEvent, apart ? rg_cross_fence_wait_event(hStream, hEvent, Flags)
                                          : rg_op_cuStreamWaitEvent(hStream, hEvent, Flags));
}
