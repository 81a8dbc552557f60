/*
 * stream.c - stream objects and what can be asked of them.
 *
 * Null, legacy and per-thread handles are resolved here. A destroyed stream's queued work still completes:
 * tasks hold their stream. Capture is the business of common/cuda/graph: here are only its refusals.
 */
#include <stdlib.h>

#include "common/cuda/errors.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/context/green.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

static CUresult default_stream(bool per_thread, bool any, struct sg_stream **out)
{
    struct sg_context *context;
    RG_TRY(sg_enter_current(any, &context));
    struct sg_stream *stream = per_thread ? sg_thread_stream(context) : context->legacy;
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire(&stream->object);
    *out = stream;
    return CUDA_SUCCESS;
}

static CUresult get(CUstream handle, bool any, struct sg_stream **out)
{
    if (handle == NULL)
        return default_stream(sg_per_thread_default_stream, any, out);
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return default_stream(handle == CU_STREAM_PER_THREAD, any, out);
    RG_TRY(sg_enter());
    SG_REF(struct sg_object) known = sg_handle_get(handle, SG_KIND_STREAM);
    if (known == NULL && sg_context_current() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sg_stream *stream;
    CUresult result = sg_handle_get_living(handle, SG_KIND_STREAM, (void **)&stream);
    RG_TRY(result);
    if (!any && (result = (CUresult)atomic_load(&stream->object.context->owner->sticky)) != CUDA_SUCCESS) {
        sg_release(&stream->object);
        return result;
    }
    *out = stream;
    return CUDA_SUCCESS;
}

CUresult sg_stream_get(CUstream handle, struct sg_stream **out)
{
    return get(handle, false, out);
}

CUresult sg_stream_submit(struct sg_stream *stream, struct sg_task *task)
{
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_submit(stream, task, NULL);
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *out, struct sg_context *context, unsigned flags, int priority)
{
    int clamped = priority > 0 ? 0 : priority < 1 - SG_PRIORITIES ? 1 - SG_PRIORITIES : priority;
    struct sg_stream *stream = sg_stream_new(context, flags, clamped, false);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUstream)(void *)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    struct sg_context *context;
    RG_TRY(sg_enter_current(false, &context));
    if (out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return create(out, context, flags, priority);
}

CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned int flags, int priority)
{
    SG_GREEN_OR_RETURN(green, handle);
    if (out == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    return create(out, green->context, flags, priority);
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    RG_TRY(sg_enter());
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sg_handle_remove(handle, SG_KIND_STREAM))
        return rg_cuda_no_object(handle);
    struct sg_stream *stream = (struct sg_stream *)(void *)handle;
    CUresult result = (CUresult)atomic_load(&stream->object.context->owner->sticky);
    sg_release(&stream->object);
    return result;
}

CUresult cuStreamQuery(CUstream handle)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_refuse(handle);
    bool idle = sg_stream_idle(stream);
    CUresult sticky = (CUresult)atomic_load(&stream->object.context->owner->sticky);
    return sticky != CUDA_SUCCESS ? sticky : idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_refuse(handle);
    if (stream->legacy) { /* what it has been asked to do includes waiting for the blocking streams */
        struct sg_task *mark = sg_task_new(0, NULL, NULL);
        if (mark == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        sg_submit_wait(stream, mark);
    } else {
        sg_stream_wait(stream);
    }
    sg_pools_waited();
    sg_exec_flush_output();
    return (CUresult)atomic_load(&stream->object.context->owner->sticky);
}

/* --- questions --- */

/* Streams of contexts that have failed answer, too. */
#define QUESTION(function, type, answer)                                                                     \
    CUresult function(CUstream handle, type *out)                                                            \
    {                                                                                                        \
        SG_REF(struct sg_stream) stream = NULL;                                                              \
        RG_TRY(get(handle, true, &stream));                                                                  \
        if (out == NULL)                                                                                     \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
        *out = (answer);                                                                                     \
        return CUDA_SUCCESS;                                                                                 \
    }
QUESTION(cuStreamGetPriority, int, stream->priority)
QUESTION(cuStreamGetFlags, unsigned, stream->flags)
QUESTION(cuStreamGetId, unsigned long long, stream->id)
QUESTION(cuStreamGetDevice, CUdevice, stream->object.context->device->ordinal)
QUESTION(cuStreamGetCtx, CUcontext, sg_context_handle(stream->object.context))
QUESTION(cuStreamGetGreenCtx, CUgreenCtx, sg_green_handle(stream->object.context->green))

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    SG_REF(struct sg_stream) stream = NULL;
    RG_TRY(get(handle, true, &stream));
    const struct sg_context *of = stream->object.context;
    if (handle == CU_STREAM_PER_THREAD && of->green != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = sg_context_handle(of->owner);
    if (green != NULL)
        *green = sg_green_handle(of->green);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = stream->synchronization_policy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = stream->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value->memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    stream->synchronization_policy = value->syncPolicy;
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    SG_STREAM_OR_RETURN(target, to);
    SG_STREAM_OR_RETURN(source, from);
    target->synchronization_policy = source->synchronization_policy;
    return CUDA_SUCCESS;
}
