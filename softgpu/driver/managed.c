/*
 * managed.c - managed memory. The device computes in the process that uses it, so an allocation is the same memory for
 * both sides at all times; hints and attachments have nothing to do but to be right about their arguments.
 */
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/device.h"
#include "softgpu/driver/range.h"
#include "softgpu/driver/schedule.h"

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    struct sg_context *context;
    uint64_t address;
    SG_RETURN_IF(sg_enter_context(&context));
    if (out == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    SG_RETURN_IF(rg_capture_unsafe());
    SG_RETURN_IF(sg_range_alloc(context, context->device, size, SG_RANGE_MANAGED, NULL, &address));
    *out = address;
    return CUDA_SUCCESS;
}

/* A hint about [address, address + size), which must be managed memory. */
static CUresult hint(CUdeviceptr address, size_t size)
{
    struct sg_context *context;
    struct sg_range range;
    SG_RETURN_IF(sg_enter_context(&context));
    if (size == 0 || !sg_range_find(address, &range) || range.kind != SG_RANGE_MANAGED ||
        size > range.size - (address - range.base))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static bool is_place(CUdevice device)
{
    return device == CU_DEVICE_CPU || sg_device(device) != NULL;
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    struct sg_range range;
    (void)stream;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (length == 0) /* the whole allocation */
        length = sg_range_find(address, &range) && range.base == address ? range.size : 0;
    return hint(address, length);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
    (void)stream;
    return is_place(device) ? hint(address, size) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream stream)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemPrefetchAsync(
        address, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU, stream);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    (void)device; /* not read for some kinds of advice */
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    return hint(address, size);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    return cuMemAdvise(address, size, advice, location.id);
}
