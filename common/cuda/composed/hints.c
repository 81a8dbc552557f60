/*
 * hints.c - advice about managed memory and prefetches: their arguments are looked at, and what was said is noted for
 * cuMemRangeGetAttribute (common/cuda/advice.h). Nothing else depends on it. See hints.h.
 */
#include "common/cuda/composed/hints.h"

#include "common/base/status.h"
#include "common/cuda/advice.h"

/* Of an older form of a call: a device, or CU_DEVICE_CPU. */
static CUresult check_device(CUdevice device)
{
    CUdevice known;
    return device == CU_DEVICE_CPU ? CUDA_SUCCESS : cuDeviceGet(&known, device);
}

static CUresult check_location(const CUmemLocation *location)
{
    if (!rg_location_valid(location))
        return CUDA_ERROR_INVALID_VALUE;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? check_device(location->id) : CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr address, size_t size, const CUmemLocation *location, CUstream stream)
{
    RG_TRY(check_location(location));
    RG_TRY(rg_hint_check_stream(stream));
    RG_TRY(rg_hint_check(address, size));
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        rg_hint_expect_host(address, size);
    return rg_advice_prefetched(address, size, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
    RG_TRY(check_device(device));
    const CUmemLocation location = rg_location_of(device);
    return prefetch(address, size, &location, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream stream)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, &location, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_advice_has_location(advice)) /* else it is not read */
        RG_TRY(check_location(&location));
    RG_TRY(rg_hint_check(address, size));
    return rg_advice_set(address, size, advice, &location);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    if (rg_advice_has_location(advice))
        RG_TRY(check_device(device));
    return cuMemAdvise_v2(address, size, advice, rg_location_of(device));
}

CUresult cuMemRangeGetAttribute(void *data, size_t data_size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t size)
{
    RG_TRY(rg_hint_check(address, size));
    return rg_advice_get(data, data_size, attribute, address, size);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *data_sizes, CUmem_range_attribute *attributes, size_t n,
                                 CUdeviceptr address, size_t size)
{
    RG_TRY(rg_hint_check(address, size));
    if (!data || !data_sizes || !attributes || !n)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        RG_TRY(rg_advice_get(data[i], data_sizes[i], attributes[i], address, size));
    return CUDA_SUCCESS;
}

/* --- several ranges at once --- */

static CUresult check_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            unsigned long long flags, CUstream stream)
{
    if (!addresses || !sizes || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_hint_check_stream(stream));
    for (size_t i = 0; i < count; i++)
        RG_TRY(rg_hint_check(addresses[i], sizes[i]));
    return CUDA_SUCCESS;
}

/* The range of number first[i], and those that follow up to first[i + 1], go to locations[i]. */
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                 CUmemLocation *locations, size_t *first, size_t n_locations,
                                 unsigned long long flags, CUstream stream)
{
    if (!locations)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_batch(addresses, sizes, count, flags, stream));
    if (!first || !n_locations || n_locations > count || first[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_locations; i++) {
        if (first[i] >= count || (i > 0 && first[i] <= first[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
        RG_TRY(check_location(&locations[i]));
    }
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
    return check_batch(addresses, sizes, count, flags, stream);
}
