/*
 * vmm.c - virtual memory management: reserved addresses and physical memory that is mapped there.
 *
 * What is reserved on the worker is reserved here too (address_map.h), so a device address stays one in the
 * program; each mapping is a known range, and copies may go from one into its neighbour. The worker holds one
 * reference of a handle for the client; how often the application has retained it is counted here. Access
 * from the host's side is refused; sharing with other processes is in shareable_handle.c.
 */
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>

#define ATTEMPTS 8 /* reservations tried before an address conflict with this process is given up on */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* references of handles */

static struct rg_allocation *allocation_of(CUmemGenericAllocationHandle handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_ALLOCATION, handle);
    return shadow ? &shadow->allocation : NULL;
}

static CUresult check_location(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return rg_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return rg_unsupported("virtual memory management of host memory");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_properties(const CUmemAllocationProp *prop)
{
    RG_TRY(rg_call_allowed(0));
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    return check_location(&prop->location);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    RG_TRY(check_properties(prop));
    return granularity ? rg_op_cuMemGetAllocationGranularity(granularity, prop, option)
                       : CUDA_ERROR_INVALID_VALUE;
}

/* --- addresses ------------------------------------------------------------------------------------------ */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    RG_TRY(rg_call_allowed(0));
    if (!ptr || !size)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr held[ATTEMPTS];
    int n_held = 0;
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    while (n_held < ATTEMPTS) {
        CUdeviceptr address = 0;
        const struct rg_session *session = rg_home_session(rg_home_of_address(addr));
        status = rg_op_cuMemAddressReserve(&address, size, alignment, addr, flags);
        if (status != CUDA_SUCCESS)
            break;
        if (rg_map_reserve(session->number, address, size)) {
            *ptr = address;
            break;
        }
        held[n_held++] = address; /* in use here: kept until there is another */
        addr = 0;
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (n_held == ATTEMPTS)
        rg_error("the server's device addresses collide with this program's own memory (%d tries); "
                 "reservation fails",
                 ATTEMPTS);
    while (n_held)
        (void)rg_op_cuMemAddressFree(held[--n_held], size);
    return status;
}

/* --- physical memory ------------------------------------------------------------------------------------ */

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    RG_TRY(check_properties(prop));
    if (!handle || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)prop->requestedHandleTypes &
        ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUmemGenericAllocationHandle made = rg_handle_create(RG_KIND_ALLOCATION);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *allocation_of(made) = (struct rg_allocation){
        .device = prop->location.id, .references = 1, .handle_types = (unsigned)prop->requestedHandleTypes};
    return rg_handle_made(RG_KIND_ALLOCATION, made, rg_op_cuMemCreate(&made, size, prop, flags), handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    RG_TRY(rg_call_allowed(0));
    RG_SCOPED_LOCK(&lock);
    struct rg_allocation *allocation = allocation_of(handle);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    if (--allocation->references)
        return CUDA_SUCCESS;
    const CUresult status = rg_op_cuMemRelease(handle);
    rg_handle_delete(RG_KIND_ALLOCATION, handle);
    return status;
}

/*
 * The handle of a mapping whose handle has been released: the worker's driver still knows the memory. `lock`
 * is held.
 */
static CUresult retain_remotely(CUmemGenericAllocationHandle *handle, void *address, CUdevice device)
{
    const CUmemGenericAllocationHandle proposed = rg_handle_create(RG_KIND_ALLOCATION);
    CUmemGenericAllocationHandle found = proposed;
    if (!proposed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation_of(proposed)->device = device;
    const CUresult status = rg_op_cuMemRetainAllocationHandle(&found, address, rg_home_of_device(device));
    RG_TRY(rg_handle_found(RG_KIND_ALLOCATION, proposed, found, status));
    allocation_of(found)->references++;
    *handle = found;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_range range;
    if (!handle || !rg_map_find((uint64_t)addr, &range) || range.kind != RG_RANGE_VIRTUAL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&lock);
    struct rg_allocation *allocation = allocation_of(range.allocation);
    if (!allocation)
        return retain_remotely(handle, addr, range.device);
    allocation->references++;
    *handle = range.allocation;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    RG_TRY(rg_call_allowed(0));
    if (!prop || !allocation_of(handle))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = rg_op_cuMemGetAllocationPropertiesFromHandle(prop, handle);
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        prop->location.id =
            rg_device_here(rg_home_session(rg_home_of(RG_KIND_ALLOCATION, handle)), prop->location.id);
    prop->win32HandleMetaData = NULL; /* never an address of the worker's */
    return status;
}

/* --- mappings ------------------------------------------------------------------------------------------- */

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_allocation *allocation = allocation_of(handle);
    if (!ptr || !size || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_homes_differ(rg_home_of_address(ptr), rg_home_of(RG_KIND_ALLOCATION, handle)))
        return rg_unsupported("cuMemMap of memory of one server at an address that was reserved on another");
    const struct rg_range range = {.start = ptr,
                                   .size = size,
                                   .kind = RG_RANGE_VIRTUAL,
                                   .device = allocation->device,
                                   .allocation = handle,
                                   .handle_types = allocation->handle_types};
    CUresult status = rg_op_cuMemMap(ptr, size, offset, handle, flags);
    if (status == CUDA_SUCCESS && !rg_map_add(&range)) {
        (void)rg_op_cuMemUnmap(ptr, size);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return status;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    RG_TRY(rg_call_allowed(0));
    RG_TRY(rg_op_cuMemUnmap(ptr, size));
    struct rg_range range;
    for (size_t done = 0; done < size && rg_map_remove(ptr + done, 1u << RG_RANGE_VIRTUAL, &range);)
        done += range.size;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    RG_TRY(rg_call_allowed(0));
    if (!desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        RG_TRY(check_location(&desc[i].location));
    RG_TRY(rg_op_cuMemSetAccess(ptr, size, desc, count));
    for (size_t i = 0; i < count; i++)
        rg_map_set_access(ptr, size, desc[i].location.id, desc[i].flags);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    RG_TRY(rg_call_allowed(0));
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_location(location));
    return rg_op_cuMemGetAccess(flags, location, ptr);
}
