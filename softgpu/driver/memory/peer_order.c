/* peer_order.c - see peer_order.h. */
#include "softgpu/driver/memory/peer_order.h"

#include "softgpu/driver/schedule/schedule.h"

/* The context, and a mark for one of its streams or behind them; none for a handle that is NULL. */
static CUresult mark_for(CUcontext handle, struct sg_context **context, struct sg_task **mark)
{
    if (handle == NULL)
        return CUDA_SUCCESS;
    RG_TRY(sg_context_argument(handle, context));
    *mark = sg_task_new(0, NULL, NULL);
    return *mark != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult wait_for_context(struct sg_stream *stream, CUcontext handle)
{
    SG_REF(struct sg_context) context = NULL;
    struct sg_task *mark = NULL;
    RG_TRY(mark_for(handle, &context, &mark));
    if (mark != NULL)
        sg_submit_behind_context(stream, mark, context);
    return CUDA_SUCCESS;
}

static CUresult hold_up_context(struct sg_task *copied, CUcontext handle)
{
    SG_REF(struct sg_context) context = NULL;
    struct sg_task *mark = NULL;
    RG_TRY(mark_for(handle, &context, &mark));
    if (mark != NULL)
        sg_submit(context->legacy, mark, copied);
    return CUDA_SUCCESS;
}

CUresult sg_peer_order_before(CUcontext to, CUcontext from)
{
    SG_STREAM_OR_RETURN(stream, NULL);
    RG_TRY(wait_for_context(stream, to));
    return wait_for_context(stream, from);
}

CUresult sg_peer_order_after(CUcontext to, CUcontext from)
{
    SG_STREAM_OR_RETURN(stream, NULL);
    struct sg_task *copied = sg_task_new(0, NULL, NULL);
    if (copied == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_task_acquire(copied);
    sg_submit(stream, copied, NULL);
    CUresult result = hold_up_context(copied, to);
    if (result == CUDA_SUCCESS)
        result = hold_up_context(copied, from);
    sg_task_release(copied);
    return result;
}
