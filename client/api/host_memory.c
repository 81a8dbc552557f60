/* host_memory.c - page-locked host memory: allocated, or registered by the application. */
#include "client/api/device_wait.h"
#include "client/api/memory.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/pinned.h"
#include "client/managed/unified.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/base/addresses.h"
#include "common/base/align.h"
#include "common/base/maps.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/host_pools/host_pools.h"

#include <stdatomic.h>
#include <sys/mman.h>

/*
 * In the window, again and again from its beginning: what is behind it is for others. What lives there is stepped over, farther each
 * time.
 */
static void *reserve(size_t length)
{
    enum { TRIES = 24, STEP = 1 << 20 };
    static _Atomic uint64_t taken;
    /* somewhere in the window, as the kernel would choose */
    const uint64_t first = (uint64_t)(uintptr_t)&taken * 0x9e3779b97f4a7c15ull % RG_ADDRESS_HOST_SIZE;
    const int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (unsigned tries = 0; tries < TRIES && length < RG_ADDRESS_HOST_SIZE; tries++) {
        const uint64_t at = first + atomic_fetch_add(&taken, length + RG_PAGE),
                       start = RG_ADDRESS_HOST_START + at % (RG_ADDRESS_HOST_SIZE - length);
        void *wanted = (void *)(uintptr_t)(start & ~(uint64_t)(RG_PAGE - 1)),
             *got = mmap(wanted, length, access, flags, -1, 0); /* a hint: sanitizers let nobody choose */
        if (got == wanted || got == MAP_FAILED)
            return got;
        munmap(got, length);
        atomic_fetch_add(&taken, (uint64_t)STEP << tries);
    }
    return mmap(NULL, length, access, flags, -1, 0);
}

CUresult cuMemHostAlloc(void **pp, size_t size, unsigned int flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    if (size == 0) { /* not documented; HIP's tests, which run on NVIDIA's driver too, expect it */
        *pp = NULL;
        return CUDA_SUCCESS;
    }
    const size_t length = rg_align_up(size, RG_PAGE);
    if (length < size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = reserve(length);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_range range = {.start = (uint64_t)memory,
                             .size = size,
                             .kind = RG_RANGE_HOST,
                             .flags = flags,
                             .context = rg_context_current_owner(),
                             .device = rg_device_current()};
    if (!rg_pinned_add(&range, length)) {
        munmap(memory, length);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pp = memory;
    return CUDA_SUCCESS;
}

/* Memory of cuMemHostAlloc ends, of which no kernel that is queued makes use. */
static void give_back(struct rg_range *range)
{
    void *memory = (void *)(uintptr_t)range->start;
    (void)rg_pinned_wait(range);
    rg_pinned_unmap(range->start);
    if (rg_pinned_remove(range))
        munmap(memory, rg_align_up(range->size, RG_PAGE));
}

void rg_host_pool_backend_release(CUdeviceptr address, bool managed)
{
    struct rg_range range;
    CUresult status;
    if (managed && rg_map_remove(address, 1u << RG_RANGE_MANAGED, NULL))
        (void)rg_managed_free(address, &status);
    else if (!managed && rg_map_find(address, &range) && range.kind == RG_RANGE_HOST &&
             range.start == address)
        give_back(&range);
}

/*
 * What is queued may still use the memory, or write to it; and the driver waits for the device. No record is put for that, so it is waited
 * for here where a kernel may last until another thread ends it.
 */
static CUresult wait_before_end(struct rg_device_wait *wait, const struct rg_range *range)
{
    const uint64_t context = rg_context_current_handle();
    rg_device_wait_begin(wait, context, range->context);
    return range->mapped || rg_transfers_meet(range->start, range->size) ||
                   rg_timeline_blocks_on_context(context)
               ? rg_timeline_wait_context(NULL)
               : CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    CUresult status = rg_capture_unsafe(); /* also of nothing */
    if (status != CUDA_SUCCESS || !p)
        return status;
    struct rg_range range;
    if (!rg_map_find((uint64_t)p, &range) || range.kind != RG_RANGE_HOST || range.start != (uint64_t)p ||
        rg_host_pool_at((CUdeviceptr)p))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_device_wait wait;
    status = wait_before_end(&wait, &range);
    if (status != CUDA_SUCCESS && !rg_map_find((uint64_t)p, &range))
        return status;
    give_back(&range);
    rg_device_wait_end(&wait);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (!p || !bytesize || (Flags & ~known) || (uint64_t)p + bytesize < bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return rg_unsupported("cuMemHostRegister with CU_MEMHOSTREGISTER_IOMEMORY");
    if (rg_map_overlaps((uint64_t)p, bytesize))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!rg_maps_allow(p, bytesize, !(Flags & CU_MEMHOSTREGISTER_READ_ONLY)))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range = {.start = (uint64_t)p,
                             .size = bytesize,
                             .kind = RG_RANGE_REGISTERED,
                             .flags = Flags,
                             .context = rg_context_current_owner(),
                             .device = rg_device_current()};
    return rg_pinned_add(&range, bytesize) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostUnregister(void *p)
{
    CUresult status = CUDA_SUCCESS;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    if (!rg_map_find((uint64_t)p, &range) || !rg_range_pinned(&range))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range.kind != RG_RANGE_REGISTERED ||
        range.start != (uint64_t)p) /* what was allocated: seen of NVIDIA's driver */
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_device_wait wait;
    status = wait_before_end(&wait, &range);
    if (range.mapped)
        rg_pinned_unmap(range.start);
    const CUresult waited = rg_pinned_wait(&range);
    (void)rg_pinned_remove(&range);
    rg_device_wait_end(&wait);
    return status == CUDA_SUCCESS ? waited : status;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    if (!pFlags || !rg_map_find((uint64_t)p, &range) || !rg_range_pinned(&range))
        return CUDA_ERROR_INVALID_VALUE;
    /* Seen of NVIDIA's driver (HIP's tests): all that is allocated is mapped, asked for or not. */
    *pFlags = range.flags | (rg_several_own_servers() ? 0 : CU_MEMHOSTALLOC_DEVICEMAP);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    if (!pdptr || Flags || !rg_map_find((uint64_t)p, &range) || !rg_range_pinned(&range))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_pinned_map_in_time((uint64_t)p));
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}
