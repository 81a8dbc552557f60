/*
 * resource.c - resources of a device and green contexts made of them. A green context retains its device's primary context, which
 * owns what is made in it. Its ordinary context is asked for at the first call that needs it, its streams belong to it, and it ends
 * with the green context.
 */
#include "client/api/context.h"
#include "client/api/stream.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/timeline/timeline.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 256 /* more than any device has multiprocessors to give to groups */

static struct rg_green *green_of(CUgreenCtx green)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_GREEN, (uint64_t)green);
    return shadow ? &shadow->green : NULL;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int useFlags, unsigned int minCount)
{
    RG_TRY(rg_call_allowed(0));
    if (!nbGroups || !input || (result && !*nbGroups))
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    CUdevResource rest;
    RG_CLEANUP_FREE CUdevResource *groups = malloc(GROUPS_MAX * sizeof *groups);
    if (!groups)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const unsigned capacity = !result ? 0 : *nbGroups < GROUPS_MAX ? *nbGroups : GROUPS_MAX;
    unsigned made = 0;
    RG_TRY(rg_op_rgSmResourceSplit(input, capacity, useFlags, minCount, &made, groups, &rest));
    if (result && made > capacity) { /* the program reads as many as it is told */
        rg_error("the server says that it has made more groups of multiprocessors than were asked for");
        return CUDA_ERROR_UNKNOWN;
    }
    if (result)
        memcpy(result, groups, made * sizeof *result);
    if (remaining)
        *remaining = rest;
    *nbGroups = made;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    RG_TRY(rg_call_allowed(0));
    if (!rg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!phCtx || (desc && !rg_handle_known(RG_KIND_RESOURCES, (uint64_t)desc)))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext primary;
    RG_TRY(cuDevicePrimaryCtxRetain(&primary, dev));
    CUgreenCtx green = (CUgreenCtx)rg_handle_create(RG_KIND_GREEN);
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (green) {
        *green_of(green) = (struct rg_green){.device = dev, .primary = (uint64_t)primary};
        status = rg_op_cuGreenCtxCreate(&green, desc, dev, flags);
    }
    if (status != CUDA_SUCCESS)
        (void)cuDevicePrimaryCtxRelease_v2(dev);
    return rg_handle_made(RG_KIND_GREEN, (uint64_t)green, status, phCtx);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_green *known = green_of(hCtx);
    if (!known)
        return CUDA_ERROR_INVALID_CONTEXT;
    const uint64_t context = known->context;
    const CUdevice device = known->device;
    if (context) {
        rg_timeline_before_end(context);
        rg_context_before_end(context);
    }
    RG_TRY(rg_op_cuGreenCtxDestroy(hCtx));
    if (context)
        rg_context_ended(context);
    rg_handle_delete(RG_KIND_GREEN, (uint64_t)hCtx);
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_green *known = green_of(hCtx);
    if (!known)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!pContext)
        return CUDA_ERROR_INVALID_VALUE;
    if (!known->context) {
        CUcontext context = (CUcontext)rg_handle_create(RG_KIND_CONTEXT);
        const uint64_t proposed = (uint64_t)context;
        if (!context)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult status = rg_op_rgGreenContext(hCtx, &context);
        RG_TRY(rg_handle_found(RG_KIND_CONTEXT, proposed, (uint64_t)context, status));
        CUdevResource provided;
        RG_TRY(rg_op_cuGreenCtxGetDevResource(hCtx, &provided, CU_DEV_RESOURCE_TYPE_SM));
        rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context)->context =
            (struct rg_context){.session = rg_device_session(known->device),
                                .device = known->device,
                                .api_version = 3020,
                                .green = (uint64_t)hCtx,
                                .owner = known->primary,
                                .multiprocessors = provided.sm.smCount};
        known->context = (uint64_t)context;
    }
    *pContext = (CUcontext)known->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    CUcontext context;
    RG_TRY(cuCtxFromGreenCtx(&context, greenCtx));
    if (!phStream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = (CUstream)rg_handle_create(RG_KIND_STREAM);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream)->stream = (struct rg_stream){
        .context = (uint64_t)context, .flags = flags, .priority = priority, .id = rg_stream_next_id()};
    CUresult status = rg_context_scope_enter((uint64_t)context);
    if (status == CUDA_SUCCESS) {
        status = rg_op_rgGreenStreamCreate(&stream, greenCtx, flags, priority);
        rg_context_scope_leave();
    }
    return rg_handle_made(RG_KIND_STREAM, (uint64_t)stream, status, phStream);
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    RG_TRY(rg_call_allowed(0));
    if (!greenCtx) {
        const struct rg_context *current = rg_context_shadow((CUcontext)rg_context_current_handle());
        greenCtx = (CUgreenCtx)(current ? current->green : 0);
    }
    if (!green_of(greenCtx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return greenCtxId ? rg_op_cuGreenCtxGetId(greenCtx, greenCtxId) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_green *known = green_of(hCtx);
    if (!known)
        return CUDA_ERROR_INVALID_CONTEXT;
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)hEvent, CUDA_ERROR_INVALID_HANDLE));
    const struct rg_shadow *event = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)hEvent);
    if (!event || event->event.context != known->primary)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUresult status = rg_op_cuGreenCtxRecordEvent(hCtx, hEvent);
    rg_timeline_unseen(hEvent);
    return rg_timeline_told(hEvent, status);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    CUcontext context;
    RG_TRY(cuStreamGetCtx(hStream, &context));
    if (!phCtx)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context);
    *phCtx = (CUgreenCtx)(shadow ? shadow->context.green : 0);
    return CUDA_SUCCESS;
}
