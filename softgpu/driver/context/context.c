/*
 * context.c - the life of contexts, explicit ones, and access between devices. The thread's part is in
 * current.c.
 */
#include <stdlib.h>

#include "common/cuda/context_storage.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/exclusive.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

static _Atomic unsigned long long next_context_id = 1;
static void (*drop_modules)(struct sg_context *context);

/* --- life of a context --- */

static void finish_context(struct sg_object *object)
{
    struct sg_context *context = (struct sg_context *)object;
    if (context->legacy != NULL) {
        context->legacy->object.context = NULL; /* it holds no reference */
        sg_release(&context->legacy->object);
    }
    pthread_mutex_destroy(&context->lock);
    free(context->provisioned);
    free(context);
}

struct sg_context *sg_context_new(struct sg_device *device, bool primary, unsigned flags,
                                  unsigned api_version)
{
    struct sg_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    pthread_mutex_init(&context->lock, NULL);
    context->device = device;
    context->owner = context;
    context->primary = primary;
    context->flags = flags;
    context->api_version = api_version;
    sg_handle_add(&context->object, SG_KIND_CONTEXT, NULL, finish_context);
    context->legacy = sg_stream_new(context, 0, 0, true);
    if (context->legacy == NULL) {
        sg_handle_remove(context, SG_KIND_CONTEXT);
        sg_release(&context->object);
        return NULL;
    }
    return context;
}

unsigned long long sg_context_next_id(void)
{
    return atomic_fetch_add(&next_context_id, 1);
}

CUresult sg_context_start(struct sg_context *context)
{
    const struct sg_behaviour *behaviour = sg_behaviour();
    if (behaviour->prohibited)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (behaviour->process && sg_context_process_error() != CUDA_SUCCESS)
        return sg_context_process_error();
    if (behaviour->exclusive && !sg_exclusive_enter(context->device->number))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    sg_behave_sleep_ms(behaviour->context_ms);
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1u << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
    sg_exec_set_output_limit(context->limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
    atomic_store(&context->printed, false);
    atomic_store(&context->allocated, false);
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context->id = sg_context_next_id();
    atomic_store(&context->sticky, CUDA_SUCCESS);
    atomic_store(&context->peers, 0);
    atomic_fetch_add(&context->generation, 1);
    atomic_store_explicit(&context->active, true, memory_order_release);
    return CUDA_SUCCESS;
}

void sg_context_at_end(void (*drop)(struct sg_context *context))
{
    drop_modules = drop;
}

void sg_context_stop(struct sg_context *context)
{
    if (atomic_load(&sg_state.exiting)) { /* the process's end takes the work along, finished or not */
        atomic_store(&context->active, false);
        return;
    }
    sg_context_wait(context);
    sg_exec_flush_output();
    rg_context_storage_end(sg_context_handle(context));
    atomic_store(&context->active, false);
    atomic_fetch_add(&context->generation, 1);
    drop_modules(context);
    sg_ranges_drop_context(context);
    if (sg_behaviour()->exclusive)
        sg_exclusive_leave(context->device->number);
}

bool sg_context_flags_valid(unsigned flags)
{
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && (schedule & (schedule - 1)) == 0;
}

/* --- explicit contexts --- */

static CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal, unsigned api_version)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (out == NULL || !sg_context_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_context *context = sg_context_new(device, false, flags, api_version);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult started = sg_context_start(context);
    if (started != CUDA_SUCCESS || !sg_context_push(context)) {
        if (started == CUDA_SUCCESS)
            sg_context_stop(context);
        sg_handle_remove(context, SG_KIND_CONTEXT);
        sg_release(&context->object);
        return started != CUDA_SUCCESS ? started : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = sg_context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    return create(out, flags, ordinal, 3010);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    return create(out, flags, ordinal, 3020);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int n, unsigned int flags,
                        CUdevice ordinal)
{
    RG_TRY(sg_enter());
    if (n < 0 || (n > 0 && affinity == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return n > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(out, flags, ordinal, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    RG_TRY(sg_enter());
    if (params != NULL && params->numExecAffinityParams > 0)
        return params->execAffinityParams != NULL ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : CUDA_ERROR_INVALID_VALUE;
    if (params != NULL && params->cigParams != NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(out, flags, ordinal, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
    RG_TRY(sg_enter());
    struct sg_context *context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary || context->green != NULL || !sg_handle_remove(context, SG_KIND_CONTEXT)) {
        sg_release(&context->object);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    sg_context_stop(context);
    if (sg_context_current() == context)
        sg_context_pop();
    sg_release(&context->object); /* the handle's */
    sg_release(&context->object);
    return CUDA_SUCCESS;
}

/* Usage counts of explicit contexts: attaching counts up, detaching down, and the last one destroys. */
CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&context->attached, 1);
    *out = sg_context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle)
{
    struct sg_context *current;
    RG_TRY(sg_enter_context_any(&current));
    if (handle != sg_context_handle(current))
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned attached = atomic_load(&current->attached);
    while (attached > 0)
        if (atomic_compare_exchange_weak(&current->attached, &attached, attached - 1))
            return CUDA_SUCCESS;
    return cuCtxDestroy_v2(handle);
}

/* --- peers: all devices see each other's memory; what was enabled is remembered for its errors --- */

static CUresult peer_argument(CUcontext handle, struct sg_context *context, uint32_t *bit)
{
    SG_REF(struct sg_context) peer = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (peer == NULL || !atomic_load(&peer->active))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_INVALID_DEVICE;
    *bit = 1u << peer->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    uint32_t bit;
    SG_CONTEXT_OR_RETURN(context);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(peer_argument(handle, context, &bit));
    if (!sg_behaviour()->peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint32_t before = atomic_fetch_or(&context->peers, bit);
    return before & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    uint32_t bit;
    SG_CONTEXT_OR_RETURN(context);
    RG_TRY(peer_argument(handle, context, &bit));
    uint32_t before = atomic_fetch_and(&context->peers, ~bit);
    return before & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
