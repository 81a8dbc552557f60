/*
 * memory.c - linear, pitched and page-locked host memory, and what is known of a pointer.
 *
 * cuMemFree waits for the work queued before it, as the API has it; so freeing what queued work still uses is
 * safe. Page-locked host memory is seen by the device at its own address.
 */

#include "common/base/align.h"
#include "common/cuda/advice.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/host_pools/host_pools.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/pool.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    SG_CONTEXT_OR_RETURN(context);
    if (total != NULL)
        *total = context->device->memory_total;
    if (free_bytes != NULL)
        *free_bytes = context->device->memory_total - sg_memory_used(context->device);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    uint64_t address;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    RG_TRY(sg_range_alloc(context, context->device, size, SG_RANGE_DEVICE, NULL, &address));
    *out = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    uint64_t address;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || pitch == NULL || width == 0 || height == 0 ||
        (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (width > SG_MAX_PITCH - 511)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    size_t row = rg_align_up(width, 512);
    if (height > SIZE_MAX / row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_TRY(sg_range_alloc(context, context->device, row * height, SG_RANGE_DEVICE, NULL, &address));
    *out = address;
    *pitch = row;
    return CUDA_SUCCESS;
}

/*
 * Memory of pools is freed at once, as the API has it: its user has seen to it that nothing is left to do
 * with it.
 */
static void wait_before_free(const struct sg_range *range, struct sg_context *current)
{
    if (range->kind == SG_RANGE_ASYNC)
        return;
    sg_context_wait(current);
    if (range->context != NULL && range->context != current)
        sg_context_wait(range->context);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS(address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    RG_TRY(rg_capture_unsafe()); /* also of nothing: PyTorch relaxes captures before a cudaFree(0) */
    if (address == 0)
        return CUDA_SUCCESS;
    CUresult result;
    if (rg_graph_memory_takes_free(address, &result) || rg_host_pool_takes_free(address, NULL, &result))
        return result;
    if (!sg_range_find(address, &range) || range.base != address || range.freeing ||
        (range.kind != SG_RANGE_DEVICE && range.kind != SG_RANGE_ASYNC && range.kind != SG_RANGE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    wait_before_free(&range, context);
    RG_TRY(sg_range_free(address, range.kind));
    if (range.kind == SG_RANGE_MANAGED)
        rg_advice_forget(range.base, range.size);
    if (range.kind == SG_RANGE_ASYNC)
        sg_pool_returned(range.pool, range.size);
    return (CUresult)atomic_load(&context->sticky);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (!sg_range_find(address, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = range.base;
    if (size != NULL)
        *size = range.size;
    return CUDA_SUCCESS;
}

/* --- page-locked host memory --- */

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
    SG_CONTEXT_OR_RETURN(context);
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (out == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    if (size == 0) { /* not documented; HIP's tests, which run on NVIDIA's driver too, expect it */
        *out = NULL;
        return CUDA_SUCCESS;
    }
    return sg_range_host_alloc(context, size, flags, out);
}

CUresult cuMemFreeHost(void *address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS((uintptr_t)address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    RG_TRY(rg_capture_unsafe());
    if (address == NULL)
        return CUDA_SUCCESS;
    if (!sg_range_find((uintptr_t)address, &range) || range.base != (uintptr_t)address ||
        range.kind != SG_RANGE_HOST || rg_host_pool_at((uintptr_t)address) != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    wait_before_free(&range, context);
    return sg_range_host_free(address, SG_RANGE_HOST);
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned int flags)
{
    SG_CONTEXT_OR_RETURN(context);
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (address == NULL || size == 0 || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sg_behaviour()->registers) /* as where no more memory may be locked */
        return CUDA_ERROR_OUT_OF_MEMORY;
    return sg_range_host_register(context, address, size, flags);
}

CUresult cuMemHostUnregister(void *address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS((uintptr_t)address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (address == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_range_find((uintptr_t)address, &range) ||
        (range.kind != SG_RANGE_REGISTERED && range.kind != SG_RANGE_HOST))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range.kind != SG_RANGE_REGISTERED ||
        range.base != (uintptr_t)address) /* what was allocated: seen of NVIDIA's driver */
        return CUDA_ERROR_INVALID_VALUE;
    wait_before_free(&range, context);
    return sg_range_host_free(address, SG_RANGE_REGISTERED);
}

static bool host_range(const void *address, struct sg_range *range)
{
    return sg_range_find((uintptr_t)address, range) &&
           (range->kind == SG_RANGE_HOST || range->kind == SG_RANGE_REGISTERED);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || flags != 0 || !host_range(address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (uintptr_t)address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS((uintptr_t)address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (flags == NULL || !host_range(address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags =
        range.flags | CU_MEMHOSTALLOC_DEVICEMAP; /* all of it is mapped, asked for or not (HIP's tests) */
    return CUDA_SUCCESS;
}

/* --- pointers --- */

/* What the device of the current context may do with memory: what is mapped says so for each device. */
static int access_flags(const struct sg_range *range)
{
    const struct sg_context *context = sg_context_current();
    if (range->kind != SG_RANGE_MAPPED)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    return context == NULL ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE : range->access[context->device->ordinal];
}

/* The pool that memory is of; NULL: of none. */
static CUmemoryPool pool_of(const struct sg_range *range)
{
    if (range == NULL)
        return NULL;
    return range->pool != NULL ? (CUmemoryPool)(void *)range->pool : rg_host_pool_at(range->base);
}

/* Writes one that is true or false, for which callers give an int. False: it is no such attribute. */
static bool pointer_flag(void *out, CUpointer_attribute attribute, const struct sg_range *range)
{
    unsigned flag = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        flag = range != NULL ? (unsigned)range->sync_memops : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        flag = range != NULL;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        flag = range != NULL && sg_range_is_managed(range->kind);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* what cuIpcGetMemHandle takes */
        flag = range != NULL && range->kind == SG_RANGE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        break;
    default:
        return false;
    }
    *(unsigned *)out = flag;
    return true;
}

/* Writes the attribute of a pointer into a known range, or (range NULL) what is said of unknown pointers. */
static CUresult pointer_attribute(void *out, CUpointer_attribute attribute, uint64_t address,
                                  const struct sg_range *range)
{
    bool host = range != NULL && (range->kind == SG_RANGE_HOST || range->kind == SG_RANGE_REGISTERED);
    bool managed = range != NULL && sg_range_is_managed(range->kind);
    if (pointer_flag(out, attribute, range))
        return CUDA_SUCCESS;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out =
            range != NULL && pool_of(range) == NULL ? sg_context_handle(range->context) : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = range == NULL ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = range != NULL ? address : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)out = host || managed ? (void *)(uintptr_t)address : NULL;
        return range == NULL || host || managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)out = range != NULL ? range->buffer_id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = range != NULL ? range->device->ordinal : -2; /* cudart's mark of an unknown device */
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)out = range != NULL ? range->base : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)out = range != NULL ? range->size : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)out =
            range != NULL && range->kind == SG_RANGE_MAPPED ? range->handle_types : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)out = range != NULL ? access_flags(range) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = pool_of(range);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct sg_context *context;
    struct sg_range range;
    /* device pointers are those of the current context's kernels */
    RG_TRY(attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? sg_enter_context(&context)
                                                            : sg_enter_anywhere());
    if (out == NULL || !sg_range_find(address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(out, attribute, address, &range);
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **out,
                                CUdeviceptr address)
{
    struct sg_range range;
    RG_TRY(sg_enter_anywhere());
    if (n == 0 || attributes == NULL || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bool known = sg_range_find(address, &range);
    for (unsigned i = 0; i < n; i++) {
        CUresult result = pointer_attribute(out[i], attributes[i], address, known ? &range : NULL);
        if (result != CUDA_SUCCESS && attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    RG_TRY(sg_enter_anywhere());
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    /* Kept, and nothing else: it is for other devices that access the memory, which there are none of. */
    return sg_range_set_sync_memops(address, *(const int *)value != 0) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}
