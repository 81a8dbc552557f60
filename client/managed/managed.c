/*
 * managed.c - managed memory: allocations, variables, and what is said of it. The worker's side of an allocation is
 * ordinary device memory; advice and prefetches are hints, which are noted and hold without doing anything more, but
 * that the host is brought memory in large pieces which is prefetched to it.
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
#include "common/base/log.h"
#include "common/cuda/advice.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct managed {
    struct managed *next;
    uint64_t base; /* what the worker allocated; 0: memory of variables */
    uint64_t start, size, context;
    uint64_t owner; /* of variables */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *all;

/* Maps fresh pages at addresses of the worker's. */
static bool map_here(uint64_t start, uint64_t size)
{
    if (!rg_map_reserve(rg_session_current()->number, start, size)) {
        rg_error("the server's address for managed memory is in use in this program");
        return false;
    }
    void *memory = mmap((void *)(uintptr_t)start, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, size, MADV_DONTFORK); /* as the driver has it: managed memory is no child's */
    return true;
}

/* Shares pages of the worker's and keeps them in the list. */
static CUresult place(struct managed *m, enum rg_unified_kind kind)
{
    m->context = rg_context_current();
    if (!map_here(m->start, m->size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_unified_add(kind, m->start, m->size);
    if (status != CUDA_SUCCESS) {
        mmap((void *)(uintptr_t)m->start, m->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        return status;
    }
    pthread_mutex_lock(&lock);
    m->next = all;
    all = m;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    status = rg_capture_unsafe();
    if (status != CUDA_SUCCESS)
        return status;
    const size_t rounded = (bytesize + RG_PAGE - 1) & ~(size_t)(RG_PAGE - 1);
    if (rounded < bytesize || rounded + RG_PAGE < rounded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (rg_several_servers()) /* devices of other servers could not use it */
        return rg_unsupported("managed memory with several servers");
    struct managed *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr base;
    status = rg_memory_get(rounded + RG_PAGE, &base);
    if (status != CUDA_SUCCESS) {
        free(m);
        return status;
    }
    m->base = base;
    m->start = (base + RG_PAGE - 1) & ~(uint64_t)(RG_PAGE - 1);
    m->size = rounded;
    struct rg_range range = {.start = m->start,
                             .size = bytesize,
                             .kind = RG_RANGE_MANAGED,
                             .flags = flags,
                             .context = rg_context_current(),
                             .device = rg_device_current()};
    status = place(m, RG_UNIFIED_MANAGED);
    if (status != CUDA_SUCCESS) {
        (void)rg_op_cuMemFree_v2(base);
        free(m);
        return status;
    }
    *dptr = m->start;
    if (rg_map_add(&range))
        return CUDA_SUCCESS;
    (void)rg_managed_free(m->start, &status);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_managed_variables(uint64_t owner, uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1);
    const uint64_t end = (start + size + RG_PAGE - 1) & ~(uint64_t)(RG_PAGE - 1);
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const struct managed *m = all; m && !known; m = m->next)
        known = m->start == first && m->size == end - first;
    pthread_mutex_unlock(&lock);
    if (known)
        return CUDA_SUCCESS;
    struct managed *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->owner = owner;
    m->start = first;
    m->size = end - first;
    CUresult status = place(m, RG_UNIFIED_VARIABLE);
    if (status != CUDA_SUCCESS)
        free(m);
    return status;
}

/* Ends the share of an entry that has been taken out of the list. */
static void end(struct managed *m)
{
    rg_unified_remove(m->start);
    rg_advice_forget(m->start, m->size);
    free(m);
}

bool rg_managed_free(uint64_t start, CUresult *result)
{
    struct managed *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &all; *at && !found; at = &(*at)->next)
        if ((*at)->start == start && (*at)->base) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return false;
    const CUdeviceptr base = found->base;
    rg_startup_profile_note_free(found->context, found->size + RG_PAGE);
    end(found);
    *result = rg_op_cuMemFree_v2(base);
    return true;
}

/* Ends what is of a context, or of an owner; 0: whichever. */
static void drop(uint64_t context, uint64_t owner)
{
    struct managed *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &all; *at;) {
        struct managed *m = *at;
        if ((context && m->context != context) || (owner && m->owner != owner)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = gone;
        gone = m;
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        struct managed *m = gone;
        gone = m->next;
        end(m);
    }
}

void rg_managed_drop_owner(uint64_t owner)
{
    drop(0, owner);
}

void rg_managed_drop_context(uint64_t context)
{
    drop(context, 0);
    rg_unified_drop_context(context);
}

/* --- hints -------------------------------------------------------------------------------------------------------- */

/* Whether [address, address + size) is managed memory, and the stream is one. */
static CUresult check(CUdeviceptr address, size_t size, CUstream stream)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_STREAM, (uint64_t)stream))
        return rg_bad_handle(CUDA_ERROR_INVALID_HANDLE);
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
    CUresult status = check_location(location);
    if (status == CUDA_SUCCESS)
        status = check(address, count, stream);
    if (status == CUDA_SUCCESS && location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        rg_unified_expect(address, count);
    return status == CUDA_SUCCESS ? rg_advice_prefetched(address, count, location) : status;
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
    CUresult status = rg_advice_has_location(advice) ? check_location(&location) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS)
        status = check(devPtr, count, NULL);
    return status == CUDA_SUCCESS ? rg_advice_set(devPtr, count, advice, &location) : status;
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
    CUresult status = check(devPtr, count, NULL);
    return status == CUDA_SUCCESS ? rg_advice_get(data, dataSize, attribute, devPtr, count) : status;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    CUresult status = check(devPtr, count, NULL);
    if (status == CUDA_SUCCESS && (!data || !dataSizes || !attributes || !numAttributes))
        status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numAttributes && status == CUDA_SUCCESS; i++)
        status = rg_advice_get(data[i], dataSizes[i], attributes[i], devPtr, count);
    return status;
}

/* --- several ranges at once (13.0) -------------------------------------------------------------------------------- */

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
    CUresult status =
        check_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
    size_t at = 0;
    for (size_t i = 0; i < count && status == CUDA_SUCCESS; i++) {
        while (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] <= i)
            at++;
        status = prefetch(dptrs[i], sizes[i], &prefetchLocs[at], hStream);
    }
    return status;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream)
{
    /* Discarded memory holds anything, also what it held. */
    return check_batch(dptrs, sizes, count, NULL, NULL, 0, flags, hStream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                                   hStream);
}
