/*
 * context_settings.c - what is known of a context, and what programs set of it: flags, limits, preferences for caches.
 *
 * Answered from the context's shadow, also once the context has failed. A setting that is known to be so already is not sent; limits that
 * kernels which have been launched may forbid to set are sent always. Any thread.
 */
#include "client/api/context.h"

#include "client/cache/settings.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/thread.h"
#include "generated/client/operations.h"

#include <assert.h>

/* The shadow of `ctx`, or of the current context for NULL. */
static CUresult context_or_current(CUcontext ctx, const void *out, struct rg_context **shadow)
{
    RG_TRY(rg_call_allowed(0)); /* a context that has failed still answers */
    const uint64_t current = ctx ? (uint64_t)ctx : rg_context_current_owner();
    *shadow = rg_context_shadow((CUcontext)current);
    if (!*shadow)
        return current && !ctx ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    if (atomic_load(&(*shadow)->sticky) == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    struct rg_context *shadow;
    RG_TRY(context_or_current(ctx, device, &shadow));
    *device = shadow->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct rg_context *shadow;
    RG_TRY(context_or_current(NULL, flags, &shadow));
    *flags = shadow->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    struct rg_context *shadow;
    CUresult status = rg_op_cuCtxSetFlags(flags);
    if (status == CUDA_SUCCESS && context_or_current(NULL, &flags, &shadow) == CUDA_SUCCESS)
        shadow->flags = flags;
    return status;
}

/* Settings by number: limits by theirs. */
enum { CACHE_CONFIG = CU_LIMIT_MAX, SHARED_CONFIG };
static_assert(SHARED_CONFIG < RG_SETTINGS, "room for all settings of a context");

/* What kernels have been launched may forbid to set, even to what it is. */
static bool is_for_kernels_to_come(CUlimit limit)
{
    return limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct rg_context *shadow = NULL;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(context_or_current(NULL, &value, &shadow));
    const bool numbered = (unsigned)limit < CU_LIMIT_MAX && !is_for_kernels_to_come(limit);
    if (numbered && rg_setting_is(&shadow->settings, limit, value))
        return CUDA_SUCCESS;
    RG_TRY(rg_op_cuCtxSetLimit(limit, value));
    if (numbered)
        rg_setting_note(&shadow->settings, limit, value);
    return CUDA_SUCCESS;
}

/* A preference, of `most` at most: `set` is not called if it was expressed before. */
static CUresult prefer(unsigned which, unsigned value, unsigned most, CUresult (*set)(unsigned value))
{
    struct rg_context *shadow = NULL;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(context_or_current(NULL, &value, &shadow));
    if (value > most)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_setting_is(&shadow->settings, which, value))
        return CUDA_SUCCESS;
    RG_TRY(set(value));
    rg_setting_note(&shadow->settings, which, value);
    return CUDA_SUCCESS;
}

static CUresult set_cache_config(unsigned value)
{
    return rg_op_cuCtxSetCacheConfig((CUfunc_cache)value);
}

static CUresult set_shared_config(unsigned value)
{
    return rg_op_cuCtxSetSharedMemConfig((CUsharedconfig)value);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    return prefer(CACHE_CONFIG, (unsigned)config, CU_FUNC_CACHE_PREFER_EQUAL, set_cache_config);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    return prefer(SHARED_CONFIG, (unsigned)config, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
                  set_shared_config);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    struct rg_context *shadow;
    RG_TRY(context_or_current(ctx, version, &shadow));
    *version = shadow->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct rg_context *shadow;
    RG_TRY(context_or_current(ctx, ctxId, &shadow));
    *ctxId = rg_handle_index(ctx ? (uint64_t)ctx : rg_context_current_handle());
    return CUDA_SUCCESS;
}
