/*
 * vmm.c - virtual memory management: physical memory that the application maps at addresses it has reserved.
 *
 * All physical memory is one file in memory, of which each allocation has a part that is never used again: a
 * mapping is a shared mapping of that part, so several of one allocation show the same bytes, and freed
 * memory is a hole in the file. An allocation lives until its handle is released as often as it was created
 * and retained, and its last mapping is gone. Reservations and mappings are kept in range_mapped.c. Memory
 * that is to be shared with other processes has a file of its own (shared_file.h), of which an export is
 * another descriptor.
 *
 * One lock for the counts of allocations; it is taken before those of the handles and of the ranges.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sync/scoped_lock.h"
#include "softgpu/driver/memory/vmm.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

struct sg_allocation {
    struct sg_object object;
    struct sg_device *device;
    CUmemAllocationProp properties;
    uint64_t size, offset;
    int file;                          /* where it is: the common one, or its own */
    bool own_file;                     /* closed with the allocation */
    bool imported;                     /* counted by the process that made it */
    bool exported;                     /* another process may have it; physical.lock */
    unsigned handles, mappings;        /* physical.lock */
    struct sg_allocation *next_unused; /* in physical.unused */
};

static struct {
    pthread_mutex_t lock;
    int file;                     /* -1 until there is an allocation */
    uint64_t next;                /* where the next allocation's part begins: the file's size */
    struct sg_allocation *unused; /* found while the ranges were locked: to be ended after that */
    _Atomic unsigned common;      /* allocations that another process has a part in */
} physical = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

static void finish_allocation(struct sg_object *object)
{
    struct sg_allocation *allocation = (struct sg_allocation *)object;
    if (allocation->own_file)
        close(allocation->file);
    else if (fallocate(allocation->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       (off_t)allocation->offset, (off_t)allocation->size) != 0)
        rg_warn("%llu bytes of device memory cannot be given back: %s", (unsigned long long)allocation->size,
                strerror(errno));
    if (!allocation->imported)
        sg_memory_give_back(allocation->device, allocation->size);
    if (allocation->imported || allocation->exported)
        atomic_fetch_sub(&physical.common, 1);
    free(allocation);
}

bool sg_allocations_common(void)
{
    return atomic_load(&physical.common) > 0;
}

/* Ends the allocation if nothing holds it any more. The lock is held. */
static void drop_if_unused(struct sg_allocation *allocation)
{
    if (allocation->handles == 0 && allocation->mappings == 0 &&
        sg_handle_remove(allocation, SG_KIND_ALLOCATION))
        sg_release(&allocation->object);
}

/* The allocation that a handle names, with a reference; the lock is held. */
static struct sg_allocation *allocation_of(CUmemGenericAllocationHandle handle)
{
    struct sg_allocation *allocation = sg_handle_get((void *)(uintptr_t)handle, SG_KIND_ALLOCATION);
    if (allocation != NULL && allocation->handles == 0) { /* only its mappings keep it */
        sg_release(&allocation->object);
        return NULL;
    }
    return allocation;
}

static CUresult check_location(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sg_device(location->id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return sg_unsupported("virtual memory management of host memory");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    if (properties == NULL || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    return check_location(&properties->location);
}

static bool is_granular(uint64_t value)
{
    return value % SG_GRANULARITY == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    RG_TRY(sg_enter());
    if (granularity == NULL ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_properties(properties));
    *granularity = SG_GRANULARITY;
    return CUDA_SUCCESS;
}

/* --- addresses --- */

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    uint64_t address;
    RG_TRY(sg_enter());
    if (out == NULL || size == 0 || !is_granular(size) || (alignment & (alignment - 1)) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_range_reserve(size, alignment, hint, &address));
    *out = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    RG_TRY(sg_enter());
    return sg_range_unreserve(address, size);
}

/* --- memory --- */

/* A file of the allocation's own. */
static bool take_file(struct sg_allocation *allocation, struct sg_device *device, uint64_t size)
{
    struct sg_shared_file about = {.kind = SG_SHARED_ALLOCATION, .device = device, .size = size};
    allocation->file = sg_shared_file_new(&about);
    allocation->own_file = true;
    return allocation->file >= 0;
}

/* Makes it known; the lock is held. */
static void add_allocation(struct sg_allocation *allocation, struct sg_device *device,
                           const CUmemAllocationProp *properties, uint64_t size)
{
    allocation->device = device;
    allocation->properties = *properties;
    allocation->size = size;
    allocation->handles = 1;
    sg_handle_add(&allocation->object, SG_KIND_ALLOCATION, NULL, finish_allocation);
}

/* A part of the file for `size` bytes; the lock is held. */
static bool take_part(uint64_t size, uint64_t *offset)
{
    if (physical.file < 0)
        physical.file = memfd_create("softgpu", MFD_CLOEXEC);
    if (physical.file < 0 || ftruncate(physical.file, (off_t)(physical.next + size)) != 0) {
        rg_warn("no file for %llu bytes of device memory: %s", (unsigned long long)size, strerror(errno));
        return false;
    }
    *offset = physical.next;
    physical.next += size;
    return true;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    RG_TRY(sg_enter());
    if (out == NULL || size == 0 || !is_granular(size) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_properties(properties));
    const bool to_share = properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!to_share && properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sg_device *device = sg_device(properties->location.id);
    if (!sg_memory_take(device, size)) {
        if (sg_pool_hooks.reclaim != NULL)
            sg_pool_hooks.reclaim(device);
        if (!sg_memory_take(device, size))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sg_allocation *allocation = calloc(1, sizeof *allocation);
    pthread_mutex_lock(&physical.lock);
    const bool made = allocation != NULL &&
                      (to_share ? take_file(allocation, device, size) : take_part(size, &allocation->offset));
    if (made) {
        if (!to_share)
            allocation->file = physical.file;
        add_allocation(allocation, device, properties, size);
        *out = (uintptr_t)allocation;
    }
    pthread_mutex_unlock(&physical.lock);
    if (!made) {
        free(allocation);
        sg_memory_give_back(device, size);
    }
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    RG_TRY(sg_enter());
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&physical.lock);
    struct sg_allocation *allocation = allocation_of(handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (allocation != NULL && allocation->own_file && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        int copy = fcntl(allocation->file, F_DUPFD_CLOEXEC, 0);
        result = copy < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
        if (copy >= 0)
            *(int *)out = copy;
        if (copy >= 0 && !allocation->imported && !allocation->exported) {
            allocation->exported = true;
            atomic_fetch_add(&physical.common, 1);
        }
    }
    pthread_mutex_unlock(&physical.lock);
    if (allocation != NULL)
        sg_release(&allocation->object);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
                                        CUmemAllocationHandleType type)
{
    struct sg_shared_file about;
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return type == CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    const int given = (int)(intptr_t)handle;
    if (!sg_shared_file_known(given, SG_SHARED_ALLOCATION, &about) || !is_granular(about.size))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_allocation *allocation = calloc(1, sizeof *allocation);
    int file = allocation == NULL ? -1 : fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->file = file;
    allocation->own_file = allocation->imported = true;
    atomic_fetch_add(&physical.common, 1);
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = about.device->ordinal},
    };
    RG_SCOPED_LOCK(&physical.lock);
    add_allocation(allocation, about.device, &properties, about.size);
    *out = (uintptr_t)allocation;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    RG_TRY(sg_enter());
    RG_SCOPED_LOCK(&physical.lock);
    struct sg_allocation *allocation = allocation_of(handle);
    if (allocation != NULL) {
        allocation->handles--;
        drop_if_unused(allocation);
        sg_release(&allocation->object);
    }
    return allocation != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    struct sg_range range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_enter());
    if (out == NULL)
        return result;
    pthread_mutex_lock(&physical.lock); /* keeps what is mapped mapped */
    if (sg_range_find((uintptr_t)address, &range) && range.kind == SG_RANGE_MAPPED) {
        range.allocation->handles++;
        *out = (uintptr_t)range.allocation;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&physical.lock);
    return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&physical.lock);
    struct sg_allocation *allocation = allocation_of(handle);
    if (allocation != NULL)
        *out = allocation->properties;
    pthread_mutex_unlock(&physical.lock);
    if (allocation == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_release(&allocation->object);
    return CUDA_SUCCESS;
}

/* --- mappings --- */

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    RG_TRY(sg_enter());
    if (size == 0 || !is_granular(size) || !is_granular(address) || offset != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE; /* the API wants an offset of 0 */
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&physical.lock);
    struct sg_allocation *allocation = allocation_of(handle);
    if (allocation != NULL && size <= allocation->size) {
        const struct sg_mapping mapping = {
            .file = allocation->file,
            .offset = allocation->offset,
            .allocation = allocation,
            .device = allocation->device,
            .handle_types = (unsigned)allocation->properties.requestedHandleTypes,
        };
        result = sg_range_map(address, size, &mapping);
    }
    if (result == CUDA_SUCCESS)
        allocation->mappings++;
    if (allocation != NULL)
        sg_release(&allocation->object);
    return result;
}

static void unmapped(struct sg_allocation *allocation)
{
    if (--allocation->mappings > 0 || allocation->handles > 0)
        return;
    allocation->next_unused = physical.unused;
    physical.unused = allocation;
}

/* What queued work may still use is not taken away under it. */
CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    RG_TRY(sg_enter());
    if (size == 0 || !is_granular(size) || !is_granular(address) || !sg_range_is_mapped(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    sg_all_wait();
    RG_SCOPED_LOCK(&physical.lock);
    CUresult result = sg_range_unmap(address, size, unmapped);
    while (physical.unused != NULL) {
        struct sg_allocation *allocation = physical.unused;
        physical.unused = allocation->next_unused;
        drop_if_unused(allocation);
    }
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *descriptions, size_t count)
{
    RG_TRY(sg_enter());
    if (size == 0 || !is_granular(size) || !is_granular(address) || descriptions == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        RG_TRY(check_location(&descriptions[i].location));
        if (descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return sg_range_set_access(address, size, descriptions, count);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    struct sg_range range;
    RG_TRY(sg_enter());
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_location(location));
    if (!sg_range_find(address, &range) || range.kind != SG_RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range.access[location->id];
    return CUDA_SUCCESS;
}
