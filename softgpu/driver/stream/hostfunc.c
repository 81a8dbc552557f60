/*
 * hostfunc.c - code of the application that streams run: host functions and stream callbacks.
 *
 * They run on executor threads. CUDA calls made inside fail with CUDA_ERROR_NOT_PERMITTED. A host function is
 * not called once the context has failed; a stream callback is, and gets the error.
 */
#include "common/base/thread.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/schedule/schedule.h"

struct host_call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *user;
};

static void call_host(struct sg_task *task)
{
    const struct host_call *call = (const void *)task->payload;
    bool before = sg_in_host_function;
    sg_in_host_function = true;
    if (call->function != NULL)
        call->function(call->user);
    else
        call->callback(call->stream, (CUresult)atomic_load(&task->stream->object.context->owner->sticky),
                       call->user);
    sg_in_host_function = before;
}

/*
 * Where the device behaves as others may: all host functions run on one thread that is none of the streams', and late. A host
 * function may not wait for another one, so one thread is enough.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sg_task *given; /* to be run; NULL: none is, or it has been */
    bool runs, busy;
} host_thread = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *run_given(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&host_thread.lock);
    for (;;) {
        while (host_thread.given == NULL)
            pthread_cond_wait(&host_thread.changed, &host_thread.lock);
        struct sg_task *task = host_thread.given;
        pthread_mutex_unlock(&host_thread.lock);
        sg_behave_late(sg_behaviour()->host_us);
        call_host(task);
        pthread_mutex_lock(&host_thread.lock);
        host_thread.given = NULL;
        pthread_cond_broadcast(&host_thread.changed);
    }
    return NULL;
}

static void run_host_call(struct sg_task *task)
{
    if (!sg_behaviour()->nvidia) {
        call_host(task);
        return;
    }
    pthread_mutex_lock(&host_thread.lock);
    if (!host_thread.runs)
        host_thread.runs = rg_thread_start("softgpu-host", run_given, NULL);
    while (host_thread.runs && host_thread.busy)
        pthread_cond_wait(&host_thread.changed, &host_thread.lock);
    const bool runs = host_thread.runs;
    host_thread.busy = runs;
    host_thread.given = runs ? task : NULL;
    pthread_cond_broadcast(&host_thread.changed);
    while (runs && host_thread.given == task)
        pthread_cond_wait(&host_thread.changed, &host_thread.lock);
    host_thread.busy = false;
    pthread_cond_broadcast(&host_thread.changed);
    pthread_mutex_unlock(&host_thread.lock);
    if (!runs)
        call_host(task);
}

static CUresult submit(CUstream handle, const struct host_call *call)
{
    SG_STREAM_OR_RETURN(stream, handle);
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
