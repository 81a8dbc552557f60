/*
 * event.c - events: marks in streams that others can wait for and take times from.
 *
 * Recording puts a mark into the stream and makes the event refer to it, so waits queued before a later
 * record keep the mark they meant. An event that was never recorded is complete. Destroying an event does not
 * disturb its mark.
 */
#include <stdlib.h>

#include "common/cuda/graph/graph.h"
#include "softgpu/driver/schedule.h"
#include "softgpu/exec/exec.h"

struct sg_event {
    struct sg_object object;
    struct sg_context *context;    /* reference held */
    unsigned long long generation; /* the life of the context it belongs to */
    unsigned flags;
    pthread_mutex_t lock;
    struct sg_task *mark; /* of the last record; reference held */
};

static void finish_event(struct sg_object *object)
{
    struct sg_event *event = (struct sg_event *)object;
    sg_task_release(event->mark);
    sg_release(&event->context->object);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static CUresult event_get(CUevent handle, struct sg_event **out)
{
    SG_RETURN_IF(sg_enter());
    struct sg_event *event = sg_handle_get(handle, SG_KIND_EVENT);
    if (event == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&event->context->active) ||
        event->generation != atomic_load(&event->context->generation))
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        result = (CUresult)atomic_load(&event->context->sticky);
    if (result != CUDA_SUCCESS)
        sg_release(&event->object);
    else
        *out = event;
    return result;
}

/* The mark with a reference, or NULL if the event was never recorded. */
static struct sg_task *event_mark(struct sg_event *event)
{
    pthread_mutex_lock(&event->lock);
    struct sg_task *mark = event->mark;
    if (mark != NULL)
        sg_task_acquire(mark);
    pthread_mutex_unlock(&event->lock);
    return mark;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (out == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS)
        return (flags & CU_EVENT_DISABLE_TIMING) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    struct sg_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&event->lock, NULL);
    event->flags = flags;
    event->context = context;
    event->generation = atomic_load(&context->generation);
    sg_acquire(&context->object);
    sg_handle_add(&event->object, SG_KIND_EVENT, finish_event);
    *out = (CUevent)(void *)event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    SG_RETURN_IF(sg_enter());
    if (!sg_handle_remove(handle, SG_KIND_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    rg_capture_forget_event(handle);
    struct sg_event *event = (struct sg_event *)(void *)handle;
    CUresult result = (CUresult)atomic_load(&event->context->sticky);
    sg_release(&event->object);
    return result;
}

CUresult cuEventDestroy(CUevent handle)
{
    return cuEventDestroy_v2(handle);
}

static void set_mark(struct sg_event *event, struct sg_task *mark)
{
    pthread_mutex_lock(&event->lock);
    struct sg_task *before = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&event->lock);
    sg_task_release(before);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags)
{
    SG_REF(struct sg_event) event = NULL;
    SG_REF(struct sg_stream) stream = NULL;
    SG_RETURN_IF(sg_stream_get(stream_handle, &stream));
    SG_RETURN_IF(event_get(handle, &event));
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult captured;
    if (rg_capture_record(handle, stream_handle, flags, &captured))
        return captured;
    struct sg_task *mark = sg_task_new(0, NULL, NULL);
    if (mark == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_task_acquire(mark);
    sg_submit(stream, mark, NULL);
    set_mark(event, mark);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuCtxRecordEvent(CUcontext context_handle, CUevent handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_REF(struct sg_event) event = NULL;
    if (context_handle == NULL) {
        SG_RETURN_IF(sg_enter());
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    SG_RETURN_IF(sg_context_argument(context_handle, &context));
    SG_RETURN_IF(event_get(handle, &event));
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    /* A stream of its own: the mark must not hold up the default stream. */
    SG_REF(struct sg_stream) stream = sg_stream_new(context, CU_STREAM_NON_BLOCKING, 0, false);
    struct sg_task *mark = sg_task_new(0, NULL, NULL);
    if (stream == NULL || mark == NULL) {
        sg_task_release(mark);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_handle_remove(stream, SG_KIND_STREAM);
    sg_task_acquire(mark);
    sg_submit_behind_context(stream, mark, context);
    set_mark(event, mark);
    return CUDA_SUCCESS;
}

/* The caller waits in place of all work to come: that holds for streams that are yet to be made, too. */
CUresult cuCtxWaitEvent(CUcontext context_handle, CUevent handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_REF(struct sg_event) event = NULL;
    if (context_handle == NULL) {
        SG_RETURN_IF(sg_enter());
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    SG_RETURN_IF(sg_context_argument(context_handle, &context));
    SG_RETURN_IF(event_get(handle, &event));
    struct sg_task *mark = event_mark(event);
    if (mark != NULL) {
        sg_task_wait(mark);
        sg_task_release(mark);
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    SG_REF(struct sg_event) event = NULL;
    SG_REF(struct sg_stream) stream = NULL;
    SG_RETURN_IF(sg_stream_get(stream_handle, &stream));
    SG_RETURN_IF(event_get(handle, &event));
    if ((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult captured;
    if (rg_capture_wait(handle, stream_handle, flags, &captured))
        return captured;
    struct sg_task *mark = event_mark(event);
    if (mark == NULL)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    if (!sg_task_done(mark)) {
        struct sg_task *wait = sg_task_new(0, NULL, NULL);
        if (wait == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            sg_submit(stream, wait, mark);
    }
    sg_task_release(mark);
    return result;
}

CUresult cuEventQuery(CUevent handle)
{
    SG_REF(struct sg_event) event = NULL;
    SG_RETURN_IF(event_get(handle, &event));
    if (rg_capture_event(handle))
        return CUDA_ERROR_CAPTURED_EVENT;
    struct sg_task *mark = event_mark(event);
    if (mark == NULL)
        return CUDA_SUCCESS;
    bool done = sg_task_done(mark);
    sg_task_release(mark);
    CUresult sticky = (CUresult)atomic_load(&event->context->sticky);
    return sticky != CUDA_SUCCESS ? sticky : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
    SG_REF(struct sg_event) event = NULL;
    SG_RETURN_IF(event_get(handle, &event));
    if (rg_capture_event(handle))
        return CUDA_ERROR_CAPTURED_EVENT;
    struct sg_task *mark = event_mark(event);
    if (mark == NULL)
        return CUDA_SUCCESS;
    sg_task_wait(mark);
    sg_task_release(mark);
    sg_exec_flush_output();
    return (CUresult)atomic_load(&event->context->sticky);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    SG_REF(struct sg_event) start = NULL;
    SG_REF(struct sg_event) end = NULL;
    SG_RETURN_IF(event_get(start_handle, &start));
    SG_RETURN_IF(event_get(end_handle, &end));
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (start->context != end->context || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sg_task *from = event_mark(start), *to = event_mark(end);
    CUresult result = CUDA_ERROR_INVALID_HANDLE; /* not recorded */
    if (from != NULL && to != NULL) {
        uint64_t began = sg_task_done_at(from), ended = sg_task_done_at(to);
        result = began != 0 && ended != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        if (result == CUDA_SUCCESS)
            *milliseconds = (float)((double)(int64_t)(ended - began) / 1e6);
    }
    sg_task_release(from);
    sg_task_release(to);
    return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
