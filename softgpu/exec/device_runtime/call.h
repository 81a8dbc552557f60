/* call.h - a call that a kernel makes of the device runtime, and its arguments: they come as the addresses of what PTX passes. */
#ifndef SG_EXEC_DEVICE_RUNTIME_CALL_H
#define SG_EXEC_DEVICE_RUNTIME_CALL_H

#include "softgpu/device_calls.h"
#include "softgpu/exec/device_runtime/children.h"
#include "softgpu/exec/engine.h"
#include "softgpu/guest.h"

#include <string.h>

struct sg_runtime_call {
    struct sg_thread *thread;
    const struct sg_launch *launch;
    const struct sg_device_services *services;
    struct sg_parent *parent;
    uint64_t block; /* its number */
    const void *const *arguments;
};

static inline uint64_t sg_runtime_number(const struct sg_runtime_call *call, unsigned index)
{
    uint64_t value;
    memcpy(&value, sg_guest_pointer(call->arguments[index]), sizeof(value));
    return value;
}

static inline uint32_t sg_runtime_word(const struct sg_runtime_call *call, unsigned index)
{
    uint32_t value;
    memcpy(&value, sg_guest_pointer(call->arguments[index]), sizeof(value));
    return value;
}

static inline void *sg_runtime_pointer(const struct sg_runtime_call *call, unsigned index)
{
    return (void *)(uintptr_t)sg_runtime_number(call, index);
}

/* device_launch.c: what they return is an error of CUDA's */

/** A buffer whose launch is known from the start; 0 with *error. */
uint64_t sg_runtime_parameter_buffer_v2(const struct sg_runtime_call *call, int *error);
int sg_runtime_launch_v2(const struct sg_runtime_call *call);
/** A buffer of a size that the kernel gives; what is launched comes later. 0 with *error. */
uint64_t sg_runtime_parameter_buffer(const struct sg_runtime_call *call, int *error);
int sg_runtime_launch_v1(const struct sg_runtime_call *call);

/* device_copy.c: likewise */

int sg_runtime_copy_1d(const struct sg_runtime_call *call);
int sg_runtime_copy_2d(const struct sg_runtime_call *call);
int sg_runtime_set_1d(const struct sg_runtime_call *call);
int sg_runtime_set_2d(const struct sg_runtime_call *call);

#endif
