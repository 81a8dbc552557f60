/*
 * event.c - events: marks in streams that others can wait for and take times from.
 *
 * Recording puts a mark into the stream and makes the event refer to it, so waits queued before a later
 * record keep the mark they meant. An event that was never recorded is complete. Destroying an event does not
 * disturb its mark. An interprocess event has no mark but a page (shared_event.h).
 */
#include <stdlib.h>
#include <unistd.h>

#include "common/cuda/errors.h"
#include "common/cuda/graph/graph.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/context/green.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/driver/stream/shared_event.h"
#include "softgpu/exec/exec.h"

struct sg_event {
    struct sg_object object;
    unsigned flags;
    pthread_mutex_t lock;
    struct sg_task *mark;           /* of the last record; reference held */
    struct sg_shared_event *shared; /* interprocess; else NULL */
};

static void finish_event(struct sg_object *object)
{
    struct sg_event *event = (struct sg_event *)object;
    sg_task_release(event->mark);
    sg_shared_event_release(event->shared);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static CUresult event_get(CUevent handle, struct sg_event **out)
{
    RG_TRY(sg_enter());
    struct sg_event *event;
    RG_TRY(sg_handle_get_living(handle, SG_KIND_EVENT, (void **)&event));
    const CUresult result = (CUresult)atomic_load(&event->object.context->owner->sticky);
    if (result != CUDA_SUCCESS)
        sg_release(&event->object);
    else
        *out = event;
    return result;
}

#define EVENT_OR_RETURN(var, handle)                                                                         \
    SG_REF(struct sg_event) var = NULL;                                                                      \
    RG_TRY(event_get(handle, &var))

/* The mark with a reference, or NULL if the event was never recorded. */
static struct sg_task *event_mark(struct sg_event *event)
{
    RG_SCOPED_LOCK(&event->lock);
    struct sg_task *mark = event->mark;
    if (mark != NULL)
        sg_task_acquire(mark);
    return mark;
}

static struct sg_event *event_new(struct sg_context *context, unsigned flags, struct sg_shared_event *shared)
{
    struct sg_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return NULL;
    pthread_mutex_init(&event->lock, NULL);
    event->flags = flags;
    event->shared = shared;
    sg_handle_add(&event->object, SG_KIND_EVENT, context, finish_event);
    return event;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    SG_CONTEXT_OR_RETURN(context);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (out == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_shared_event *shared = NULL;
    if (flags & CU_EVENT_INTERPROCESS) {
        if (!(flags & CU_EVENT_DISABLE_TIMING))
            return CUDA_ERROR_INVALID_VALUE;
        struct sg_shared_file about = {.kind = SG_SHARED_EVENT, .device = context->device, .size = 4096};
        int file = sg_shared_file_new(&about);
        shared = file < 0 ? NULL : sg_shared_event_new(file, true, &about);
        if (shared == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sg_event *event = event_new(context, flags, shared);
    if (event == NULL) {
        sg_shared_event_release(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUevent)(void *)event;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle)
{
    SG_IMPLY_CONTEXT(SG_KIND_EVENT, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    EVENT_OR_RETURN(event, handle);
    if (event->shared == NULL || event->shared->file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    sg_shared_handle_make(out, &event->shared->about, event->shared->file, 0, event->shared->about.size);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    struct sg_shared_handle meant;
    struct sg_shared_file about;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || !sg_shared_handle_read(&handle, SG_SHARED_EVENT, &meant))
        return CUDA_ERROR_INVALID_VALUE;
    if (meant.process == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    int file = sg_shared_handle_open(&meant, &about);
    if (file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sg_shared_event *shared = sg_shared_event_new(file, false, &about);
    struct sg_event *event =
        shared == NULL ? NULL : event_new(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, shared);
    if (event == NULL) {
        sg_shared_event_release(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUevent)(void *)event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    RG_TRY(sg_enter());
    if (!sg_handle_remove(handle, SG_KIND_EVENT))
        return rg_cuda_no_object(handle);
    rg_capture_forget_event(handle);
    struct sg_event *event = (struct sg_event *)(void *)handle;
    CUresult result = (CUresult)atomic_load(&event->object.context->owner->sticky);
    sg_release(&event->object);
    return result;
}

/* A task behind which the event is recorded when it is submitted; NULL: no memory. */
static struct sg_task *new_record(struct sg_event *event)
{
    if (event->shared != NULL)
        return sg_shared_event_record(event->shared);
    struct sg_task *mark = sg_task_new(0, NULL, NULL);
    if (mark == NULL)
        return NULL;
    sg_task_acquire(mark);
    pthread_mutex_lock(&event->lock);
    struct sg_task *before = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&event->lock);
    sg_task_release(before);
    return mark;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags)
{
    SG_STREAM_OR_RETURN(stream, stream_handle);
    EVENT_OR_RETURN(event, handle);
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->object.context != stream->object.context->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult captured;
    if (rg_capture_record(handle, stream_handle, flags, &captured))
        return captured;
    return sg_stream_submit(stream, new_record(event));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* A context and an event that are both named, with references. */
static CUresult named(CUcontext context_handle, CUevent handle, struct sg_context **context,
                      struct sg_event **event)
{
    RG_TRY(sg_enter());
    if (context_handle == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    RG_TRY(sg_context_argument(context_handle, context));
    return event_get(handle, event);
}

/* Behind all that the context has to do. */
static CUresult record_behind(struct sg_context *context, struct sg_event *event)
{
    if (event->object.context != context->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    /* A stream of its own: the mark must not hold up the default stream. */
    SG_REF(struct sg_stream) stream = sg_stream_new(context, CU_STREAM_NON_BLOCKING, 0, false);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_handle_remove(stream, SG_KIND_STREAM);
    struct sg_task *record = new_record(event);
    if (record == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_submit_behind_context(stream, record, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext context_handle, CUevent handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_REF(struct sg_event) event = NULL;
    RG_TRY(named(context_handle, handle, &context, &event));
    return record_behind(context, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green_handle, CUevent handle)
{
    SG_GREEN_OR_RETURN(green, green_handle);
    EVENT_OR_RETURN(event, handle);
    return record_behind(green->context, event);
}

/* Waits for what the event was last recorded behind; false: it never was. */
static bool wait_for_event(struct sg_event *event, struct sg_context *context)
{
    if (event->shared != NULL) {
        sg_shared_event_wait(event->shared, sg_shared_event_last(event->shared), context);
        return true;
    }
    struct sg_task *mark = event_mark(event);
    if (mark == NULL)
        return false;
    sg_task_wait(mark);
    sg_task_release(mark);
    return true;
}

/* The caller waits in place of all work to come: that holds for streams that are yet to be made, too. */
CUresult cuCtxWaitEvent(CUcontext context_handle, CUevent handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_REF(struct sg_event) event = NULL;
    RG_TRY(named(context_handle, handle, &context, &event));
    wait_for_event(event, context);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green_handle, CUevent handle)
{
    SG_GREEN_OR_RETURN(green, green_handle);
    EVENT_OR_RETURN(event, handle);
    wait_for_event(event, green->context);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    SG_STREAM_OR_RETURN(stream, stream_handle);
    EVENT_OR_RETURN(event, handle);
    if ((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult captured;
    if (rg_capture_wait(handle, stream_handle, flags, &captured))
        return captured;
    if (event->shared != NULL) {
        const uint64_t number = sg_shared_event_last(event->shared);
        if (sg_shared_event_done(event->shared, number))
            return CUDA_SUCCESS;
        return sg_stream_submit(stream, sg_shared_event_await(event->shared, number));
    }
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
    EVENT_OR_RETURN(event, handle);
    CUresult captured;
    if (rg_capture_queried(handle, &captured))
        return captured;
    if (event->shared != NULL)
        return sg_shared_event_done(event->shared, sg_shared_event_last(event->shared))
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_NOT_READY;
    struct sg_task *mark = event_mark(event);
    if (mark == NULL)
        return CUDA_SUCCESS;
    bool done = sg_task_done(mark);
    sg_task_release(mark);
    CUresult sticky = (CUresult)atomic_load(&event->object.context->owner->sticky);
    return sticky != CUDA_SUCCESS ? sticky : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
    EVENT_OR_RETURN(event, handle);
    if (rg_capture_event(handle))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!wait_for_event(event, event->object.context))
        return CUDA_SUCCESS;
    sg_pools_waited();
    sg_exec_flush_output();
    return (CUresult)atomic_load(&event->object.context->owner->sticky);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    EVENT_OR_RETURN(start, start_handle);
    EVENT_OR_RETURN(end, end_handle);
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (start->object.context != end->object.context ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sg_task *from = event_mark(start), *to = event_mark(end);
    CUresult result = CUDA_ERROR_INVALID_HANDLE; /* not recorded */
    if (from != NULL && to != NULL) {
        uint64_t began = sg_task_done_at(from), ended = sg_task_done_at(to);
        const uint64_t step = sg_behaviour()->resolution_ns;
        if (step != 0 && began != 0 && ended != 0) {
            began -= began % step;
            ended -= ended % step;
        }
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
