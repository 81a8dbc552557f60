/*
 * green.h - green contexts: a part of a device's multiprocessors with streams of its own; all else is the device's primary
 * context's (struct sg_context).
 */
#ifndef SG_DRIVER_CONTEXT_GREEN_H
#define SG_DRIVER_CONTEXT_GREEN_H

#include "softgpu/driver/driver.h"

struct sg_green {
    struct sg_object object;
    struct sg_context *context; /* what cuCtxFromGreenCtx gives; reference held */
};

/** The green context of a handle, with a reference; else CUDA_ERROR_INVALID_CONTEXT. Includes sg_enter. */
CUresult sg_green_get(CUgreenCtx handle, struct sg_green **green);
#define SG_GREEN_OR_RETURN(var, handle)                                                                      \
    SG_REF(struct sg_green) var = NULL;                                                                      \
    RG_TRY(sg_green_get(handle, &var))

/** NULL for NULL. */
static inline CUgreenCtx sg_green_handle(const struct sg_green *green)
{
    return (CUgreenCtx)(uintptr_t)green;
}

/**
 * What a description (cuDevResourceGenerateDesc) provides, in memory that is the caller's. *device: of which device it is.
 * CUDA_ERROR_INVALID_VALUE: no description has this handle.
 */
CUresult sg_resources_provision(CUdevResourceDesc handle, const struct sg_device **device,
                                struct sg_multiprocessors **provided);
/** Describes multiprocessors of a device (NULL: all that it has) as a resource that can be divided. */
CUresult sg_resource_describe(const struct sg_device *device, const struct sg_multiprocessors *some,
                              CUdevResourceType type, CUdevResource *resource);

#endif
