/*
 * array.c - arrays. Their extents are kept in their shadows, so that a copy that lies outside of one is
 * refused before anything is sent.
 */
#include "client/api/device_wait.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "common/base/status.h"
#include "common/cuda/texel.h"
#include "generated/client/operations.h"

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, bool plain)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!out || !descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t size = rg_texel_size(descriptor->Format, descriptor->NumChannels);
    if (!size && (descriptor->Format <= CU_AD_FORMAT_FLOAT || !descriptor->NumChannels))
        return CUDA_ERROR_INVALID_VALUE; /* all formats of so low numbers are linear */
    if (!size)
        return rg_unsupported("an array of a format that is not linear");
    CUarray array = (CUarray)rg_handle_create(RG_KIND_ARRAY);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)array)->array =
        (struct rg_array){.descriptor = *descriptor, .texel_size = size};
    const CUDA_ARRAY_DESCRIPTOR two = {descriptor->Width, descriptor->Height, descriptor->Format,
                                       descriptor->NumChannels};
    const CUresult status =
        plain ? rg_op_cuArrayCreate_v2(&array, &two) : rg_op_cuArray3DCreate_v2(&array, descriptor);
    return rg_handle_made(RG_KIND_ARRAY, (uint64_t)array, status, out);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    if (!pAllocateArray)
        return create(pHandle, NULL, true);
    return create(pHandle,
                  &(CUDA_ARRAY3D_DESCRIPTOR){.Width = pAllocateArray->Width,
                                             .Height = pAllocateArray->Height,
                                             .Format = pAllocateArray->Format,
                                             .NumChannels = pAllocateArray->NumChannels},
                  true);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    return create(pHandle, pAllocateArray, false);
}

CUresult cuArrayDestroy(CUarray hArray)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)hArray);
    if (shadow && shadow->array.level)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = rg_handle_check(RG_KIND_ARRAY, (uint64_t)hArray, CUDA_ERROR_INVALID_HANDLE);
    if (status == CUDA_SUCCESS) { /* else it went with its context */
        struct rg_device_wait wait;
        rg_device_wait_begin(&wait, rg_handle_home(RG_KIND_ARRAY, (uint64_t)hArray), 0);
        status = rg_op_cuArrayDestroy(hArray);
        rg_device_wait_end(&wait);
    }
    rg_handle_delete(RG_KIND_ARRAY, (uint64_t)hArray);
    return status;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const struct rg_shadow *shadow;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_handle_live(RG_KIND_ARRAY, (uint64_t)hArray, &shadow));
    *pArrayDescriptor = shadow->array.descriptor;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(cuArray3DGetDescriptor_v2(&d, hArray));
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
}
