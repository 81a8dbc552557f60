/*
 * green.c - green contexts (green.h): one is made of a description of multiprocessors, retains its device's primary context, and
 * gives that back when it is destroyed, after its work. Streams that are left then answer CUDA_ERROR_CONTEXT_IS_DESTROYED. Any
 * thread; what can fail is memory, and whatever retaining a primary context can.
 */
#include "softgpu/driver/context/green.h"

#include <stdlib.h>

#include "common/cuda/context_storage.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

static void finish_green(struct sg_object *object)
{
    struct sg_green *green = (struct sg_green *)object;
    sg_release(&green->context->object);
    free(green);
}

CUresult sg_green_get(CUgreenCtx handle, struct sg_green **green)
{
    RG_TRY(sg_enter());
    struct sg_green *found = handle == NULL ? NULL : sg_handle_get(handle, SG_KIND_GREEN);
    if (found == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *green = found;
    return CUDA_SUCCESS;
}

/* The primary context has been retained for it. Takes `provided` over. */
static struct sg_green *green_new(struct sg_device *device, struct sg_multiprocessors *provided)
{
    struct sg_green *green = calloc(1, sizeof *green);
    struct sg_context *context = green == NULL ? NULL : sg_context_new(device, false, 0, 3020);
    if (context == NULL) {
        free(provided);
        free(green);
        return NULL;
    }
    context->owner = device->primary;
    context->green = green;
    context->provisioned = provided;
    context->id = sg_context_next_id();
    atomic_store_explicit(&context->active, true, memory_order_release);
    green->context = context; /* with the reference of its handle */
    sg_handle_add(&green->object, SG_KIND_GREEN, NULL, finish_green);
    return green;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc description, CUdevice ordinal,
                          unsigned int flags)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    const struct sg_device *described = device;
    struct sg_multiprocessors *provided = NULL; /* all */
    CUcontext primary;
    if (out == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (description != NULL)
        RG_TRY(sg_resources_provision(description, &described, &provided));
    const CUresult retained =
        described == device ? cuDevicePrimaryCtxRetain(&primary, ordinal) : CUDA_ERROR_INVALID_DEVICE;
    if (retained != CUDA_SUCCESS) {
        free(provided);
        return retained;
    }
    struct sg_green *green = green_new(device, provided);
    if (green == NULL) {
        (void)cuDevicePrimaryCtxRelease_v2(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = sg_green_handle(green);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
    RG_TRY(sg_enter());
    if (handle == NULL || !sg_handle_remove(handle, SG_KIND_GREEN))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sg_green *green = (struct sg_green *)(void *)handle;
    struct sg_context *context = green->context;
    const CUdevice ordinal = context->device->ordinal;
    sg_context_wait(context);
    sg_exec_flush_output();
    rg_context_storage_end(sg_context_handle(context));
    atomic_store(&context->active, false);
    atomic_fetch_add(&context->generation, 1);
    sg_handle_remove(context, SG_KIND_CONTEXT);
    sg_release(&green->object);
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx handle)
{
    SG_GREEN_OR_RETURN(green, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sg_context_handle(green->context);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
    SG_REF(struct sg_green) green = NULL;
    struct sg_context *current;
    if (handle == NULL) {
        RG_TRY(sg_enter_current(true, &current));
        handle = sg_green_handle(current->green);
    }
    RG_TRY(sg_green_get(handle, &green));
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = green->context->id;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type)
{
    SG_GREEN_OR_RETURN(green, handle);
    return sg_resource_describe(green->context->device, green->context->provisioned, type, resource);
}
