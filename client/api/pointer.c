/*
 * pointer.c - what is known of a pointer: its range, and its attributes.
 *
 * All of it is answered from the map of addresses (address_map.h), but for what a device may do with memory that is mapped. Any
 * thread; no locks.
 */
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "common/cuda/host_pools/host_pools.h"

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    if (!rg_map_find(dptr, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = range.start;
    if (psize)
        *psize = range.size;
    return CUDA_SUCCESS;
}

/* What the device of the current context may do with memory: what is mapped says so for each device. */
static CUresult access_flags(const struct rg_range *range, CUdeviceptr pointer, CUmemAccess_flags *out)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rg_device_current()};
    unsigned long long flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult status = CUDA_SUCCESS;
    if (range->kind == RG_RANGE_VIRTUAL && here.id < 0)
        flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    else if (range->kind == RG_RANGE_VIRTUAL)
        status = cuMemGetAccess(&flags, &here, pointer);
    if (status == CUDA_SUCCESS)
        *out = (CUmemAccess_flags)flags;
    return status;
}

/* Writes one that is true or false, for which callers give an int. False: it is no such attribute. */
static bool describe_flag(const struct rg_range *range, CUpointer_attribute attribute, void *data)
{
    unsigned flag = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MAPPED:
        flag = 1;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        flag = range->kind == RG_RANGE_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        flag = range->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* what cuIpcGetMemHandle takes */
        flag = range->kind == RG_RANGE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        break;
    default:
        return false;
    }
    *(unsigned *)data = flag;
    return true;
}

/* Writes one attribute of a known range. CUDA_ERROR_INVALID_VALUE: it has no such attribute. */
static CUresult describe(const struct rg_range *range, CUpointer_attribute attribute, CUdeviceptr pointer,
                         void *data)
{
    if (describe_flag(range, attribute, data))
        return CUDA_SUCCESS;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = range->kind == RG_RANGE_POOL || rg_host_pool_at(range->start) ? NULL
                             : range->opened_in ? (CUcontext)range->opened_in
                                                : (CUcontext)range->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = rg_range_pinned(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: /* page-locked memory is mapped when a kernel sees it */
        *(CUdeviceptr *)data = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!rg_range_shared(range))
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = range->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = range->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = range->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = range->handle_types;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return access_flags(range, pointer, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = range->pool ? (CUmemoryPool)range->pool : rg_host_pool_at(range->start);
        return range->kind == RG_RANGE_POOL && !range->pool ? cuDeviceGetDefaultMemPool(data, range->device)
                                                            : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What an attribute is for a pointer that CUDA knows nothing of (cuPointerGetAttributes). */
static CUresult describe_unknown(CUpointer_attribute attribute, void *data)
{
    const struct rg_range none = {.device = -2,
                                  .kind = RG_RANGE_REGISTERED}; /* -2: the runtime's mark of no device */
    RG_TRY(describe(&none, attribute, 0, data));
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)
        *(unsigned *)data = 0;
    else if (attribute == CU_POINTER_ATTRIBUTE_MAPPED)
        *(unsigned *)data = 0;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    /* device pointers are those of the current context's kernels */
    RG_TRY(attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? rg_call_allowed(RG_TRAIT_CONTEXT)
                                                            : rg_call_allowed_anywhere());
    struct rg_range range;
    if (!data || !rg_map_find(ptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return describe(&range, attribute, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    RG_TRY(rg_call_allowed_anywhere());
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    bool known = rg_map_find(ptr, &range);
    for (unsigned i = 0; i < numAttributes; i++) {
        const CUresult status =
            known ? describe(&range, attributes[i], ptr, data[i]) : describe_unknown(attributes[i], data[i]);
        if (status == CUDA_SUCCESS)
            continue;
        if (attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER)
            return status;
        *(void **)data[i] = NULL; /* device memory has none, which is no error here */
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    RG_TRY(rg_call_allowed_anywhere());
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    /* Kept, and nothing else: it is for other devices that access the memory, which there are none of here. */
    return rg_map_set_sync_memops(ptr, *(const int *)value != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
