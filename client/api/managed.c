/*
 * managed.c - managed memory: allocations, and what hints about it (common/cuda/composed/hints.c) do here: the host is brought memory
 * in large pieces which is prefetched to it.
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
#include "common/cuda/composed/hints.h"
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

/* --- hints (common/cuda/composed/hints.h) --------------------------------------------------------------- */

CUresult rg_hint_check(CUdeviceptr address, size_t size)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    const bool good = size && rg_map_find(address, &range) && range.kind == RG_RANGE_MANAGED &&
                      size <= range.size - (address - range.start);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_hint_check_stream(CUstream stream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE);
}

void rg_hint_expect_host(CUdeviceptr address, size_t size)
{
    rg_unified_expect(address, size);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    if (length == 0 && rg_map_find(dptr, &range)) /* the whole allocation */
        length = range.size;
    RG_TRY(rg_hint_check_stream(hStream));
    return rg_hint_check(dptr, length);
}
