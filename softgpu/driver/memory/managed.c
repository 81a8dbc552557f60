/*
 * managed.c - managed memory. The device computes in the process that uses it, so an allocation is the same
 * memory for both sides at all times; hints and attachments have nothing to do but to be right about their
 * arguments, and to be remembered.
 */
#include "common/cuda/advice.h"
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    struct sg_context *context;
    uint64_t address;
    RG_TRY(sg_enter_context(&context));
    if (out == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    RG_TRY(sg_range_alloc(context, context->device, size, SG_RANGE_MANAGED, NULL, &address));
    *out = address;
    return CUDA_SUCCESS;
}

/* Something is said about [address, address + size), which must be managed memory. */
static CUresult check(CUdeviceptr address, size_t size)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS(address);
    struct sg_context *context;
    struct sg_range range;
    RG_TRY(sg_enter_context(&context));
    if (size == 0 || !sg_range_find(address, &range) || !sg_range_is_managed(range.kind) ||
        size > range.size - (address - range.base))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check_stream(CUstream stream)
{
    SG_REF(struct sg_stream) known = NULL;
    return sg_stream_get(stream, &known);
}

static CUresult check_location(const CUmemLocation *location)
{
    if (!rg_location_valid(location))
        return CUDA_ERROR_INVALID_VALUE;
    return location->type != CU_MEM_LOCATION_TYPE_DEVICE || sg_device(location->id) != NULL
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    struct sg_range range;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_stream(stream));
    if (length == 0) /* the whole allocation */
        length = sg_range_find(address, &range) && range.base == address ? range.size : 0;
    return check(address, length);
}

static CUresult prefetch(CUdeviceptr address, size_t size, const CUmemLocation *location, CUstream stream)
{
    RG_TRY(check_location(location));
    RG_TRY(check_stream(stream));
    RG_TRY(check(address, size));
    return rg_advice_prefetched(address, size, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
    if (device != CU_DEVICE_CPU && sg_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    const CUmemLocation location = rg_location_of(device);
    return prefetch(address, size, &location, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream stream)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, &location, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_advice_has_location(advice))
        RG_TRY(check_location(&location));
    RG_TRY(check(address, size));
    return rg_advice_set(address, size, advice, &location);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    /* the device is not read for some kinds of advice */
    if (rg_advice_has_location(advice) && device != CU_DEVICE_CPU && sg_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemAdvise_v2(address, size, advice, rg_location_of(device));
}

CUresult cuMemRangeGetAttribute(void *data, size_t data_size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t size)
{
    RG_TRY(check(address, size));
    return rg_advice_get(data, data_size, attribute, address, size);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *data_sizes, CUmem_range_attribute *attributes, size_t n,
                                 CUdeviceptr address, size_t size)
{
    RG_TRY(check(address, size));
    if (data == NULL || data_sizes == NULL || attributes == NULL || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        RG_TRY(rg_advice_get(data[i], data_sizes[i], attributes[i], address, size));
    return CUDA_SUCCESS;
}

/* --- several ranges at once --- */

/* Checks ranges, and (with `locations`) where each of them is to go. */
static CUresult check_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            const CUmemLocation *locations, const size_t *first, size_t n_locations,
                            unsigned long long flags, CUstream stream)
{
    if (addresses == NULL || sizes == NULL || count == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_stream(stream));
    for (size_t i = 0; i < count; i++)
        RG_TRY(check(addresses[i], sizes[i]));
    if (locations == NULL)
        return CUDA_SUCCESS;
    if (first == NULL || n_locations == 0 || n_locations > count || first[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_locations; i++) {
        if (first[i] >= count || (i > 0 && first[i] <= first[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
        RG_TRY(check_location(&locations[i]));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                 CUmemLocation *locations, size_t *first, size_t n_locations,
                                 unsigned long long flags, CUstream stream)
{
    if (locations == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_batch(addresses, sizes, count, locations, first, n_locations, flags, stream));
    for (size_t i = 0, at = 0; i < count; i++) {
        while (at + 1 < n_locations && first[at + 1] <= i)
            at++;
        RG_TRY(prefetch(addresses[i], sizes[i], &locations[at], stream));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream stream)
{
    /* Discarded memory holds anything, also what it held. */
    return check_batch(addresses, sizes, count, NULL, NULL, 0, flags, stream);
}
