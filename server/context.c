/*
 * context.c - lanes and their current contexts; the end of contexts, and of what this worker keeps in them.
 */
#include "common/cuda/coredump.h"
#include "generated/server/serve.h"
#include "server/ahead.h"
#include "server/aside.h"
#include "server/late.h"
#include "server/link.h"
#include "server/output.h"
#include "server/roles.h"
#include "server/staging.h"
#include "server/times.h"
#include "server/wait.h"
#include "server/watch.h"

#include <stdlib.h>
#include <string.h>

/* --- lanes --------------------------------------------------------------------------------------------------------- */

CUresult rg_serve_rgLaneSetContext(struct rg_job *job, unsigned long long context)
{
    if (context && rg_handle_kind(context) != RG_KIND_CONTEXT) {
        rg_job_violation(job, "%#llx is no context", context);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* By handle: that a context has ended is seen when it is used. */
    job->lane->context = context;
    return CUDA_SUCCESS;
}

void rg_lane_free(struct rg_lane *lane)
{
    while (lane->streams) {
        struct rg_lane_stream *stream = lane->streams;
        lane->streams = stream->next;
        free(stream);
    }
    free(lane);
}

CUresult rg_serve_rgLaneEnd(struct rg_job *job)
{
    struct rg_lane *lane = job->lane;
    for (struct rg_lane_stream *at = lane->streams; at; at = at->next) {
        rg_context_leave_stream(job, at->stream.context, at->stream.object);
        rg_stream_give_slots(job->worker, &at->stream);
        rg_context_remove_stream(job->worker, at->stream.context, NULL);
        rg_unified_remove_stream(job->worker, at->stream.object);
        (void)rg_driver.cuStreamDestroy_v2(at->stream.object); /* what is queued in it is still done */
    }
    job->worker->lanes[lane->number] = NULL;
    rg_lane_free(lane);
    job->lane = NULL;
    return CUDA_SUCCESS;
}

/* --- the end of contexts ---------------------------------------------------------------------------------------------- */

void rg_context_release_contents(struct rg_worker *worker, struct rg_context *context)
{
    /* Buffers may be in use until the context's work is done. */
    (void)rg_driver.cuCtxSynchronize();
    rg_times_drop_context(worker, context->handle);
    rg_unified_drop_context(worker, context->handle);
    rg_ahead_drop_context(worker, context->handle);
    rg_watch_drop_context(worker, context->handle);
    rg_late_drop_context(worker, context);
    rg_link_drop_context(worker, context->handle);
    memset(context->few_streams, 0, sizeof context->few_streams);
    context->n_streams = 0;
    for (uint32_t i = 0; i < RG_CLIENT_THREADS_MAX; i++) {
        if (!worker->lanes[i])
            continue;
        for (struct rg_lane_stream **link = &worker->lanes[i]->streams; *link;) {
            struct rg_lane_stream *at = *link;
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
        rg_link_let_go(entry->extra);
    else
        free(entry->extra);
    rg_objects_remove(&which->worker->objects, entry);
}

void rg_context_forget_objects(struct rg_worker *worker, uint64_t handle)
{
    struct forget which = {worker, handle};
    rg_objects_each(&worker->objects, forget, &which);
}

static struct rg_context *state_of(struct rg_job *job, CUcontext object)
{
    struct rg_object *entry = rg_objects_find_object(&job->worker->objects, RG_KIND_CONTEXT, object);
    return entry ? entry->extra : NULL;
}

/* Makes a context that is about to end current here and takes out of it what is the worker's. */
static void empty(struct rg_job *job, struct rg_context *context)
{
    rg_aside_settle(job, NULL, context->handle);
    context->released = rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS;
    if (context->released)
        rg_context_release_contents(job->worker, context);
    (void)rg_driver.cuCtxSetCurrent(NULL);
    rg_current_context_unknown();
}

static void ended(struct rg_job *job, const struct rg_context *context)
{
    rg_context_forget_objects(job->worker, context->handle);
    atomic_fetch_add(&job->worker->context_epoch, 1);
}

CUresult rg_serve_cuCtxDestroy_v2(struct rg_job *job, CUcontext ctx)
{
    struct rg_context *context = ctx ? state_of(job, ctx) : NULL;
    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    empty(job, context);
    CUresult result = rg_driver.cuCtxDestroy_v2(ctx);
    ended(job, context); /* even if it fails: for the client it has, and the worker's own is gone from it */
    rg_job_delete(job, RG_KIND_CONTEXT, context->handle);
    return result;
}

CUresult rg_serve_cuGreenCtxDestroy(struct rg_job *job, CUgreenCtx green)
{
    CUcontext object = NULL;
    if (!rg_driver.cuGreenCtxDestroy || !rg_driver.cuCtxFromGreenCtx)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_context *context =
        rg_driver.cuCtxFromGreenCtx(&object, green) == CUDA_SUCCESS ? state_of(job, object) : NULL;
    if (context)
        empty(job, context);
    CUresult result = rg_driver.cuGreenCtxDestroy(green);
    if (context && result == CUDA_SUCCESS) {
        ended(job, context);
        rg_job_delete(job, RG_KIND_CONTEXT, context->handle);
    }
    return result;
}

struct search {
    CUdevice device;
    struct rg_context *found;
};

static void match_primary(struct rg_object *entry, void *user)
{
    struct search *search = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_CONTEXT)
        return;
    struct rg_context *context = entry->extra;
    if (context->primary && context->device == search->device)
        search->found = context;
}

static struct rg_context *primary_of(struct rg_worker *worker, CUdevice device)
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
static CUresult retain_primary(struct rg_job *job, uint64_t handle, CUdevice dev,
                               void (*enter)(struct rg_job *job, enum rg_kind kind, uint64_t handle,
                                             void *object))
{
    CUcontext object = NULL;
    CUresult result = rg_driver.cuDevicePrimaryCtxRetain(&object, dev);
    if (result != CUDA_SUCCESS)
        return result;
    enter(job, RG_KIND_CONTEXT, handle, object);
    struct rg_context *context = state_of(job, object);
    if (context) {
        context->device = dev;
        context->retained++;
    }
    not_ready(job->worker, dev, true);
    return job->result;
}

CUresult rg_serve_cuDevicePrimaryCtxRetain(struct rg_job *job, uint64_t pctx, CUdevice dev)
{
    return retain_primary(job, pctx, dev, rg_job_found);
}

/* As rg_job_new, but of a context that has a handle there is no other: it would end behind the other's back. */
static void enter_first(struct rg_job *job, enum rg_kind kind, uint64_t handle, void *object)
{
    if (state_of(job, object))
        rg_job_violation(job, "the device's primary context has a handle");
    else
        rg_job_new(job, kind, handle, object);
}

CUresult rg_serve_rgPrimaryTake(struct rg_job *job, uint64_t context, CUdevice dev)
{
    return retain_primary(job, context, dev, enter_first);
}

CUresult rg_serve_cuDevicePrimaryCtxSetFlags_v2(struct rg_job *job, CUdevice dev, unsigned int flags)
{
    if (!rg_driver.cuDevicePrimaryCtxSetFlags_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    not_ready(job->worker, dev, true); /* flags are for a context that is yet to be made */
    return rg_driver.cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult rg_serve_cuCtxCreate_v2(struct rg_job *job, uint64_t context, unsigned int flags, CUdevice dev)
{
    CUcontext made = NULL;
    if (!rg_driver.cuCtxCreate_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_driver.cuCtxCreate_v2(&made, flags, dev);
    if (result == CUDA_SUCCESS)
        rg_job_new(job, RG_KIND_CONTEXT, context, made);
    return result;
}

CUresult rg_serve_cuCtxSetFlags(struct rg_job *job, unsigned int flags)
{
    (void)job;
    if (!rg_driver.cuCtxSetFlags)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_coredump_context_flags(flags);
    return result == CUDA_SUCCESS ? rg_driver.cuCtxSetFlags(flags) : result;
}

CUresult rg_serve_cuDevicePrimaryCtxRelease_v2(struct rg_job *job, CUdevice dev)
{
    struct rg_context *context = primary_of(job->worker, dev);
    if (!context || !context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    const bool last = context->retained == 1;
    if (last)
        empty(job, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxRelease_v2(dev);
    context->retained--; /* whatever comes of it, as with others: the client has given it up */
    if (last)
        ended(job, context);
    return result;
}

CUresult rg_serve_cuDevicePrimaryCtxReset_v2(struct rg_job *job, CUdevice dev)
{
    struct rg_context *context = primary_of(job->worker, dev);
    if (context && context->retained)
        empty(job, context);
    CUresult result = rg_driver.cuDevicePrimaryCtxReset_v2(dev);
    not_ready(job->worker, dev, false);
    if (context)
        ended(job, context);
    return result;
}

CUresult rg_serve_rgContextError(struct rg_job *job, CUcontext context, unsigned int *error)
{
    (void)job;
    CUresult result = rg_driver.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS && rg_driver.cuStreamQuery)
        result = rg_driver.cuStreamQuery(CU_STREAM_LEGACY);
    rg_current_context_unknown();
    *error = (unsigned)result;
    return CUDA_SUCCESS;
}

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

static struct rg_context *context_of(struct rg_worker *worker, uint64_t handle)
{
    struct rg_object *entry = rg_objects_find(&worker->objects, handle);
    return entry ? entry->extra : NULL;
}

void rg_context_add_stream(struct rg_worker *worker, uint64_t handle, CUstream stream)
{
    struct rg_context *context = context_of(worker, handle);
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
    struct rg_context *context = context_of(worker, handle);
    if (!context)
        return;
    context->n_streams--;
    for (int i = 0; i < 4; i++)
        if (context->few_streams[i] == stream)
            context->few_streams[i] = NULL;
}

void rg_context_leave_stream(struct rg_job *job, uint64_t handle, CUstream stream)
{
    struct rg_context *context = context_of(job->worker, handle);
    if (context && (!rg_driver.cuStreamQuery || rg_driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY))
        context->left_at = rg_thread_of(job)->seq;
}

/* Whether the context can be asked stream by stream. */
static bool has_few_streams(const struct rg_context *context)
{
    unsigned n = 0;
    for (int i = 0; i < 4; i++)
        n += context->few_streams[i] != NULL;
    return n == context->n_streams && context->left_at <= atomic_load(&context->idle_at);
}

bool rg_context_idle(struct rg_worker *worker, const struct rg_context *context)
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
static bool done_soon(struct rg_worker *worker, const struct rg_context *context)
{
    if (!has_few_streams(context) || !rg_stream_done_soon(worker, CU_STREAM_LEGACY))
        return false;
    for (int i = 0; i < 4; i++)
        if (context->few_streams[i] && !rg_stream_done_soon(worker, context->few_streams[i]))
            return false;
    return true;
}

static bool may_block(struct rg_job *job, const struct rg_context *context)
{
    return !context ||
           (job->worker->last_work > atomic_load(&context->idle_at) && !done_soon(job->worker, context));
}

CUresult rg_wait_legacy_stream(struct rg_job *job, CUstream stream)
{
    struct rg_context *context = rg_job_context(job);
    if (!context)
        return job->result;
    /* it may have no work itself and yet be waited for until the streams that block it are done */
    if (may_block(job, context) && !rg_job_hand_over(job))
        return job->result;
    return rg_driver.cuStreamSynchronize(stream);
}

/* Waits for all work of the context current on this thread. */
static CUresult synchronize(struct rg_job *job, struct rg_context *context)
{
    const uint64_t seq = rg_thread_of(job)->seq;
    if (may_block(job, context) && !rg_job_hand_over(job))
        return job->result;
    CUresult result = rg_driver.cuCtxSynchronize();
    if (result == CUDA_SUCCESS && context)
        atomic_store(&context->idle_at, seq);
    rg_output_drain(job->worker);
    return result;
}

CUresult rg_serve_cuCtxSynchronize(struct rg_job *job)
{
    struct rg_context *context = job->lane->context ? rg_job_context(job) : NULL;
    if (job->result != CUDA_SUCCESS)
        return job->result;
    return synchronize(job, context);
}

CUresult rg_serve_cuCtxSynchronize_v2(struct rg_job *job, CUcontext ctx)
{
    if (!ctx)
        return rg_job_make_current(job) == CUDA_SUCCESS ? rg_serve_cuCtxSynchronize(job)
                                                        : CUDA_ERROR_INVALID_CONTEXT;
    struct rg_context *context = state_of(job, ctx);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = rg_driver.cuCtxSetCurrent(ctx);
    rg_current_context_unknown();
    return result == CUDA_SUCCESS ? synchronize(job, context) : result;
}
