/*
 * module.c - modules: from an image to functions in a context (its variables: variables.c).
 *
 * Loading parses and checks the whole program; machine code is made when a function is first launched or
 * asked about. Unloading waits for the work of the context.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/cuda/image_file.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

/* --- life of a module --- */

static void finish_module(struct sg_object *object)
{
    struct sg_module *module = (struct sg_module *)object;
    sg_image_release(module->image);
    if (module->variables != 0)
        sg_range_free(module->variables, SG_RANGE_MODULE);
    sg_managed_release(module->managed);
    free(module->functions);
    free(module->addresses);
    free(module);
}

static void finish_function(struct sg_object *object)
{
    struct sg_function *function = (struct sg_function *)object;
    sg_release(&function->module->object);
    free(function);
}

void sg_settings_init(struct sg_settings *settings, const struct sg_kernel *kernel)
{
    int room = SG_SHARED_PER_BLOCK - (int)kernel->shared_static;
    settings->dynamic_shared_max = room > 0 ? room : 0;
    settings->carveout = -1;
    settings->cache_config = CU_FUNC_CACHE_PREFER_NONE;
}

static CUresult make_functions(struct sg_module *module)
{
    uint32_t n = module->image->n_kernels;
    module->functions = calloc(n > 0 ? n : 1, sizeof(struct sg_function *));
    if (module->functions == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct sg_function *function = calloc(1, sizeof *function);
        if (function == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        function->module = module;
        sg_acquire(&module->object);
        function->index = i;
        function->kernel = sg_program_kernel(module->image->program, i);
        sg_settings_init(&function->own_settings, function->kernel);
        function->settings = module->kernels != NULL
                                 ? &module->kernels[i]->settings[module->object.context->device->ordinal]
                                 : &function->own_settings;
        sg_handle_add(&function->object, SG_KIND_FUNCTION, module->object.context, finish_function);
        module->functions[i] = function;
    }
    return CUDA_SUCCESS;
}

static void list_remove(struct sg_module *module)
{
    struct sg_context *context = module->object.context;
    RG_SCOPED_LOCK(&context->lock);
    for (struct sg_module **link = &context->modules; *link != NULL; link = &(*link)->next)
        if (*link == module) {
            *link = module->next;
            break;
        }
}

bool sg_module_destroy(struct sg_module *module)
{
    if (!sg_handle_remove(module, SG_KIND_MODULE))
        return false;
    list_remove(module);
    if (module->references != NULL)
        module->end_references(module);
    for (uint32_t i = 0; module->functions != NULL && i < module->image->n_kernels; i++)
        if (module->functions[i] != NULL && sg_handle_remove(module->functions[i], SG_KIND_FUNCTION))
            sg_release(&module->functions[i]->object);
    sg_release(&module->object);
    return true;
}

CUresult sg_module_new(struct sg_context *context, struct sg_image *image, struct sg_kernel_object **kernels,
                       struct sg_managed **managed, struct sg_text *log, struct sg_module **out)
{
    struct sg_module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->image = image;
    sg_image_acquire(image);
    module->kernels = kernels;
    sg_handle_add(&module->object, SG_KIND_MODULE, context, finish_module);
    const bool again = managed != NULL && *managed != NULL;
    CUresult result = sg_module_place_variables(module, managed);
    if (result == CUDA_SUCCESS)
        result = sg_compile_result(sg_program_initialise(image->program, !again, log));
    if (result == CUDA_SUCCESS)
        result = make_functions(module);
    if (result != CUDA_SUCCESS) {
        sg_module_destroy(module);
        return result;
    }
    pthread_mutex_lock(&context->lock);
    module->next = context->modules;
    context->modules = module;
    pthread_mutex_unlock(&context->lock);
    *out = module;
    return CUDA_SUCCESS;
}

void sg_modules_drop_context(struct sg_context *context)
{
    for (;;) {
        pthread_mutex_lock(&context->lock);
        struct sg_module *module = context->modules;
        if (module != NULL)
            sg_acquire(&module->object);
        pthread_mutex_unlock(&context->lock);
        if (module == NULL)
            return;
        if (!sg_module_destroy(module))
            list_remove(module); /* another thread is unloading it */
        sg_release(&module->object);
    }
}

/* --- loading --- */

CUresult cuModuleLoadDataEx(CUmodule *out, const void *data, unsigned int n, CUjit_option *options,
                            void **values)
{
    struct sg_load_options jit;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_jit_options(&jit, n, options, values));
    struct sg_text log = {0};
    struct sg_image *image = NULL;
    struct sg_module *module = NULL;
    CUresult result = sg_image_load(data, &log, &image);
    if (result == CUDA_SUCCESS) {
        atomic_store(&image->placed, true);
        result = sg_module_new(context, image, NULL, NULL, &log, &module);
        sg_image_release(image);
    }
    sg_jit_report(&jit, &log, result != CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        *out = (CUmodule)(void *)module;
    else
        rg_info("loading a module: %s", log.data != NULL ? log.data : "failed");
    sg_text_fini(&log);
    return result;
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_CLEANUP_FREE void *data = NULL;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(path, &data, &size));
    return cuModuleLoadDataEx(out, data, 0, NULL, NULL);
}

CUresult cuModuleUnload(CUmodule handle)
{
    SG_IMPLY_CONTEXT(SG_KIND_MODULE, handle);
    SG_CONTEXT_OR_RETURN(context);
    SG_REF(struct sg_module) module = sg_handle_get(handle, SG_KIND_MODULE);
    if (module == NULL || module->kernels != NULL) /* a library's module goes with the library */
        return CUDA_ERROR_INVALID_HANDLE;
    sg_context_wait(module->object.context); /* its variables may be in use */
    return sg_module_destroy(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    RG_TRY(sg_enter());
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* --- questions --- */

#define MODULE_OR_RETURN(var, handle)                                                                        \
    SG_IMPLY_CONTEXT(SG_KIND_MODULE, handle);                                                                \
    SG_CONTEXT_OR_RETURN(context);                                                                           \
    SG_HANDLE_OR_RETURN(struct sg_module, var, SG_KIND_MODULE, handle)

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    SG_IMPLY_CONTEXT(SG_KIND_MODULE, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_HANDLE_OR_RETURN(struct sg_module, module, SG_KIND_MODULE, handle);
    for (uint32_t i = 0; i < module->image->n_kernels; i++)
        if (strcmp(module->functions[i]->kernel->name, name) == 0) {
            *out = (CUfunction)(void *)module->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
    MODULE_OR_RETURN(module, handle);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = module->image->n_kernels;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned int n, CUmodule handle)
{
    MODULE_OR_RETURN(module, handle);
    if (out == NULL || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n && i < module->image->n_kernels; i++)
        out[i] = (CUfunction)(void *)module->functions[i];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule handle, const char *name)
{
    SG_IMPLY_CONTEXT(SG_KIND_MODULE, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (name == NULL || (address == NULL && size == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    SG_HANDLE_OR_RETURN(struct sg_module, module, SG_KIND_MODULE, handle);
    return sg_module_variable(module, name, address, size);
}
