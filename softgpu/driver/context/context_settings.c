/*
 * context_settings.c - what can be asked of a context and set in it: identity, flags, limits, cache
 * preferences.
 */
#include "common/base/align.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext handle)
{
    SG_CONTEXT_ARGUMENT_OR_RETURN(context, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct sg_context *context;
    RG_TRY(sg_enter_context_any(&context));
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    SG_CONTEXT_OR_RETURN(context);
    if (!sg_context_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    SG_CONTEXT_ARGUMENT_OR_RETURN(context, handle);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    SG_CONTEXT_ARGUMENT_OR_RETURN(context, handle);
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version != 0 ? context->api_version : 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    SG_CONTEXT_ARGUMENT_OR_RETURN(context, handle);
    RG_TRY(rg_capture_unsafe());
    sg_context_wait(context);
    sg_pools_waited();
    sg_exec_flush_output();
    return (CUresult)atomic_load(&context->owner->sticky);
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SG_CONTEXT_OR_RETURN(context);
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = 1 - SG_PRIORITIES;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SG_CONTEXT_OR_RETURN(context);
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SG_CONTEXT_OR_RETURN(context);
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    SG_CONTEXT_OR_RETURN(context);
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SG_CONTEXT_OR_RETURN(context);
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    SG_CONTEXT_OR_RETURN(context);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool limit_known(CUlimit limit)
{
    return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SG_CONTEXT_OR_RETURN(context);
    if (!limit_known(limit))
        return (unsigned)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE || limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE && value > (512u << 10))
        return CUDA_ERROR_INVALID_VALUE;
    if ((limit == CU_LIMIT_PRINTF_FIFO_SIZE && atomic_load(&context->printed)) ||
        (limit == CU_LIMIT_MALLOC_HEAP_SIZE && atomic_load(&context->allocated)))
        return CUDA_ERROR_INVALID_VALUE; /* they are for kernels to come */
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > context->device->memory_total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->limits[limit] = limit == CU_LIMIT_STACK_SIZE ? rg_align_up(value, 16) : value;
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        sg_exec_set_heap_limit(value);
    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
        sg_exec_set_output_limit(value); /* one FIFO for all contexts: the last word counts */
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SG_CONTEXT_OR_RETURN(context);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_CIG_ENABLED || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) {
        *value = 0; /* cuBLASLt asks every context whether it shares with graphics: it does not */
        return CUDA_SUCCESS;
    }
    if (!limit_known(limit))
        return (unsigned)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
    SG_CONTEXT_OR_RETURN(context);
    if (param == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_EXEC_AFFINITY_TYPE_SM_COUNT ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : CUDA_ERROR_INVALID_VALUE;
}
