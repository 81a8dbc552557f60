/*
 * resource.c - device resources and green contexts. A resource is a structure with the driver's own data in
 * it, which the driver believes; so the worker keeps all that it has given out, and takes back no other.
 */
#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/api/context.h"
#include "server/core/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdevResource *given;
static size_t n_given;

static bool was_given(const CUdevResource *resource)
{
    RG_SCOPED_LOCK(&lock);
    for (size_t i = 0; i < n_given; i++)
        if (memcmp(&given[i], resource, sizeof *resource) == 0)
            return true;
    return false;
}

/* Keeps what goes to the client. */
static CUresult keep(const CUdevResource *resource)
{
    if (was_given(resource))
        return CUDA_SUCCESS;
    RG_SCOPED_LOCK(&lock);
    CUdevResource *more = n_given < RG_RESOURCES_MAX ? realloc(given, (n_given + 1) * sizeof *more) : NULL;
    if (!more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    given = more;
    given[n_given++] = *resource;
    return CUDA_SUCCESS;
}

CUresult rg_translate_CUdevResource(struct rg_request *request, CUdevResource *resources, size_t n)
{
    (void)request;
    for (size_t i = 0; i < n; i++)
        if (!was_given(&resources[i]))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuDeviceGetDevResource(struct rg_request *request, CUdevice device,
                                           CUdevResource *resource, CUdevResourceType type)
{
    (void)request;
    RG_TRY(rg_driver.cuDeviceGetDevResource(device, resource, type));
    return keep(resource);
}

CUresult rg_execute_cuCtxGetDevResource(struct rg_request *request, CUcontext context,
                                        CUdevResource *resource, CUdevResourceType type)
{
    (void)request;
    RG_TRY(rg_driver.cuCtxGetDevResource(context, resource, type));
    return keep(resource);
}

CUresult rg_execute_cuGreenCtxGetDevResource(struct rg_request *request, CUgreenCtx green,
                                             CUdevResource *resource, CUdevResourceType type)
{
    (void)request;
    RG_TRY(rg_driver.cuGreenCtxGetDevResource(green, resource, type));
    return keep(resource);
}

CUresult rg_execute_rgSmResourceSplit(struct rg_request *request, const CUdevResource *input,
                                      unsigned int capacity, unsigned int flags, unsigned int minimum,
                                      unsigned int *groups, CUdevResource *result, CUdevResource *remaining)
{
    (void)request;
    *groups = capacity;
    CUresult status = rg_driver.cuDevSmResourceSplitByCount(capacity ? result : NULL, groups, input,
                                                            remaining, flags, minimum);
    for (unsigned i = 0; i < capacity && i < *groups && status == CUDA_SUCCESS; i++)
        status = keep(&result[i]);
    return status == CUDA_SUCCESS ? keep(remaining) : status;
}

CUresult rg_execute_cuDevResourceGenerateDesc(struct rg_request *request, uint64_t handle,
                                              CUdevResource *resources, unsigned int count)
{
    CUdevResourceDesc made = NULL;
    CUresult result = rg_driver.cuDevResourceGenerateDesc(&made, resources, count);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_RESOURCES, handle, made);
    return result;
}

CUresult rg_execute_cuGreenCtxCreate(struct rg_request *request, uint64_t handle, CUdevResourceDesc desc,
                                     CUdevice device, unsigned int flags)
{
    CUgreenCtx made = NULL;
    CUresult result = rg_driver.cuGreenCtxCreate(&made, desc, device, flags);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_GREEN, handle, made);
    return result;
}

CUresult rg_execute_rgGreenContext(struct rg_request *request, CUgreenCtx green, uint64_t context)
{
    CUcontext object = NULL;
    RG_TRY(rg_driver.cuCtxFromGreenCtx(&object, green));
    rg_request_found(request, RG_KIND_CONTEXT, context, object);
    const struct rg_object *entry =
        rg_objects_find_object(&request->worker->objects, RG_KIND_CONTEXT, object);
    struct rg_worker_context *state = entry ? entry->extra : NULL;
    if (state && rg_driver.cuCtxSetCurrent(object) == CUDA_SUCCESS)
        (void)rg_driver.cuCtxGetDevice(&state->device);
    struct rg_worker_context *primary =
        state && !state->owner ? rg_primary_of(request->worker, state->device) : NULL;
    if (primary) { /* what is made in it goes with that */
        state->owner = primary->handle;
        primary->greens++;
    }
    rg_context_unknown();
    return request->result;
}

CUresult rg_execute_rgGreenStreamCreate(struct rg_request *request, uint64_t stream, CUgreenCtx green,
                                        unsigned int flags, int priority)
{
    CUstream made = NULL;
    CUcontext object = NULL;
    /* It goes with the client thread's context: then that must be the one with which it ends. */
    if (!request->thread->context || rg_driver.cuCtxFromGreenCtx(&object, green) != CUDA_SUCCESS ||
        rg_objects_handle(&request->worker->objects, RG_KIND_CONTEXT, object) != request->thread->context)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = rg_driver.cuGreenCtxStreamCreate(&made, green, flags, priority);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_STREAM, stream, made);
    return result;
}
