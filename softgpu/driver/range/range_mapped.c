/*
 * range_mapped.c - addresses that applications reserve, in the upper half of the window, and what they map
 * there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/cleanup.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/range/internal.h"

/* Whether [address, address + size) lies above the middle of the window and meets no reservation. */
static bool can_reserve(uint64_t address, uint64_t size)
{
    const struct sg_range_set *set = &sg_memory.reserved;
    const size_t above = sg_range_set_upper(set, address);
    return address >= sg_memory.middle && sg_range_fits(address, size, sg_memory.end) &&
           (above == 0 || set->at[above - 1]->base + set->at[above - 1]->size <= address) &&
           (above == set->n || set->at[above]->base - address >= size);
}

CUresult sg_range_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address)
{
    RG_CLEANUP_FREE struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (alignment < SG_GRANULARITY)
        alignment = SG_GRANULARITY;
    *range = (struct sg_range){.size = size, .span = size, .kind = SG_RANGE_RESERVED};
    RG_SCOPED_LOCK(&sg_memory.lock);
    if (sg_memory.start == 0 && !sg_window_reserve())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (hint != 0 && hint % alignment == 0 && can_reserve(hint, size))
        range->base = hint;
    else
        range->base = sg_range_set_place(&sg_memory.reserved, sg_memory.middle, sg_memory.end,
                                         sg_memory.reserved_cursor, size, alignment);
    if (range->base == 0 || !sg_range_set_insert(&sg_memory.reserved, range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (range->base != hint)
        sg_memory.reserved_cursor = range->base + size;
    *address = range->base;
    range = NULL; /* the set's */
    return CUDA_SUCCESS;
}

/* Whether a mapping meets [address, address + size). Lock held. */
static bool meets_mapping(uint64_t address, uint64_t size)
{
    const size_t above = sg_range_set_upper(&sg_memory.device, address);
    return sg_range_set_find(&sg_memory.device, address) != NULL ||
           (above < sg_memory.device.n && sg_memory.device.at[above]->base - address < size);
}

CUresult sg_range_unreserve(uint64_t address, uint64_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.reserved, address);
    if (range != NULL && range->base == address && range->size == size && !meets_mapping(address, size)) {
        sg_range_set_remove(&sg_memory.reserved, range);
        free(range);
        result = CUDA_SUCCESS;
    }
    return result;
}

CUresult sg_range_map(uint64_t address, uint64_t size, const struct sg_mapping *mapping)
{
    RG_CLEANUP_FREE struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = (struct sg_range){.base = address,
                               .size = size,
                               .span = size,
                               .kind = SG_RANGE_MAPPED,
                               .device = mapping->device,
                               .allocation = mapping->allocation,
                               .handle_types = mapping->handle_types,
                               .file = mapping->file,
                               .file_offset = mapping->offset};
    RG_SCOPED_LOCK(&sg_memory.lock);
    const struct sg_range *reserved = sg_range_set_find(&sg_memory.reserved, address);
    if (reserved == NULL || size > reserved->size - (address - reserved->base) ||
        meets_mapping(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    range->buffer_id = ++sg_memory.next_id;
    if (!sg_range_set_insert(&sg_memory.device, range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, mapping->file,
                    (off_t)mapping->offset);
    if (at == MAP_FAILED) {
        rg_warn("mapping %llu bytes of device memory: %s", (unsigned long long)size, strerror(errno));
        sg_range_set_remove(&sg_memory.device, range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_window_advise(at, size);
    range = NULL; /* the set's */
    return CUDA_SUCCESS;
}

/*
 * The index of the first of the whole mappings that make up [address, address + size), and behind the last;
 * false if they do not. Lock held.
 */
static bool mappings(uint64_t address, uint64_t size, size_t *begin, size_t *end)
{
    const struct sg_range_set *set = &sg_memory.device;
    size_t i = *begin = sg_range_set_upper(set, address - 1);
    for (; size > 0; i++) {
        if (i == set->n || set->at[i]->kind != SG_RANGE_MAPPED || set->at[i]->base != address ||
            set->at[i]->size > size)
            return false;
        address += set->at[i]->size;
        size -= set->at[i]->size;
    }
    *end = i;
    return i > *begin;
}

bool sg_range_is_mapped(uint64_t address, uint64_t size)
{
    size_t begin, end;
    RG_SCOPED_LOCK(&sg_memory.lock);
    const bool whole = mappings(address, size, &begin, &end);
    return whole;
}

CUresult sg_range_unmap(uint64_t address, uint64_t size, void (*gone)(struct sg_allocation *allocation))
{
    size_t begin, end;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sg_memory.lock);
    if (!mappings(address, size, &begin, &end))
        goto out;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!sg_window_map_nothing((void *)(uintptr_t)address, size))
        goto out;
    while (end-- > begin) {
        struct sg_range *range = sg_memory.device.at[end];
        sg_range_set_remove(&sg_memory.device, range);
        gone(range->allocation);
        free(range);
    }
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&sg_memory.lock);
    return result;
}

CUresult sg_range_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc *descriptions, size_t n)
{
    size_t begin, end;
    CUresult result = CUDA_SUCCESS;
    RG_SCOPED_LOCK(&sg_memory.lock);
    if (!mappings(address, size, &begin, &end))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = begin; result == CUDA_SUCCESS && i < end; i++) {
        struct sg_range *range = sg_memory.device.at[i];
        for (size_t j = 0; j < n; j++)
            range->access[descriptions[j].location.id] = (unsigned char)descriptions[j].flags;
        if (mprotect((void *)(uintptr_t)range->base, range->size, sg_range_protection(range)) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}
