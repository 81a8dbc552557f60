/*
 * device_launch.c - kernels that kernels launch: a buffer for the parameters, which the kernel fills, then the launch with it.
 *
 * In the second version the buffer knows what is launched from the start, in the first the launch says it. A buffer that no launch was
 * prepared for, or too small a one, is refused; without memory there is none. The kernel's own thread.
 */
#include "softgpu/exec/device_runtime/call.h"

#define PARAMS_MAX 32764u

static void shape(const struct sg_runtime_call *call, unsigned grid, unsigned block, unsigned shared,
                  struct sg_launch *to)
{
    memcpy(to->grid, sg_guest_pointer(call->arguments[grid]), sizeof(to->grid));
    memcpy(to->block, sg_guest_pointer(call->arguments[block]), sizeof(to->block));
    to->shared_dynamic = sg_runtime_word(call, shared);
}

uint64_t sg_runtime_parameter_buffer_v2(const struct sg_runtime_call *call, int *error)
{
    struct sg_launch launch = {0};
    shape(call, 1, 2, 3, &launch);
    *error = call->services->prepare(call->launch, sg_runtime_pointer(call, 0), &launch);
    if (*error)
        return 0;
    struct sg_child *child = sg_child_prepare(call->parent, launch.params_size);
    if (!child) {
        *error = SG_CUDA_OUT_OF_MEMORY;
        return 0;
    }
    launch.params = sg_child_params(child);
    *sg_child_launch(child) = launch;
    sg_child_put_back(call->parent, child);
    return (uint64_t)(uintptr_t)launch.params;
}

int sg_runtime_launch_v2(const struct sg_runtime_call *call)
{
    struct sg_child *child;
    int error = sg_child_take(call->parent, sg_runtime_pointer(call, 0), &child);
    if (!error && !sg_child_launch(child)->kernel_name) {
        sg_child_put_back(call->parent, child);
        error = SG_CUDA_INVALID_VALUE;
    }
    return error ? error : sg_child_submit(call->parent, child, call->block, sg_runtime_number(call, 1));
}

uint64_t sg_runtime_parameter_buffer(const struct sg_runtime_call *call, int *error)
{
    uint64_t alignment = sg_runtime_number(call, 0), size = sg_runtime_number(call, 1);
    struct sg_child *child = NULL;
    *error = size > PARAMS_MAX || alignment > 16 ? SG_CUDA_INVALID_VALUE : SG_CUDA_SUCCESS;
    if (!*error && !(child = sg_child_prepare(call->parent, (uint32_t)size)))
        *error = SG_CUDA_OUT_OF_MEMORY;
    if (!child)
        return 0;
    const uint64_t params = (uint64_t)(uintptr_t)sg_child_params(child);
    sg_child_put_back(call->parent, child);
    return params;
}

int sg_runtime_launch_v1(const struct sg_runtime_call *call)
{
    struct sg_child *child = NULL;
    struct sg_launch launch = {0};
    shape(call, 2, 3, 4, &launch);
    int error = call->services->prepare(call->launch, sg_runtime_pointer(call, 0), &launch);
    if (error)
        return error;
    if (sg_runtime_number(call, 1))
        error = sg_child_take(call->parent, sg_runtime_pointer(call, 1), &child);
    else if (!(child = sg_child_prepare(call->parent, 0))) /* a kernel without parameters */
        error = SG_CUDA_OUT_OF_MEMORY;
    if (!error && sg_child_launch(child)->params_size < launch.params_size) {
        sg_child_put_back(call->parent, child);
        error = SG_CUDA_INVALID_VALUE;
    }
    if (error)
        return error;
    launch.params = sg_child_params(child);
    *sg_child_launch(child) = launch;
    return sg_child_submit(call->parent, child, call->block, sg_runtime_number(call, 5));
}
