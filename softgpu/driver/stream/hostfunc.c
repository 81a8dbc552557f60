/*
 * hostfunc.c - code of the application that streams run: host functions and stream callbacks.
 *
 * They run on executor threads. CUDA calls made inside fail with CUDA_ERROR_NOT_PERMITTED. A host function is
 * not called once the context has failed; a stream callback is, and gets the error.
 */
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/schedule/schedule.h"

struct host_call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *user;
};

static void run_host_call(struct sg_task *task)
{
    const struct host_call *call = (const void *)task->payload;
    bool before = sg_in_host_function;
    sg_in_host_function = true;
    if (call->function != NULL)
        call->function(call->user);
    else
        call->callback(call->stream, (CUresult)atomic_load(&task->stream->object.context->sticky),
                       call->user);
    sg_in_host_function = before;
}

static CUresult submit(CUstream handle, const struct host_call *call)
{
    SG_REF(struct sg_stream) stream = NULL;
    SG_RETURN_IF(sg_stream_get(handle, &stream));
    if (call->function == NULL && call->callback == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(handle))
        return call->function != NULL ? rg_capture_host(call->function, call->user, handle)
                                      : rg_capture_refuse(handle);
    struct sg_task *task = sg_task_new(sizeof *call, run_host_call, NULL);
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(struct host_call *)(void *)task->payload = *call;
    task->always = call->callback != NULL;
    return sg_stream_submit(stream, task);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    return submit(stream, &(struct host_call){.function = function, .user = user});
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user, unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, &(struct host_call){.callback = callback, .stream = stream, .user = user});
}
