/*
 * context.c - contexts that programs make, which one is current, and what ends with one (primary ones: primary_context.c; what is
 * set of one: context_settings.c).
 *
 * Which context is current is known to the client alone: rg_call_begin tells the worker when a call needs it and it has changed.
 */
#include "client/api/context.h"

#include "client/api/export_table.h"
#include "client/api/function/function.h"
#include "client/api/memory_pool.h"
#include "client/cache/query_cache.h"
#include "client/cache/settings.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/managed.h"
#include "client/managed/pinned.h"
#include "client/multiserver/helper_stream.h"
#include "client/prealloc/prealloc.h"
#include "client/prefetch/image_prefetch.h"
#include "client/prefetch/loaded_images.h"
#include "client/timeline/timeline.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

struct rg_context *rg_context_shadow(CUcontext context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context);
    return shadow ? &shadow->context : NULL;
}

CUresult rg_context_allowed_on(CUdevice device)
{
    RG_TRY(rg_call_allowed(0));
    return rg_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* --- contexts that a fault has ended -------------------------------------------------------------------- */

#define CONTEXTS_MAX 256 /* looked at; a program with more finds out by its calls */

void rg_context_find_failed(void)
{
    uint64_t contexts[CONTEXTS_MAX];
    if (!atomic_exchange(&rg_contexts_suspect, false))
        return; /* another thread does it */
    const size_t n = rg_handle_list(RG_KIND_CONTEXT, 0, contexts, CONTEXTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct rg_context *shadow = rg_context_shadow((CUcontext)contexts[i]);
        unsigned error = 0;
        if (shadow && atomic_load(&shadow->sticky) == CUDA_SUCCESS &&
            rg_op_rgContextError((CUcontext)contexts[i], &error) == CUDA_SUCCESS &&
            rg_error_is_sticky((CUresult)error))
            atomic_store(&shadow->sticky, (CUresult)error);
    }
}

/* --- the end of a context ------------------------------------------------------------------------------- */

void rg_context_before_end(uint64_t context)
{
    rg_prealloc_give_back_context(context);
    rg_pinned_context_ends(context);
    const struct rg_context *shadow = rg_context_shadow((CUcontext)context);
    rg_managed_before_end(context, !shadow || atomic_load(&shadow->sticky) != CUDA_SUCCESS);
}

void rg_context_forget_contents(uint64_t context)
{
    rg_managed_drop_context(context);
    rg_query_cache_context_ended();
    rg_timeline_forget_context(context);
    rg_map_remove_context(context);
    rg_ipc_context_ends(context);
    rg_export_table_context_ended(context);
    rg_loaded_images_context_ended(context);
    rg_modules_context_ended(context);
    struct rg_context *shadow = rg_context_shadow((CUcontext)context);
    if (shadow) { /* a primary context lives again */
        atomic_store(&shadow->sticky, CUDA_SUCCESS);
        for (unsigned i = 0; i < RG_SETTINGS; i++)
            rg_setting_forget(&shadow->settings, i);
    }
}

void rg_context_orphan_contents(uint64_t context)
{
    rg_helper_streams_context_ended(context);
    rg_handle_orphan_context(context);
}

void rg_context_ended(uint64_t context)
{
    rg_context_forget_contents(context);
    rg_context_orphan_contents(context);
    rg_handle_delete(RG_KIND_CONTEXT, context);
}

/* --- explicit contexts ---------------------------------------------------------------------------------- */

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    RG_TRY(rg_context_allowed_on(dev));
    if (!pctx || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_thread *thread = rg_thread_current();
    CUcontext context = (CUcontext)rg_handle_create(RG_KIND_CONTEXT);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_op_cuCtxCreate_v2(&context, flags, dev);
    if (status == CUDA_SUCCESS && !rg_thread_push_context(thread, (uint64_t)context)) {
        (void)rg_op_cuCtxDestroy_v2(context);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (status != CUDA_SUCCESS) {
        rg_handle_delete(RG_KIND_CONTEXT, (uint64_t)context);
        return status;
    }
    *rg_context_shadow(context) = (struct rg_context){
        .session = rg_device_session(dev), .device = dev, .flags = flags, .api_version = 3020};
    rg_image_prefetch_context((uint64_t)context);
    *pctx = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev)
{
    if (paramsArray || numParams)
        return rg_unsupported("cuCtxCreate_v3 with execution affinity");
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    if (ctxCreateParams && (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams))
        return rg_unsupported("cuCtxCreate_v4 with parameters");
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_context *shadow = rg_context_shadow(ctx);
    if (!shadow || shadow->primary || shadow->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct rg_session *session = shadow->session;
    rg_timeline_before_end((uint64_t)ctx);
    rg_context_before_end((uint64_t)ctx);
    CUresult status = rg_op_cuCtxDestroy_v2(ctx);
    struct rg_thread *thread = rg_thread_current();
    if (rg_thread_context(thread) == (uint64_t)ctx)
        rg_thread_set_context(thread, 0);
    if (thread->at[session->number].sent_context == (uint64_t)ctx)
        thread->at[session->number].sent_context = 0;
    rg_context_ended((uint64_t)ctx);
    return status;
}

/* Of a context that the program has made, which the last of those ends who have attached themselves to it. */
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const CUcontext current = (CUcontext)rg_context_current_owner();
    struct rg_context *shadow = rg_context_shadow(current);
    if (!pctx || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    atomic_fetch_add(&shadow->attached, 1);
    *pctx = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    RG_TRY(rg_call_allowed(0)); /* a context that has failed is ended as well */
    const uint64_t current = rg_context_current_owner();
    struct rg_context *shadow = rg_context_shadow((CUcontext)current);
    if (current && (!shadow || atomic_load(&shadow->sticky) == CUDA_ERROR_CONTEXT_IS_DESTROYED))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!current || (uint64_t)ctx != current)
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned attached = atomic_load(&shadow->attached);
    while (attached)
        if (atomic_compare_exchange_weak(&shadow->attached, &attached, attached - 1))
            return CUDA_SUCCESS;
    return cuCtxDestroy_v2(ctx);
}

/* --- the current context -------------------------------------------------------------------------------- */

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    RG_TRY(rg_call_allowed(0));
    if (!rg_context_shadow(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return rg_thread_push_context(rg_thread_current(), (uint64_t)ctx) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_thread *thread = rg_thread_current();
    uint64_t context = rg_thread_context(thread);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->n_contexts--;
    if (pctx)
        *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    RG_TRY(rg_call_allowed(0));
    if (ctx && !rg_context_shadow(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return rg_thread_set_context(rg_thread_current(), (uint64_t)ctx) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    RG_TRY(rg_call_allowed(0));
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = (CUcontext)rg_context_current_handle();
    return CUDA_SUCCESS;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

static CUresult wait_for(CUcontext context)
{
    CUresult captured;
    if (rg_capture_forbids(&captured))
        return captured;
    RG_TRY(rg_timeline_wait_context(context));
    rg_pools_waited();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return wait_for(NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    if (!ctx)
        return cuCtxSynchronize();
    RG_TRY(rg_call_allowed(0));
    RG_TRY(rg_handle_check(RG_KIND_CONTEXT, (uint64_t)ctx, CUDA_ERROR_INVALID_CONTEXT));
    return wait_for(ctx);
}

/* --- access to other contexts' memory ------------------------------------------------------------------- */

/* Whether the current context and `peer` are of one server. */
static CUresult check_peer(CUcontext peer, bool *reachable)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    *reachable = !rg_homes_differ((uint64_t)peer, 0);
    return rg_context_shadow(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    bool reachable;
    RG_TRY(check_peer(peerContext, &reachable));
    return reachable ? rg_op_cuCtxEnablePeerAccess(peerContext, Flags) : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    bool reachable;
    RG_TRY(check_peer(peerContext, &reachable));
    return reachable ? rg_op_cuCtxDisablePeerAccess(peerContext) : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
