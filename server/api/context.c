/*
 * context.c - client threads and their current contexts; the end of contexts, and of what this worker keeps in them.
 */
#include "common/cuda/coredump.h"
#include "generated/server/execute.h"
#include "server/api/link.h"
#include "server/core/leader_followers.h"
#include "server/core/out_of_order.h"
#include "server/prealloc/prealloc.h"
#include "server/timeline/completion.h"
#include "server/timeline/output.h"
#include "server/timeline/times.h"
#include "server/timeline/wait.h"
#include "server/transfer/deferred.h"
#include "server/transfer/staging.h"

#include <stdlib.h>
#include <string.h>

/* --- client threads --------------------------------------------------------------------------------------------------------- */

CUresult rg_execute_rgLaneSetContext(struct rg_request *request, unsigned long long context)
{
    if (context && rg_handle_kind(context) != RG_KIND_CONTEXT) {
        rg_request_violation(request, "%#llx is no context", context);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* By handle: that a context has ended is seen when it is used. */
    request->thread->context = context;
    return CUDA_SUCCESS;
}

void rg_client_thread_free(struct rg_client_thread *thread)
{
    while (thread->streams) {
        struct rg_thread_stream *stream = thread->streams;
        thread->streams = stream->next;
        free(stream);
    }
    free(thread);
}

CUresult rg_execute_rgLaneEnd(struct rg_request *request)
{
    struct rg_client_thread *thread = request->thread;
    for (struct rg_thread_stream *at = thread->streams; at; at = at->next) {
        rg_context_leave_stream(request, at->stream.context, at->stream.object);
        rg_staging_give_slots(request->worker, &at->stream);
        rg_context_remove_stream(request->worker, at->stream.context, NULL);
        rg_managed_remove_stream(request->worker, at->stream.object);
        (void)rg_driver.cuStreamDestroy_v2(at->stream.object); /* what is queued in it is still done */
    }
    request->worker->threads[thread->number] = NULL;
    rg_client_thread_free(thread);
    request->thread = NULL;
    return CUDA_SUCCESS;
}

/* --- the end of contexts ---------------------------------------------------------------------------------------------- */

void rg_context_release_contents(struct rg_worker *worker, struct rg_worker_context *context)
{
    /* Buffers may be in use until the context's work is done. */
    (void)rg_driver.cuCtxSynchronize();
    rg_times_drop_context(worker, context->handle);
    rg_managed_drop_context(worker, context->handle);
    rg_prealloc_drop_context(worker, context->handle);
    rg_completion_drop_context(worker, context->handle);
    rg_deferred_drop_context(worker, context);
    rg_link_drop_context(worker, context->handle);
    memset(context->few_streams, 0, sizeof context->few_streams);
    context->n_streams = 0;
    for (uint32_t i = 0; i < RG_CLIENT_THREADS_MAX; i++) {
        if (!worker->threads[i])
            continue;
        for (struct rg_thread_stream **link = &worker->threads[i]->streams; *link;) {
            struct rg_thread_stream *at = *link;
            if (at->stream.context != context->handle) {
                link = &at->next;
                continue;
            }
            *link = at->next;
            (void)rg_driver.cuStreamDestroy_v2(at->stream.object);
            free(at);
        }
    }
    rg_staging_drop(worker, context);
}

struct forget {
    struct rg_worker *worker;
    uint64_t context;
};

static void forget(struct rg_object *entry, void *user)
{
    const struct forget *which = user;
    if (entry->context != which->context)
        return;
    if (rg_handle_kind(entry->handle) == RG_KIND_LINK)
        rg_linker_release(entry->extra);
    else
        free(entry->extra);
    rg_objects_remove(&which->worker->objects, entry);
}

void rg_context_forget_objects(struct rg_worker *worker, uint64_t handle)
{
    struct forget which = {worker, handle};
    rg_objects_each(&worker->objects, forget, &which);
}

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
        rg_context_release_contents(request->worker, context);
    (void)rg_driver.cuCtxSetCurrent(NULL);
    rg_context_unknown();
}

static void ended(struct rg_request *request, const struct rg_worker_context *context)
{
    rg_context_forget_objects(request->worker, context->handle);
    atomic_fetch_add(&request->worker->context_epoch, 1);
}

CUresult rg_execute_cuCtxDestroy_v2(struct rg_request *request, CUcontext ctx)
{
    struct rg_worker_context *context = ctx ? state_of(request, ctx) : NULL;
    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    empty(request, context);
    CUresult result = rg_driver.cuCtxDestroy_v2(ctx);
    ended(request,
          context); /* even if it fails: for the client it has, and the worker's own is gone from it */
    rg_request_delete(request, RG_KIND_CONTEXT, context->handle);
    return result;
}

CUresult rg_execute_cuGreenCtxDestroy(struct rg_request *request, CUgreenCtx green)
{
    CUcontext object = NULL;
    if (!rg_driver.cuGreenCtxDestroy || !rg_driver.cuCtxFromGreenCtx)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_worker_context *context =
        rg_driver.cuCtxFromGreenCtx(&object, green) == CUDA_SUCCESS ? state_of(request, object) : NULL;
    if (context)
        empty(request, context);
    CUresult result = rg_driver.cuGreenCtxDestroy(green);
    if (context && result == CUDA_SUCCESS) {
        ended(request, context);
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

static struct rg_worker_context *primary_of(struct rg_worker *worker, CUdevice device)
{
    struct search search = {.device = device};
    rg_objects_each(&worker->objects, match_primary, &search);
    return search.found;
}

/* A context that was made ready by the hello has an owner now, or is not wanted as it is. */
static void not_ready(struct rg_worker *worker, CUdevice dev, bool release)
{
    const uint64_t bit = (unsigned)dev < 64 ? 1ull << (unsigned)dev : 0;
    if (!(worker->ready_contexts & bit))
        return;
    worker->ready_contexts &= ~bit;
    if (release)
        (void)rg_driver.cuDevicePrimaryCtxRelease_v2(dev);
}

/* Retains a primary context, for which `enter` keeps the handle. */
static CUresult retain_primary(struct rg_request *request, uint64_t handle, CUdevice dev,
                               void (*enter)(struct rg_request *request, enum rg_kind kind, uint64_t handle,
                                             void *object))
{
    CUcontext object = NULL;
    CUresult result = rg_driver.cuDevicePrimaryCtxRetain(&object, dev);
    if (result != CUDA_SUCCESS)
        return result;
    enter(request, RG_KIND_CONTEXT, handle, object);
    struct rg_worker_context *context = state_of(request, object);
    if (context) {
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

/* As rg_request_new, but of a context that has a handle there is no other: it would end behind the other's back. */
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
    if (!rg_driver.cuDevicePrimaryCtxSetFlags_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    not_ready(request->worker, dev, true); /* flags are for a context that is yet to be made */
    return rg_driver.cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult rg_execute_cuCtxCreate_v2(struct rg_request *request, uint64_t context, unsigned int flags,
                                   CUdevice dev)
{
    CUcontext made = NULL;
    if (!rg_driver.cuCtxCreate_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_driver.cuCtxCreate_v2(&made, flags, dev);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_CONTEXT, context, made);
    return result;
}

CUresult rg_execute_cuCtxSetFlags(struct rg_request *request, unsigned int flags)
{
    (void)request;
    if (!rg_driver.cuCtxSetFlags)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    return result == CUDA_SUCCESS ? rg_driver.cuCtxSetFlags(flags) : result;
}

CUresult rg_execute_cuDevicePrimaryCtxRelease_v2(struct rg_request *request, CUdevice dev)
{
    struct rg_worker_context *context = primary_of(request->worker, dev);
    if (!context || !context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    const bool last = context->retained == 1;
    if (last)
        empty(request, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxRelease_v2(dev);
    context->retained--; /* whatever comes of it, as with others: the client has given it up */
    if (last)
        ended(request, context);
    return result;
}

CUresult rg_execute_cuDevicePrimaryCtxReset_v2(struct rg_request *request, CUdevice dev)
{
    struct rg_worker_context *context = primary_of(request->worker, dev);
    if (context && context->retained)
        empty(request, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxReset_v2(dev);
    not_ready(request->worker, dev, false);
    if (context)
        ended(request, context);
    return result;
}

CUresult rg_execute_rgContextError(struct rg_request *request, CUcontext context, unsigned int *error)
{
    (void)request;
    CUresult result = rg_driver.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS && rg_driver.cuStreamQuery)
        result = rg_driver.cuStreamQuery(CU_STREAM_LEGACY);
    rg_context_unknown();
    *error = (unsigned)result;
    return CUDA_SUCCESS;
}

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

static struct rg_worker_context *context_of(struct rg_worker *worker, uint64_t handle)
{
    struct rg_object *entry = rg_objects_find(&worker->objects, handle);
    return entry ? entry->extra : NULL;
}

void rg_context_add_stream(struct rg_worker *worker, uint64_t handle, CUstream stream)
{
    struct rg_worker_context *context = context_of(worker, handle);
    if (!context)
        return;
    context->n_streams++;
    for (int i = 0; i < 4 && stream; i++)
        if (!context->few_streams[i]) {
            context->few_streams[i] = stream;
            return;
        }
}

void rg_context_remove_stream(struct rg_worker *worker, uint64_t handle, CUstream stream)
{
    struct rg_worker_context *context = context_of(worker, handle);
    if (!context)
        return;
    context->n_streams--;
    for (int i = 0; i < 4; i++)
        if (context->few_streams[i] == stream)
            context->few_streams[i] = NULL;
}

void rg_context_leave_stream(struct rg_request *request, uint64_t handle, CUstream stream)
{
    struct rg_worker_context *context = context_of(request->worker, handle);
    if (context && (!rg_driver.cuStreamQuery || rg_driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY))
        context->left_at = rg_executor_of(request)->seq;
}

/* Whether the context can be asked stream by stream. */
static bool has_few_streams(const struct rg_worker_context *context)
{
    unsigned n = 0;
    for (int i = 0; i < 4; i++)
        n += context->few_streams[i] != NULL;
    return n == context->n_streams && context->left_at <= atomic_load(&context->idle_at);
}

bool rg_context_idle(struct rg_worker *worker, const struct rg_worker_context *context)
{
    if (worker->last_work <= atomic_load(&context->idle_at))
        return true;
    if (!rg_driver.cuStreamQuery || !has_few_streams(context) ||
        rg_driver.cuStreamQuery(CU_STREAM_LEGACY) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < 4; i++)
        if (context->few_streams[i] && rg_driver.cuStreamQuery(context->few_streams[i]) != CUDA_SUCCESS)
            return false;
    return true;
}

/* Whether all work of the context ends within a moment. */
static bool done_soon(struct rg_worker *worker, const struct rg_worker_context *context)
{
    if (!has_few_streams(context) || !rg_stream_done_soon(worker, CU_STREAM_LEGACY))
        return false;
    for (int i = 0; i < 4; i++)
        if (context->few_streams[i] && !rg_stream_done_soon(worker, context->few_streams[i]))
            return false;
    return true;
}

static bool may_block(struct rg_request *request, const struct rg_worker_context *context)
{
    return !context || (request->worker->last_work > atomic_load(&context->idle_at) &&
                        !done_soon(request->worker, context));
}

CUresult rg_wait_legacy_stream(struct rg_request *request, CUstream stream)
{
    struct rg_worker_context *context = rg_request_context(request);
    if (!context)
        return request->result;
    /* it may have no work itself and yet be waited for until the streams that block it are done */
    if (may_block(request, context) && !rg_request_detach(request))
        return request->result;
    return rg_driver.cuStreamSynchronize(stream);
}

/* Waits for all work of the context current on this thread. */
static CUresult synchronize(struct rg_request *request, struct rg_worker_context *context)
{
    const uint64_t seq = rg_executor_of(request)->seq;
    if (may_block(request, context) && !rg_request_detach(request))
        return request->result;
    CUresult result = rg_driver.cuCtxSynchronize();
    if (result == CUDA_SUCCESS && context)
        atomic_store(&context->idle_at, seq);
    rg_output_drain(request->worker);
    return result;
}

CUresult rg_execute_cuCtxSynchronize(struct rg_request *request)
{
    struct rg_worker_context *context = request->thread->context ? rg_request_context(request) : NULL;
    if (request->result != CUDA_SUCCESS)
        return request->result;
    return synchronize(request, context);
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
    return result == CUDA_SUCCESS ? synchronize(request, context) : result;
}
