/*
 * managed.c - managed memory. The device computes in the process that uses it, so an allocation is the same
 * memory for both sides at all times; hints (common/cuda/composed/hints.c) and attachments have nothing to do but to be right
 * about their arguments.
 */
#include "common/cuda/composed/hints.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    uint64_t address;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    RG_TRY(sg_range_alloc(context, context->device, size, SG_RANGE_MANAGED, NULL, &address));
    *out = address;
    return CUDA_SUCCESS;
}

CUresult rg_hint_check(CUdeviceptr address, size_t size)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS(address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (size == 0 || !sg_range_find(address, &range) || !sg_range_is_managed(range.kind) ||
        size > range.size - (address - range.base))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult rg_hint_check_stream(CUstream stream)
{
    SG_REF(struct sg_stream) known = NULL;
    return sg_stream_get(stream, &known);
}

void rg_hint_expect_host(CUdeviceptr address, size_t size)
{
    (void)address, (void)size; /* it is there */
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    struct sg_range range;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_hint_check_stream(stream));
    if (length == 0) /* the whole allocation */
        length = sg_range_find(address, &range) && range.base == address ? range.size : 0;
    return rg_hint_check(address, length);
}
