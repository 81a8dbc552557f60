/*
 * device_services.c - what the device runtime of kernels asks the driver: kernels of the same module, limits
 * and attributes of the device they run on. The module that owns a launch is held as long as the launch's
 * family runs.
 */
#include "softgpu/driver/launch/device_services.h"

#include "common/base/log.h"
#include "softgpu/device_calls.h"
#include "softgpu/driver/launch/function.h"
#include "softgpu/driver/range/range.h"

uint64_t sg_next_grid_id(void)
{
    static _Atomic uint64_t next = 1;
    return atomic_fetch_add(&next, 1);
}

static const struct sg_kernel *find(const struct sg_module *module, const void *function, size_t *index)
{
    *index = sg_program_find_kernel(module->image->program, function);
    return *index == SIZE_MAX ? NULL : sg_program_kernel(module->image->program, *index);
}

static struct sg_settings settings_of(const struct sg_module *module, const struct sg_kernel *kernel,
                                      size_t index)
{
    struct sg_settings settings;
    if (module->kernels != NULL)
        return module->kernels[index]->settings[module->object.context->device->ordinal];
    sg_settings_init(&settings, kernel);
    return settings;
}

static int prepare(const struct sg_launch *parent, const void *function, struct sg_launch *child)
{
    const struct sg_module *module = parent->owner;
    size_t index;
    const struct sg_kernel *kernel = find(module, function, &index);
    if (kernel == NULL)
        return SG_CUDA_INVALID_DEVICE_FUNCTION;
    struct sg_settings settings = settings_of(module, kernel, index);
    if (sg_launch_expand(kernel, child->grid, child->block) != CUDA_SUCCESS)
        return SG_CUDA_INVALID_CONFIGURATION;
    if (sg_launch_check_shape(kernel, &settings, child->grid, child->block, child->shared_dynamic) !=
        CUDA_SUCCESS)
        return SG_CUDA_INVALID_CONFIGURATION;
    const uint32_t requested[3] = {0}; /* what kernels launch gets its clusters from the kernel alone */
    if (sg_launch_cluster(kernel, &settings, child->grid, requested, child->cluster) != CUDA_SUCCESS)
        return SG_CUDA_INVALID_CONFIGURATION;
    child->kernel_name = kernel->name;
    child->code = (void *)(uintptr_t)function;
    child->form = kernel->form;
    child->params_size = kernel->params_size;
    child->shared_static = kernel->shared_static;
    child->stack_size = module->object.context->limits[CU_LIMIT_STACK_SIZE] + kernel->local_size;
    child->grid_id = sg_next_grid_id();
    child->services = parent->services;
    child->n_multiprocessors = parent->n_multiprocessors;
    child->multiprocessors = parent->multiprocessors;
    child->owner = parent->owner;
    return SG_CUDA_SUCCESS;
}

static bool code(struct sg_launch *child)
{
    const struct sg_module *module = child->owner;
    struct sg_text log = {0};
    size_t index;
    const struct sg_kernel *kernel = find(module, child->code, &index);
    bool good =
        kernel != NULL && sg_program_code(module->image->program, index, &log, &child->code) == SG_COMPILE_OK;
    if (!good)
        rg_warn("kernel %s: %s", child->kernel_name, log.data != NULL ? log.data : "no code");
    sg_text_fini(&log);
    return good;
}

static int attribute(const struct sg_launch *parent, int attribute, int ordinal, int *value)
{
    const struct sg_device *device = sg_device(ordinal);
    (void)parent;
    if (device == NULL)
        return SG_CUDA_INVALID_DEVICE;
    return sg_device_attribute(device, attribute, value) == CUDA_SUCCESS ? SG_CUDA_SUCCESS
                                                                         : SG_CUDA_INVALID_VALUE;
}

static uint64_t limit(const struct sg_launch *parent, int limit)
{
    const struct sg_module *module = parent->owner;
    return module->object.context->limits[limit];
}

static int function_attribute(const struct sg_launch *parent, const void *function, int attribute, int *value)
{
    const struct sg_module *module = parent->owner;
    size_t index;
    const struct sg_kernel *kernel = find(module, function, &index);
    if (kernel == NULL)
        return SG_CUDA_INVALID_DEVICE_FUNCTION;
    struct sg_settings settings = settings_of(module, kernel, index);
    return (int)sg_kernel_attribute(module->image, kernel, &settings, attribute, value);
}

static int occupancy(const struct sg_launch *parent, const void *function, int threads, uint64_t shared,
                     int *blocks)
{
    const struct sg_module *module = parent->owner;
    size_t index;
    const struct sg_kernel *kernel = find(module, function, &index);
    if (kernel == NULL)
        return SG_CUDA_INVALID_DEVICE_FUNCTION;
    if (threads <= 0)
        return SG_CUDA_INVALID_VALUE;
    struct sg_settings settings = settings_of(module, kernel, index);
    *blocks = sg_occupancy(kernel, &settings, (unsigned)threads, shared);
    return SG_CUDA_SUCCESS;
}

static const char *error_text(int error, bool name)
{
    static const struct {
        int error;
        const char *name, *text;
    } errors[] = {
        {SG_CUDA_INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
        {SG_CUDA_INVALID_PITCH, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
        {SG_CUDA_LAUNCH_PENDING_COUNT_EXCEEDED, "cudaErrorLaunchPendingCountExceeded",
         "launch would exceed the pending launch limit"},
        {SG_CUDA_INVALID_DEVICE_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
        {SG_CUDA_SUCCESS, "cudaSuccess", "no error"},
        {SG_CUDA_INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
        {SG_CUDA_OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
        {SG_CUDA_INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {SG_CUDA_INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
        {SG_CUDA_NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].error == error)
            return name ? errors[i].name : errors[i].text;
    return "unrecognized error code";
}

static int device(const struct sg_launch *parent, int *count)
{
    const struct sg_module *module = parent->owner;
    *count = sg_state.n_devices;
    return module->object.context->device->ordinal;
}

const struct sg_device_services sg_device_services = {
    .prepare = prepare,
    .code = code,
    .attribute = attribute,
    .limit = limit,
    .function_attribute = function_attribute,
    .occupancy = occupancy,
    .reachable = sg_range_allows,
    .error_text = error_text,
    .device = device,
};
