/*
 * range_host.c - page-locked host memory: what the device allocates for it, and memory that is registered.
 * Nothing is locked in fact: the device is the host's processor. Memory that is registered already, or no
 * memory, is the error. Any thread.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/align.h"
#include "common/base/maps.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/range/internal.h"
#include "softgpu/guest.h"

static void describe(struct sg_range *range, struct sg_context *context, uint64_t base, uint64_t size,
                     uint64_t span, enum sg_range_kind kind, unsigned flags)
{
    *range = (struct sg_range){.base = base,
                               .size = size,
                               .span = span,
                               .kind = kind,
                               .flags = flags,
                               .device = context->device,
                               .context = context,
                               .context_generation = atomic_load(&context->generation)};
}

CUresult sg_range_host_alloc(struct sg_context *context, uint64_t size, unsigned flags, void **address)
{
    if (size == 0 || size > SIZE_MAX / 2)
        return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = rg_align_up(size, SG_PAGE);
    void *at = sg_guest_map(bytes, PROT_READ | PROT_WRITE);
    if (at == NULL) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    describe(range, context, (uintptr_t)at, size, bytes, SG_RANGE_HOST, flags);
    pthread_mutex_lock(&sg_memory.lock);
    range->buffer_id = ++sg_memory.next_id;
    bool kept = sg_range_set_insert(&sg_memory.host, range);
    pthread_mutex_unlock(&sg_memory.lock);
    if (!kept) {
        munmap(at, bytes);
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = at;
    return CUDA_SUCCESS;
}

/*
 * Where kernels are guarded: lets them reach registered memory that the program says is for them. That takes
 * whole pages of shared memory; of other memory kernels know nothing, and an access faults. False: something
 * else is where it would have to be. Lock held.
 */
static bool open_to_kernels(struct sg_range *range)
{
    if (!sg_guest_guarded() || !(range->flags & CU_MEMHOSTREGISTER_DEVICEMAP) || range->base % SG_PAGE ||
        range->size % SG_PAGE)
        return true;
    bool taken;
    range->aliased = sg_guest_alias(range->base, range->size, &taken);
    if (!range->aliased && !taken)
        rg_debug("registered memory at %#" PRIx64
                 " is not shared memory: kernels, which are guarded, cannot reach it",
                 range->base);
    return range->aliased || !taken;
}

CUresult sg_range_host_register(struct sg_context *context, void *address, uint64_t size, unsigned flags)
{
    uint64_t base = (uintptr_t)address;
    if (address == NULL || size == 0 || base + size < base || sg_address_is_device(base))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    describe(range, context, base, size, size, SG_RANGE_REGISTERED, flags);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&sg_memory.lock);
    size_t i = sg_range_set_upper(&sg_memory.host, base);
    bool overlaps = (i > 0 && base - sg_memory.host.at[i - 1]->base < sg_memory.host.at[i - 1]->size) ||
                    (i < sg_memory.host.n && sg_memory.host.at[i]->base - base < size);
    range->buffer_id = ++sg_memory.next_id;
    if (overlaps)
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!rg_maps_allow(address, size, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!open_to_kernels(range) || !sg_range_set_insert(&sg_memory.host, range))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS && range->aliased)
        sg_guest_unalias(base, size);
    pthread_mutex_unlock(&sg_memory.lock);
    if (result != CUDA_SUCCESS)
        free(range);
    return result;
}

void sg_range_drop_host(struct sg_range *range)
{
    sg_range_set_remove(&sg_memory.host, range);
    if (range->kind == SG_RANGE_HOST)
        munmap((void *)(uintptr_t)range->base, range->span);
    if (range->aliased)
        sg_guest_unalias(range->base, range->size);
    free(range);
}

CUresult sg_range_host_free(void *address, enum sg_range_kind kind)
{
    CUresult result =
        kind == SG_RANGE_HOST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.host, (uintptr_t)address);
    if (range != NULL && range->base == (uintptr_t)address && range->kind == kind) {
        sg_range_drop_host(range);
        result = CUDA_SUCCESS;
    }
    return result;
}
