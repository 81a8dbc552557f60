/*
 * watch.c - the operations by which clients ask whether events and streams are done, and have themselves told later
 * (completion.h). A stream is watched by an event behind all that is in it.
 *
 * Happy path: the driver says that it is not done, and it is added to what is watched. What cannot be watched is said to
 * be so by a notice, and the client asks. Executor threads.
 */
#include "generated/server/execute.h"
#include "server/core/leader_followers.h"
#include "server/timeline/event_times.h"
#include "server/timeline/subscription.h"

/* The event's context has its rg_context_passed, or there is none; the record has named the event. */
static CUevent passed_of(struct rg_request *request)
{
    struct rg_objects *objects = &request->worker->objects;
    const struct rg_object *event = rg_objects_find(objects, rg_executor_of(request)->named_event);
    struct rg_worker_context *context = event ? rg_context_find(request->worker, event->context) : NULL;
    return context ? rg_context_passed(context) : NULL;
}

static void watch_event(struct rg_request *request, CUevent event, uint64_t id, uint64_t since,
                        unsigned version)
{
    const struct rg_subscription wanted = {.id = id, .event = event, .passed = passed_of(request)};
    if (!rg_completion_add(request->worker, &wanted, since, version))
        rg_completion_refuse(request->worker, id);
}

CUresult rg_execute_rgEventWatch(struct rg_request *request, CUevent event, unsigned long long subscription)
{
    watch_event(request, event, subscription, 0, 0);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgEventWatchTimed(struct rg_request *request, CUevent event,
                                      unsigned long long subscription, unsigned long long since,
                                      unsigned int version)
{
    watch_event(request, event, subscription, since, version);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgEventAsk(struct rg_request *request, CUevent event, unsigned long long subscription)
{
    CUresult result = rg_driver.cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY && subscription)
        watch_event(request, event, subscription, 0, 0);
    /* the client waits for it no more, and output comes out by that; nobody records it meanwhile */
    return result == CUDA_SUCCESS ? rg_driver.cuEventSynchronize(event) : result;
}

/* Watches all that is in the stream, by an event behind it. `context`: the stream's. */
static bool add_stream(struct rg_request *request, CUstream stream, uint64_t context, uint64_t id)
{
    struct rg_object *entry = rg_objects_find(&request->worker->objects, context);
    CUevent event = NULL;
    if (!entry)
        return false;
    bool good = rg_driver.cuCtxSetCurrent(entry->object) == CUDA_SUCCESS;
    rg_context_unknown();
    good = good && rg_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    if (good && rg_driver.cuEventRecord(event, stream) == CUDA_SUCCESS &&
        rg_completion_add(request->worker,
                          &(struct rg_subscription){.id = id, .event = event, .context = context}, 0, 0))
        return true;
    if (event)
        (void)rg_driver.cuEventDestroy_v2(event);
    return false;
}

static CUresult ask(struct rg_request *request, CUstream stream, uint64_t context, uint64_t id)
{
    CUresult result = rg_driver.cuStreamQuery(stream);
    if (result == CUDA_ERROR_NOT_READY && id && !add_stream(request, stream, context, id))
        rg_completion_refuse(request->worker, id);
    return result;
}

CUresult rg_execute_rgStreamWatch(struct rg_request *request, CUstream stream,
                                  unsigned long long subscription)
{
    const uint64_t handle = (uint64_t)stream;
    const struct rg_object *entry =
        rg_handle_kind(handle) == RG_KIND_STREAM ? rg_objects_find(&request->worker->objects, handle) : NULL;
    const struct rg_worker_stream *state = entry ? entry->extra : NULL;
    if (!state || !subscription || !add_stream(request, state->object, state->context, subscription))
        rg_completion_refuse(request->worker, subscription);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgDefaultStreamWatch(struct rg_request *request, CUstream stream,
                                         unsigned long long subscription)
{
    if (!subscription || !add_stream(request, stream, request->thread->context, subscription))
        rg_completion_refuse(request->worker, subscription);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgStreamAsk(struct rg_request *request, CUstream stream, unsigned long long subscription)
{
    const struct rg_worker_stream *state = rg_executor_of(request)->stream;
    if (!state)
        return CUDA_ERROR_INVALID_HANDLE; /* the default streams have an operation of their own */
    return ask(request, stream, state->context, subscription);
}

CUresult rg_execute_rgDefaultStreamAsk(struct rg_request *request, CUstream stream,
                                       unsigned long long subscription)
{
    return ask(request, stream, request->thread->context, subscription);
}

CUresult rg_execute_cuEventDestroy_v2(struct rg_request *request, CUevent event)
{
    rg_completion_forget(request->worker, event);
    rg_event_times_forget(request->worker, event);
    return rg_driver.cuEventDestroy_v2(event);
}
