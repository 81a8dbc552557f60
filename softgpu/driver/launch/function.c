/*
 * function.c - functions and kernels: what a handle means, names, parameters, attributes.
 *
 * A CUkernel may stand where a CUfunction is expected; it then means its function in the context in question.
 */
#include "softgpu/driver/launch/function.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/schedule/schedule.h"

CUresult sg_function_get(const void *handle, struct sg_context *context, struct sg_function **out)
{
    struct sg_function *function = sg_handle_get(handle, SG_KIND_FUNCTION);
    if (function != NULL) {
        if (!sg_object_lives(&function->object)) {
            sg_release(&function->object);
            return CUDA_ERROR_INVALID_HANDLE;
        }
        *out = function;
        return CUDA_SUCCESS;
    }
    SG_REF(struct sg_kernel_object) kernel = sg_handle_get(handle, SG_KIND_KERNEL);
    if (kernel == NULL || context == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    SG_REF(struct sg_module) module = NULL;
    RG_TRY(sg_library_module(kernel->library, context, &module));
    *out = module->functions[kernel->index];
    sg_acquire(&(*out)->object);
    return CUDA_SUCCESS;
}

/* --- attributes --- */

CUresult sg_kernel_attribute(const struct sg_image *image, const struct sg_kernel *kernel,
                             const struct sg_settings *settings, int attribute, int *value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)kernel->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)kernel->shared_used;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_size;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = SG_REGISTERS_PER_THREAD;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: /* libraries pick the variant they compiled by it */
        *value = image->target;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)sg_state.capability;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = settings->dynamic_shared_max;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = settings->carveout;
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = settings->nonportable_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = settings->cluster_policy;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = kernel->explicit_cluster && kernel->required_cluster[0] == 0;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
        int i = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
        *value = kernel->required_cluster[0] != 0 ? (int)kernel->required_cluster[i] : settings->cluster[i];
        break;
    }
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)kernel->const_size;
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *value = 0;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult set_attribute(const struct sg_kernel *kernel, struct sg_settings *settings, int attribute,
                              int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (int64_t)value + kernel->shared_static > sg_shared_optin())
            return CUDA_ERROR_INVALID_VALUE;
        settings->dynamic_shared_max = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        settings->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        settings->nonportable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
            value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
            return CUDA_ERROR_INVALID_VALUE;
        settings->cluster_policy = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (kernel->required_cluster[0] != 0)
            return CUDA_ERROR_NOT_PERMITTED;
        if (value < 0)
            return CUDA_ERROR_INVALID_VALUE;
        settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult param_info(const struct sg_kernel *kernel, size_t index, size_t *offset, size_t *size)
{
    if (offset == NULL || index >= kernel->n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel->params[index].offset;
    if (size != NULL)
        *size = kernel->params[index].size;
    return CUDA_SUCCESS;
}

/* --- functions --- */

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_function_load_lazily(function);
    return sg_kernel_attribute(function->module->image, function->kernel, function->settings, (int)attribute,
                               value);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    return set_attribute(function->kernel, function->settings, (int)attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_function_load_lazily(function);
    function->settings->cache_config = (int)config;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction handle)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUmodule)(void *)function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    RG_TRY(sg_enter());
    if (name == NULL || handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_FUNCTION_OR_RETURN(function, handle);
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    return param_info(function->kernel, index, offset, size);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const bool loaded = sg_program_has_code(function->module->image->program, function->index) &&
                        (!sg_behaviour()->lazy || atomic_load(&function->lazily_loaded));
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

void sg_function_load_lazily(struct sg_function *function)
{
    if (sg_behaviour()->lazy && !atomic_exchange(&function->lazily_loaded, true))
        sg_wait_to_load(function->module->object.context);
}

CUresult sg_function_load(struct sg_function *function)
{
    sg_function_load_lazily(function);
    return sg_behaviour()->load_at && !atomic_exchange(&function->used, true) ? sg_behave_load()
                                                                              : CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    RG_TRY(sg_function_load(function));
    struct sg_text log = {0};
    void *code;
    CUresult result =
        sg_compile_result(sg_program_code(function->module->image->program, function->index, &log, &code));
    sg_text_fini(&log);
    return result;
}

/* --- kernels --- */

/*
 * Where functions are loaded by their first use, a question about a kernel loads that of the current context, if the context is the
 * device's and has nothing to do: so programs load (cudaFuncGetAttributes) what they launch beside work that waits for it. While the
 * context is at work, the answer comes without.
 */
static void load_asked(struct sg_kernel_object *kernel, CUdevice ordinal)
{
    struct sg_context *context = sg_context_current();
    if (!sg_behaviour()->lazy || context == NULL || context->device->ordinal != ordinal ||
        !sg_context_idle(context))
        return;
    SG_REF(struct sg_module) module = NULL;
    if (sg_library_module(kernel->library, context, &module) == CUDA_SUCCESS)
        sg_function_load_lazily(module->functions[kernel->index]);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice ordinal)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    if (sg_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    load_asked(kernel, ordinal);
    return sg_kernel_attribute(sg_library_image(kernel->library), kernel->kernel, &kernel->settings[ordinal],
                               (int)attribute, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice ordinal)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    if (sg_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return set_attribute(kernel->kernel, &kernel->settings[ordinal], (int)attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    if (sg_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    kernel->settings[ordinal].cache_config = (int)config;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    RG_TRY(sg_enter());
    if (name == NULL || handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_KERNEL_OR_RETURN(kernel, handle);
    *name = kernel->kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    return param_info(kernel->kernel, index, offset, size);
}
