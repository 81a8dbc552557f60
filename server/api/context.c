/*
 * context.c - client threads and their current contexts; making contexts and ending them.
 *
 * A primary context may have been made by the hello, because the client is about to retain it: it is retained
 * once for nobody yet, until a record retains it or wants it otherwise.
 */
#include "server/api/context.h"

#include "common/cuda/coredump.h"
#include "generated/server/execute.h"
#include "server/modules.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"

/* The dispatcher's. */
struct primary_state {
    uint64_t ready; /* devices, a bit each */
};

const struct rg_server_module rg_primary_module = {.size = sizeof(struct primary_state)};

void rg_primary_set_ready(struct rg_worker *worker, uint64_t devices)
{
    struct primary_state *primary = worker->state[RG_MODULE_PRIMARY];
    primary->ready = devices;
}

/* --- client threads ------------------------------------------------------------------------------------- */

CUresult rg_execute_rgThreadSetContext(struct rg_request *request, unsigned long long context)
{
    if (context && rg_handle_kind(context) != RG_KIND_CONTEXT) {
        rg_request_violation(request, "%#llx is no context", context);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* By handle: that a context has ended is seen when it is used. */
    request->thread->context = context;
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgThreadEnd(struct rg_request *request)
{
    struct rg_client_thread *thread = request->thread;
    for (struct rg_worker_stream *stream = thread->streams; stream; stream = stream->next_of_thread) {
        rg_stream_drop(request, stream);
        (void)rg_driver.cuStreamDestroy_v2(stream->object); /* what is queued in it is still done */
    }
    request->worker->threads[thread->number] = NULL;
    rg_client_thread_free(thread);
    request->thread = NULL;
    return CUDA_SUCCESS;
}

/* --- the end of contexts -------------------------------------------------------------------------------- */

static struct rg_worker_context *state_of(struct rg_request *request, CUcontext object)
{
    struct rg_object *entry = rg_objects_find_object(&request->worker->objects, RG_KIND_CONTEXT, object);
    return entry ? entry->extra : NULL;
}

/* Makes a context that is about to end current here and takes out of it what is the worker's. */
static void empty(struct rg_request *request, struct rg_worker_context *context)
{
    rg_out_of_order_settle(request, NULL, context->handle);
    context->released = rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS;
    if (context->released)
        rg_context_release(request->worker, context);
    (void)rg_driver.cuCtxSetCurrent(NULL);
    rg_context_unknown();
}

CUresult rg_execute_cuCtxDestroy_v2(struct rg_request *request, CUcontext ctx)
{
    struct rg_worker_context *context = ctx ? state_of(request, ctx) : NULL;
    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    empty(request, context);
    CUresult result = rg_driver.cuCtxDestroy_v2(ctx);
    rg_output_drain(request->worker); /* what its kernels have printed is there when the call returns */
    /* even if it fails: for the client it has, and the worker's own is gone from it */
    rg_context_forget(request->worker, context);
    rg_request_delete(request, RG_KIND_CONTEXT, context->handle);
    return result;
}

CUresult rg_execute_cuGreenCtxDestroy(struct rg_request *request, CUgreenCtx green)
{
    CUcontext object = NULL;
    struct rg_worker_context *context =
        rg_driver.cuCtxFromGreenCtx(&object, green) == CUDA_SUCCESS ? state_of(request, object) : NULL;
    if (context)
        empty(request, context);
    CUresult result = rg_driver.cuGreenCtxDestroy(green);
    if (context && result == CUDA_SUCCESS) {
        rg_context_forget(request->worker, context);
        if (context->owner)
            rg_context_owner(request->worker, context)->greens--;
        rg_request_delete(request, RG_KIND_CONTEXT, context->handle);
    }
    return result;
}

struct search {
    CUdevice device;
    struct rg_worker_context *found;
};

static void match_primary(struct rg_object *entry, void *user)
{
    struct search *search = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_CONTEXT)
        return;
    struct rg_worker_context *context = entry->extra;
    if (context->primary && context->device == search->device)
        search->found = context;
}

struct rg_worker_context *rg_primary_of(struct rg_worker *worker, CUdevice device)
{
    struct search search = {.device = device};
    rg_objects_each(&worker->objects, match_primary, &search);
    return search.found;
}

/* A context that was made ready by the hello has an owner now, or is not wanted as it is. */
static void not_ready(struct rg_worker *worker, CUdevice dev, bool release)
{
    const uint64_t bit = (unsigned)dev < 64 ? 1ull << (unsigned)dev : 0;
    struct primary_state *primary = worker->state[RG_MODULE_PRIMARY];
    if (!(primary->ready & bit))
        return;
    primary->ready &= ~bit;
    if (release)
        (void)rg_driver.cuDevicePrimaryCtxRelease_v2(dev);
}

/* Retains a primary context, for which `enter` keeps the handle. */
static CUresult retain_primary(struct rg_request *request, uint64_t handle, CUdevice dev,
                               void (*enter)(struct rg_request *request, enum rg_kind kind, uint64_t handle,
                                             void *object))
{
    CUcontext object = NULL;
    RG_TRY(rg_driver.cuDevicePrimaryCtxRetain(&object, dev));
    enter(request, RG_KIND_CONTEXT, handle, object);
    struct rg_worker_context *context = state_of(request, object);
    if (context) {
        context->primary = true;
        context->device = dev;
        context->retained++;
    }
    not_ready(request->worker, dev, true);
    return request->result;
}

CUresult rg_execute_cuDevicePrimaryCtxRetain(struct rg_request *request, uint64_t pctx, CUdevice dev)
{
    return retain_primary(request, pctx, dev, rg_request_found);
}

/* As rg_request_new, but a context that has a handle gets no other: it would end behind its back. */
static void enter_first(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object)
{
    if (state_of(request, object))
        rg_request_violation(request, "the device's primary context has a handle");
    else
        rg_request_new(request, kind, handle, object);
}

CUresult rg_execute_rgPrimaryTake(struct rg_request *request, uint64_t context, CUdevice dev)
{
    return retain_primary(request, context, dev, enter_first);
}

CUresult rg_execute_cuDevicePrimaryCtxSetFlags_v2(struct rg_request *request, CUdevice dev,
                                                  unsigned int flags)
{
    RG_TRY(rg_coredump_context_flags(flags));
    not_ready(request->worker, dev, true); /* flags are for a context that is yet to be made */
    return rg_driver.cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult rg_execute_cuCtxCreate_v2(struct rg_request *request, uint64_t context, unsigned int flags,
                                   CUdevice dev)
{
    CUcontext made = NULL, popped;
    RG_TRY(rg_coredump_context_flags(flags));
    RG_TRY(rg_driver.cuCtxCreate_v2(&made, flags, dev));
    (void)rg_driver.cuCtxPopCurrent_v2(&popped); /* which one is current is the client threads' business */
    rg_context_unknown();
    rg_request_new(request, RG_KIND_CONTEXT, context, made);
    struct rg_worker_context *state = state_of(request, made);
    if (state)
        state->device = dev;
    return request->result;
}

CUresult rg_execute_cuCtxSetFlags(struct rg_request *request, unsigned int flags)
{
    (void)request;
    CUresult result = rg_coredump_context_flags(flags);
    return result == CUDA_SUCCESS ? rg_driver.cuCtxSetFlags(flags) : result;
}

CUresult rg_execute_cuDevicePrimaryCtxRelease_v2(struct rg_request *request, CUdevice dev)
{
    struct rg_worker_context *context = rg_primary_of(request->worker, dev);
    if (!context || !context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    const bool last = context->retained == 1;
    if (last)
        empty(request, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxRelease_v2(dev);
    context->retained--; /* whatever comes of it, as with others: the client has given it up */
    if (last)
        rg_context_forget(request->worker, context);
    return result;
}

CUresult rg_execute_cuDevicePrimaryCtxReset_v2(struct rg_request *request, CUdevice dev)
{
    struct rg_worker_context *context = rg_primary_of(request->worker, dev);
    if (context && context->retained)
        empty(request, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxReset_v2(dev);
    rg_output_drain(request->worker); /* as above */
    not_ready(request->worker, dev, false);
    if (context)
        rg_context_forget(request->worker, context);
    return result;
}

CUresult rg_execute_rgContextError(struct rg_request *request, CUcontext context, unsigned int *error)
{
    (void)request;
    CUresult result = rg_driver.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuStreamQuery(CU_STREAM_LEGACY);
    rg_context_unknown();
    *error = (unsigned)result;
    return CUDA_SUCCESS;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

CUresult rg_execute_cuCtxSynchronize(struct rg_request *request)
{
    struct rg_worker_context *context = request->thread->context ? rg_request_context(request) : NULL;
    if (request->result != CUDA_SUCCESS)
        return request->result;
    return rg_wait_context(request, context);
}

CUresult rg_execute_cuCtxSynchronize_v2(struct rg_request *request, CUcontext ctx)
{
    if (!ctx)
        return rg_request_make_current(request) == CUDA_SUCCESS ? rg_execute_cuCtxSynchronize(request)
                                                                : CUDA_ERROR_INVALID_CONTEXT;
    struct rg_worker_context *context = state_of(request, ctx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = rg_driver.cuCtxSetCurrent(ctx);
    rg_context_unknown();
    return result == CUDA_SUCCESS ? rg_wait_context(request, context) : result;
}
