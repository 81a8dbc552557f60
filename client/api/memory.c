/*
 * memory.c - allocations on the device, at once and in the order of a stream.
 *
 * Device memory is the worker's: made ready before (prealloc.h), or asked for. Its range is reserved in this
 * address space (address_map.h).
 */
#include "client/api/memory.h"

#include "client/api/device_wait.h"
#include "client/api/memory_pool.h"
#include "client/api/stream.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/thread.h"
#include "client/multiserver/proxy.h"
#include "client/prealloc/prealloc.h"
#include "client/prefetch/startup_profile.h"
#include "common/base/log.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/host_pools/host_pools.h"
#include "generated/client/operations.h"

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    rg_pools_settle();
    return rg_op_cuMemGetInfo_v2(free, total);
}

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
    RG_TRY(request->ask(request, address));
    rg_prealloc_want(&key);
    rg_startup_profile_note_memory(&key, bytes_of(request));
    return CUDA_SUCCESS;
}

/* The pool that memory comes from; NULL: of its device's default pool, or of none. */
static CUmemoryPool pool_of(const struct request *request)
{
    const CUdevice device = rg_device_current();
    if (request->kind != RG_RANGE_POOL || request->pool || device < 0)
        return request->pool;
    return rg_pool_current(device);
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
                                 .context = rg_context_current_owner(),
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
    RG_TRY(allocate(&request, dptr));
    *pPitch = pitch;
    return CUDA_SUCCESS;
}

/* `owner`: of the memory, which may be of another server than the current context. */
static CUresult put_free(const struct rg_range *range, uint64_t owner)
{
    if (!rg_homes_differ(owner, 0))
        return rg_op_cuMemFree_v2(range->start);
    RG_TRY(rg_context_scope_enter(owner));
    const CUresult status = rg_op_cuMemFree_v2(range->start);
    rg_context_scope_leave();
    return status;
}

/* Memory of pools is freed at once, as its user has seen to it that nothing is left to do with it; all else when the device is done. */
static CUresult free_when_done(const struct rg_range *range, uint64_t owner)
{
    struct rg_device_wait wait;
    CUresult status = CUDA_ERROR_INVALID_VALUE;
    rg_device_wait_begin(&wait, rg_context_current_handle(), range->context);
    if (range->kind == RG_RANGE_MANAGED) {
        (void)rg_managed_free(range->start, &status);
    } else {
        rg_startup_profile_note_free(range->context, range->size);
        status = put_free(range, owner);
    }
    rg_device_wait_end(&wait);
    return status;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult status;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(rg_capture_unsafe()); /* also of nothing */
    if (!dptr)
        return CUDA_SUCCESS;
    if (rg_graph_memory_takes_free(dptr, &status) || rg_host_pool_takes_free(dptr, NULL, &status))
        return status;
    const uint64_t owner = rg_home_of_address(dptr);
    struct rg_range range;
    if (!rg_map_remove(dptr, 1u << RG_RANGE_DEVICE | 1u << RG_RANGE_POOL | 1u << RG_RANGE_MANAGED, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind != RG_RANGE_POOL)
        return free_when_done(&range, owner);
    rg_pools_freed();
    return put_free(&range, owner);
}

static CUresult ask_async(const struct request *request, CUdeviceptr *address)
{
    return request->pool
               ? rg_op_cuMemAllocFromPoolAsync(address, request->size, request->pool, request->stream)
               : rg_op_cuMemAllocAsync(address, request->size, request->stream);
}

static CUresult allocate_async(CUdeviceptr *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE));
    if (rg_capture_takes(stream)) {
        CUdevice device;
        RG_TRY(cuStreamGetDevice(stream, &device));
        return rg_capture_allocate(dptr, size, device, stream);
    }
    if (!size) { /* docs/software-device.md, "Where documents are silent or disagree" */
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    struct request request = {.ask = ask_async,
                              .kind = RG_RANGE_POOL,
                              .size = size,
                              .pool = pool,
                              .stream = rg_effective_stream(stream)};
    rg_pools_used();
    bool entered; /* what is allocated is of the stream's device */
    RG_TRY(rg_context_scope_enter_stream(stream, &entered));
    const CUresult status = allocate(&request, dptr);
    if (entered)
        rg_context_scope_leave();
    return status;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return allocate_async(dptr, bytesize, NULL, hStream);
}

static CUresult allocate_of_host(CUdeviceptr *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    RG_TRY(rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE));
    return rg_capture_takes(stream) ? rg_capture_refuse(stream) /* graphs have memory of devices alone */
                                    : rg_host_pool_allocate(dptr, size, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (rg_host_pool_is(pool))
        return allocate_of_host(dptr, bytesize, pool, hStream);
    if (!rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    return allocate_async(dptr, bytesize, pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    CUresult status;
    RG_TRY(rg_stream_check(hStream));
    if (rg_capture_takes(hStream))
        return rg_capture_free(dptr, hStream);
    if (rg_graph_memory_takes_free(dptr, &status) || rg_host_pool_takes_free(dptr, &hStream, &status))
        return status;
    const uint64_t owner = rg_home_of_address(dptr);
    struct rg_range range;
    if (!rg_map_remove(dptr, 1u << RG_RANGE_POOL | 1u << RG_RANGE_DEVICE, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == RG_RANGE_DEVICE) /* which may be freed so, too */
        rg_startup_profile_note_free(range.context, range.size);
    rg_pools_freed();
    struct rg_proxy proxy; /* the memory may be of another server than the stream */
    RG_TRY(rg_proxy_begin(&proxy, owner, rg_effective_stream(hStream), false));
    return rg_proxy_end(&proxy, rg_op_cuMemFreeAsync(dptr, proxy.stream));
}
