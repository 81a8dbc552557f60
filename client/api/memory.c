/*
 * memory.c - allocations on the device, and what is known of a pointer.
 *
 * Device memory is the worker's: made ready before (prealloc.h), or asked for. Its range is reserved in this
 * address space (address_map.h).
 */
#include "client/api/memory.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/thread.h"
#include "client/multiserver/context_scope.h"
#include "client/multiserver/proxy.h"
#include "client/prealloc/prealloc.h"
#include "client/prefetch/startup_profile.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/base/log.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <sys/mman.h>

/*
 * --- memory of pools: what they hold and do not use ----------------------------------------------------------
 */

/* Whether pools may hold memory that they would have given back if their driver had seen all waits of the program. */
enum pools { NO_POOLS, WAITED, FREED };
static _Atomic enum pools pools;

void rg_pools_waited(void)
{
    if (atomic_load_explicit(&pools, memory_order_relaxed) == FREED)
        atomic_store(&pools, WAITED);
}

/*
 * The program asks how much memory there is. What pools have ready for it is no part of that, and goes back; and pools have
 * given back what they do not hold on to if the program has waited, also where this client knew by itself that there was
 * nothing left to wait for.
 */
static void settle_pools(void)
{
    const int state = atomic_load(&pools);
    if (state == NO_POOLS)
        return;
    rg_prealloc_give_back_pools();
    if (state == WAITED && rg_context_current() && rg_session_current()->op_numbers[RG_OP_rgPoolsSettle])
        (void)rg_op_rgPoolsSettle();
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    settle_pools();
    return rg_op_cuMemGetInfo_v2(free, total);
}

/*
 * --- device memory ----------------------------------------------------------------------------------------
 */

#define ATTEMPTS 8 /* allocations tried before an address conflict with this process is given up on */

/* One way of asking the worker for memory. */
struct request {
    CUresult (*ask)(const struct request *request, CUdeviceptr *address);
    enum rg_range_kind kind;
    size_t size; /* bytes; set by `ask` where the worker decides (pitch) */
    size_t *pitch;
    size_t width, height;
    unsigned element;
    CUstream stream;
    CUmemoryPool pool;
};

static void give_back(const struct request *request, CUdeviceptr address)
{
    if (request->kind == RG_RANGE_POOL)
        (void)rg_op_cuMemFreeAsync(address, request->stream);
    else
        (void)rg_op_cuMemFree_v2(address);
}

/* Bytes of what a request has been given. */
static size_t bytes_of(const struct request *request)
{
    return request->pitch ? *request->pitch * request->height : request->size;
}

/* One that is ready, or else one that is asked for. */
static CUresult get(const struct request *request, bool may_be_ready, CUdeviceptr *address)
{
    const struct rg_prealloc_key key = {.kind = request->kind == RG_RANGE_POOL ? RG_PREALLOC_ORDERED
                                                : request->pitch               ? RG_PREALLOC_PITCHED
                                                                               : RG_PREALLOC_LINEAR,
                                        .size = request->pitch ? request->width : request->size,
                                        .height = request->height,
                                        .element = request->element,
                                        .stream = request->stream,
                                        .pool = request->pool};
    struct rg_prealloc_block block;
    if (may_be_ready && rg_prealloc_take(&key, &block)) {
        rg_probe_saved(RG_OPT_PREALLOC);
        *address = block.address;
        if (request->pitch)
            *request->pitch = block.pitch;
        rg_startup_profile_note_memory(&key, bytes_of(request));
        return CUDA_SUCCESS;
    }
    CUresult status = request->ask(request, address);
    if (status == CUDA_SUCCESS) {
        rg_prealloc_want(&key);
        rg_startup_profile_note_memory(&key, bytes_of(request));
    }
    return status;
}

/*
 * The pools that cuMemAllocAsync takes from, as the program has chosen them (0: the device's default); lock-free, as who
 * changes the pool while others allocate does not know either which one they get.
 */
static _Atomic uint64_t current_pools[RG_DEVICES_MAX];

/* The pool that memory comes from; NULL: of its device's default pool, or of none. */
static CUmemoryPool pool_of(const struct request *request)
{
    const CUdevice device = rg_device_current();
    if (request->kind != RG_RANGE_POOL || request->pool || device < 0)
        return request->pool;
    return (CUmemoryPool)atomic_load(&current_pools[device]);
}

static void pool_ends(CUmemoryPool pool)
{
    for (unsigned device = 0; device < RG_DEVICES_MAX; device++) {
        uint64_t was = (uint64_t)pool;
        atomic_compare_exchange_strong(&current_pools[device], &was, 0);
    }
}

/*
 * Asks until the address is free in this process too; addresses in conflict are held meanwhile, then given
 * back.
 */
static CUresult allocate(struct request *request, CUdeviceptr *out)
{
    CUdeviceptr held[ATTEMPTS];
    int n_held = 0;
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    while (n_held < ATTEMPTS) {
        CUdeviceptr address = 0;
        status = get(request, n_held == 0, &address);
        if (status != CUDA_SUCCESS)
            break;
        size_t size = bytes_of(request);
        struct rg_range range = {.start = address,
                                 .size = size,
                                 .kind = request->kind,
                                 .context = rg_context_current(),
                                 .device = rg_device_current(),
                                 .pool = (uint64_t)pool_of(request)};
        if (rg_map_reserve(rg_session_current()->number, address, size)) {
            if (rg_map_add(&range)) {
                *out = address;
            } else {
                give_back(request, address);
                status = CUDA_ERROR_OUT_OF_MEMORY;
            }
            break;
        }
        held[n_held++] = address;
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (n_held == ATTEMPTS)
        rg_error("the server's device addresses collide with this program's own memory (%d tries); "
                 "allocation fails",
                 ATTEMPTS);
    while (n_held)
        give_back(request, held[--n_held]);
    return status;
}

static CUresult ask_linear(const struct request *request, CUdeviceptr *address)
{
    return rg_op_cuMemAlloc_v2(address, request->size);
}

CUresult rg_memory_get(size_t size, CUdeviceptr *address)
{
    const struct request request = {.ask = ask_linear, .kind = RG_RANGE_DEVICE, .size = size};
    return get(&request, true, address);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!dptr || !bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    struct request request = {.ask = ask_linear, .kind = RG_RANGE_DEVICE, .size = bytesize};
    return allocate(&request, dptr);
}

static CUresult ask_pitched(const struct request *request, CUdeviceptr *address)
{
    return rg_op_cuMemAllocPitch_v2(address, request->pitch, request->width, request->height,
                                    request->element);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!dptr || !pPitch || !WidthInBytes || !Height)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_capture_unsafe());
    size_t pitch = 0;
    struct request request = {.ask = ask_pitched,
                              .kind = RG_RANGE_DEVICE,
                              .pitch = &pitch,
                              .width = WidthInBytes,
                              .height = Height,
                              .element = ElementSizeBytes};
    CUresult status = allocate(&request, dptr);
    if (status == CUDA_SUCCESS)
        *pPitch = pitch;
    return status;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult status = rg_call_allowed(RG_TRAIT_CONTEXT);
    if (status == CUDA_SUCCESS)
        status = rg_capture_unsafe(); /* also of nothing */
    if (status != CUDA_SUCCESS || !dptr)
        return status;
    if (rg_graph_memory_takes_free(dptr, &status))
        return status;
    if (rg_transfers_may_write_host()) /* this waits for the device, and programs read then what it brings */
        (void)rg_timeline_wait_context(NULL);
    if (rg_map_remove(dptr, 1u << RG_RANGE_MANAGED, NULL))
        return rg_managed_free(dptr, &status) ? status : CUDA_ERROR_INVALID_VALUE;
    const uint64_t owner = rg_home_of_address(dptr);
    struct rg_range range;
    if (!rg_map_remove(dptr, 1u << RG_RANGE_DEVICE | 1u << RG_RANGE_POOL, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == RG_RANGE_POOL)
        atomic_store(&pools, FREED);
    else
        rg_startup_profile_note_free(range.context, range.size);
    if (!rg_homes_differ(owner, 0))
        return rg_op_cuMemFree_v2(dptr);
    struct rg_thread *thread = rg_thread_current(); /* of another server than the current context */
    if (!rg_thread_push_context(thread, owner))
        return CUDA_ERROR_OUT_OF_MEMORY;
    status = rg_op_cuMemFree_v2(dptr);
    thread->n_contexts--;
    return status;
}

static CUresult ask_async(const struct request *request, CUdeviceptr *address)
{
    return request->pool
               ? rg_op_cuMemAllocFromPoolAsync(address, request->size, request->pool, request->stream)
               : rg_op_cuMemAllocAsync(address, request->size, request->stream);
}

static CUresult allocate_async(CUdeviceptr *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    if (!dptr || !size)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE);
    if (status != CUDA_SUCCESS)
        return status;
    if (rg_capture_takes(stream)) {
        CUdevice device;
        status = cuStreamGetDevice(stream, &device);
        return status == CUDA_SUCCESS ? rg_capture_allocate(dptr, size, device, stream) : status;
    }
    struct request request = {.ask = ask_async,
                              .kind = RG_RANGE_POOL,
                              .size = size,
                              .pool = pool,
                              .stream = rg_effective_stream(stream)};
    enum pools none = NO_POOLS;
    atomic_compare_exchange_strong(&pools, &none, WAITED);
    bool entered; /* what is allocated is of the stream's device */
    status = rg_context_scope_enter_stream(stream, &entered);
    if (status == CUDA_SUCCESS)
        status = allocate(&request, dptr);
    if (entered)
        rg_context_scope_leave();
    return status;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    CUresult status = rg_call_allowed(RG_TRAIT_CONTEXT);
    return status != CUDA_SUCCESS ? status : allocate_async(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    return allocate_async(dptr, bytesize, pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    CUresult status = rg_handle_check(RG_KIND_STREAM, (uint64_t)hStream, CUDA_ERROR_INVALID_HANDLE);
    if (status != CUDA_SUCCESS)
        return status;
    if (rg_capture_takes(hStream))
        return rg_capture_free(dptr, hStream);
    if (rg_graph_memory_takes_free(dptr, &status))
        return status;
    const uint64_t owner = rg_home_of_address(dptr);
    struct rg_range range;
    if (!rg_map_remove(dptr, 1u << RG_RANGE_POOL | 1u << RG_RANGE_DEVICE, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == RG_RANGE_DEVICE) /* which may be freed so, too */
        rg_startup_profile_note_free(range.context, range.size);
    atomic_store(&pools, FREED);
    struct rg_proxy proxy; /* the memory may be of another server than the stream */
    status = rg_proxy_begin(&proxy, owner, rg_effective_stream(hStream), false);
    return status == CUDA_SUCCESS ? rg_proxy_end(&proxy, rg_op_cuMemFreeAsync(dptr, proxy.stream)) : status;
}

static CUresult check_pool(CUmemoryPool pool)
{
    CUresult status = rg_call_allowed(0);
    return status == CUDA_SUCCESS && !rg_handle_known(RG_KIND_POOL, (uint64_t)pool) ? CUDA_ERROR_INVALID_VALUE
                                                                                    : status;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(pool);
    CUresult status = rg_op_cuMemPoolDestroy(pool);
    if (status == CUDA_SUCCESS) {
        pool_ends(pool);
        rg_handle_delete(RG_KIND_POOL, (uint64_t)pool);
    }
    return status;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(pool);
    return rg_op_cuMemPoolTrimTo(pool, minBytesToKeep);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    RG_TRY(check_pool(pool));
    rg_prealloc_give_back_pool(NULL); /* the next allocations are of another one */
    const CUresult status = rg_op_cuDeviceSetMemPool(dev, pool);
    if (status == CUDA_SUCCESS && rg_device(dev))
        atomic_store(&current_pools[dev], (uint64_t)pool);
    return status;
}

/* Attributes of pools are int or cuuint64_t, by name. */
static bool attribute_is_wide(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    if (!value || !rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    rg_prealloc_give_back_pool(pool); /* what is ready is not in use */
    unsigned long long number =
        attribute_is_wide(attr) ? *(cuuint64_t *)value : (unsigned long long)*(int *)value;
    return rg_op_rgMemPoolSetAttribute(pool, attr, number);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    if (!value || !rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned long long number = 0;
    settle_pools();
    RG_TRY(rg_op_rgMemPoolGetAttribute(pool, attr, &number));
    if (attribute_is_wide(attr))
        *(cuuint64_t *)value = number;
    else
        *(int *)value = (int)number;
    return CUDA_SUCCESS;
}

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

/*
 * --- pointers ---------------------------------------------------------------------------------------------
 */

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

/* Writes one attribute of a known range. CUDA_ERROR_INVALID_VALUE: it has no such attribute. */
static CUresult describe(const struct rg_range *range, CUpointer_attribute attribute, CUdeviceptr pointer,
                         void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = range->kind == RG_RANGE_POOL ? NULL : (CUcontext)range->context;
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
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned char *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = range->handle_types;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return access_flags(range, pointer, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)range->pool;
        return range->kind == RG_RANGE_POOL && !range->pool ? cuDeviceGetDefaultMemPool(data, range->device)
                                                            : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = range->kind == RG_RANGE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = range->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* what cuIpcGetMemHandle takes */
        *(unsigned *)data = range->kind == RG_RANGE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
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
        *(unsigned char *)data = 0;
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
    CUresult status = rg_call_allowed_anywhere();
    if (status != CUDA_SUCCESS)
        return status;
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    bool known = rg_map_find(ptr, &range);
    for (unsigned i = 0; i < numAttributes; i++) {
        status =
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

/*
 * --- pools by location: those of devices are all there are
 * ---------------------------------------------------
 */

static CUresult pool_location(const void *out, const CUmemLocation *location, CUmemAllocationType type)
{
    RG_TRY(rg_call_allowed(0));
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!location)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!rg_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    CUresult status = pool_location(pool_out, location, type);
    return status == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, location->id) : status;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUresult status = pool_location(pool, location, type);
    return status == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : status;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult status = pool_location(pool, location, type);
    return status == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : status;
}
