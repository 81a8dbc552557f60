/*
 * managed.c - managed memory: allocations, and what the program says of it. Advice and prefetches are hints,
 * which are noted and hold without doing anything more, but that the host is brought memory in large pieces
 * which is prefetched to it.
 */
#include "client/managed/managed.h"
#include "client/api/memory.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "client/prefetch/startup_profile.h"
#include "common/cuda/advice.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

/* Memory in which whole pages of this machine lie. Most drivers give it at a page's beginning: then none is lost. */
static CUresult get_pages(size_t bytes, CUdeviceptr *base)
{
    RG_TRY(rg_memory_get(bytes, base));
    if (*base % RG_PAGE == 0)
        return CUDA_SUCCESS;
    (void)rg_op_cuMemFree_v2(*base);
    return rg_memory_get(bytes + RG_PAGE, base);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    const size_t rounded = (bytesize + RG_PAGE - 1) & ~(size_t)(RG_PAGE - 1);
    if (rounded < bytesize || rounded + RG_PAGE < rounded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (rg_several_own_servers()) /* devices of other servers could not use it */
        return rg_unsupported("managed memory with several servers");
    CUdeviceptr base;
    RG_TRY(get_pages(rounded, &base));
    struct rg_range range = {.start = (base + RG_PAGE - 1) & ~(uint64_t)(RG_PAGE - 1),
                             .size = bytesize,
                             .kind = RG_RANGE_MANAGED,
                             .flags = flags,
                             .context = rg_context_current_owner(),
                             .device = rg_device_current()};
    CUresult status = rg_managed_add(base, range.start, rounded);
    if (status != CUDA_SUCCESS) {
        (void)rg_op_cuMemFree_v2(base);
        return status;
    }
    *dptr = range.start;
    if (rg_map_add(&range))
        return CUDA_SUCCESS;
    (void)rg_managed_free(range.start, &status);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool rg_managed_free(uint64_t start, CUresult *result)
{
    struct rg_managed_memory memory;
    if (!rg_managed_remove(start, &memory))
        return false;
    rg_startup_profile_note_free(memory.context, memory.size + (memory.base == start ? 0 : RG_PAGE));
    *result = rg_op_cuMemFree_v2(memory.base);
    return true;
}

/* --- hints ---------------------------------------------------------------------------------------------- */

/* Whether [address, address + size) is managed memory, and the stream is one. */
static CUresult check(CUdeviceptr address, size_t size, CUstream stream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE));
    struct rg_range range;
    const bool good = size && rg_map_find(address, &range) && range.kind == RG_RANGE_MANAGED &&
                      size <= range.size - (address - range.start);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_location(const CUmemLocation *location)
{
    if (!rg_location_valid(location))
        return CUDA_ERROR_INVALID_VALUE;
    return location->type != CU_MEM_LOCATION_TYPE_DEVICE || rg_device(location->id)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    if (length == 0 && rg_map_find(dptr, &range)) /* the whole allocation */
        length = range.size;
    return check(dptr, length, hStream);
}

static CUresult prefetch(CUdeviceptr address, size_t count, const CUmemLocation *location, CUstream stream)
{
    RG_TRY(check_location(location));
    RG_TRY(check(address, count, stream));
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        rg_unified_expect(address, count);
    return rg_advice_prefetched(address, count, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    if (dstDevice != CU_DEVICE_CPU && !rg_device(dstDevice))
        return CUDA_ERROR_INVALID_DEVICE;
    const CUmemLocation location = rg_location_of(dstDevice);
    return prefetch(devPtr, count, &location, hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, &location, hStream);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_advice_has_location(advice))
        RG_TRY(check_location(&location));
    RG_TRY(check(devPtr, count, NULL));
    return rg_advice_set(devPtr, count, advice, &location);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    if (rg_advice_has_location(advice) && device != CU_DEVICE_CPU && !rg_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemAdvise_v2(devPtr, count, advice, rg_location_of(device));
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count)
{
    RG_TRY(check(devPtr, count, NULL));
    return rg_advice_get(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    RG_TRY(check(devPtr, count, NULL));
    if (!data || !dataSizes || !attributes || !numAttributes)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numAttributes; i++)
        RG_TRY(rg_advice_get(data[i], dataSizes[i], attributes[i], devPtr, count));
    return CUDA_SUCCESS;
}

/* --- several ranges at once (13.0) ---------------------------------------------------------------------- */

/* Checks ranges, and (with `locations`) where each of them is to go. */
static CUresult check_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            const CUmemLocation *locations, const size_t *first, size_t n_locations,
                            unsigned long long flags, CUstream stream)
{
    if (!addresses || !sizes || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < count && status == CUDA_SUCCESS; i++)
        status = check(addresses[i], sizes[i], stream);
    if (!locations)
        return status;
    if (!first || !n_locations || n_locations > count || first[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_locations && status == CUDA_SUCCESS; i++)
        status = first[i] < count && (i == 0 || first[i] > first[i - 1]) ? check_location(&locations[i])
                                                                         : CUDA_ERROR_INVALID_VALUE;
    return status;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream)
{
    if (!prefetchLocs)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream));
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        while (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] <= i)
            at++;
        RG_TRY(prefetch(dptrs[i], sizes[i], &prefetchLocs[at], hStream));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream)
{
    /* Discarded memory holds anything, also what it held. */
    return check_batch(dptrs, sizes, count, NULL, NULL, 0, flags, hStream);
}
