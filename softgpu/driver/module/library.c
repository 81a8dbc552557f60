/*
 * library.c - libraries and kernels: code that belongs to no context.
 *
 * A library keeps a module for each context in which it was used; a module of an ended life of a context is
 * dropped when it is met. Kernels are handles of their own and may be passed where a CUfunction is expected.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/cuda/image_file.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

struct instance {
    struct instance *next;
    struct sg_module *module; /* reference held */
};

struct sg_library {
    struct sg_object object;
    struct sg_image *image;
    pthread_mutex_t lock; /* instances; held while one is made */
    struct instance *instances;
    struct sg_managed *managed;        /* variables of all instances; NULL: none was placed yet */
    struct sg_kernel_object **kernels; /* by index; their handles' references */
};

static void finish_library(struct sg_object *object)
{
    struct sg_library *library = (struct sg_library *)object;
    sg_image_release(library->image);
    sg_managed_release(library->managed);
    pthread_mutex_destroy(&library->lock);
    free(library->kernels);
    free(library);
}

static void finish_kernel(struct sg_object *object)
{
    struct sg_kernel_object *kernel = (struct sg_kernel_object *)object;
    sg_release(&kernel->library->object);
    free(kernel);
}

static CUresult make_kernels(struct sg_library *library)
{
    uint32_t n = library->image->n_kernels;
    library->kernels = calloc(n > 0 ? n : 1, sizeof(struct sg_kernel_object *));
    if (library->kernels == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct sg_kernel_object *kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kernel->library = library;
        sg_acquire(&library->object);
        kernel->index = i;
        kernel->kernel = sg_program_kernel(library->image->program, i);
        for (int d = 0; d < SG_DEVICES_MAX; d++)
            sg_settings_init(&kernel->settings[d], kernel->kernel);
        sg_handle_add(&kernel->object, SG_KIND_KERNEL, NULL, finish_kernel);
        library->kernels[i] = kernel;
    }
    return CUDA_SUCCESS;
}

static void drop_instances(struct instance *first)
{
    for (struct instance *instance = first, *next; instance != NULL; instance = next) {
        next = instance->next;
        sg_context_wait(instance->module->object.context);
        sg_module_destroy(instance->module); /* its context may have done that already */
        sg_release(&instance->module->object);
        free(instance);
    }
}

static bool destroy_library(struct sg_library *library)
{
    if (!sg_handle_remove(library, SG_KIND_LIBRARY))
        return false;
    if (atomic_load(&sg_state.exiting))
        return true; /* the runtime unloads at the end what running kernels may still need */
    pthread_mutex_lock(&library->lock);
    struct instance *instances = library->instances;
    library->instances = NULL;
    pthread_mutex_unlock(&library->lock);
    drop_instances(instances);
    for (uint32_t i = 0; library->kernels != NULL && i < library->image->n_kernels; i++)
        if (library->kernels[i] != NULL && sg_handle_remove(library->kernels[i], SG_KIND_KERNEL))
            sg_release(&library->kernels[i]->object);
    sg_release(&library->object);
    return true;
}

const struct sg_image *sg_library_image(const struct sg_library *library)
{
    return library->image;
}

CUresult sg_library_module(struct sg_library *library, struct sg_context *context, struct sg_module **out)
{
    CUresult result = CUDA_SUCCESS;
    struct instance *dead = NULL;
    bool loaded = false;
    pthread_mutex_lock(&library->lock);
    struct instance **link = &library->instances;
    while (*link != NULL) {
        struct instance *i = *link;
        if (!sg_object_lives(&i->module->object)) {
            *link = i->next;
            i->next = dead;
            dead = i;
            continue;
        }
        if (i->module->object.context == context)
            break;
        link = &i->next;
    }
    if (*link == NULL) {
        struct instance *made = calloc(1, sizeof *made);
        struct sg_image *image = library->image;
        struct sg_text log = {0};
        result = made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS) {
            if (!atomic_exchange(&image->placed, true))
                sg_image_acquire(image);
            else /* the program serves another context: parse it again */
                result = sg_image_again(image, &log, &image);
        }
        if (result == CUDA_SUCCESS) {
            result = sg_module_new(context, image, library->kernels, &library->managed, &log, &made->module);
            sg_image_release(image);
        }
        if (result == CUDA_SUCCESS) {
            sg_acquire(&made->module->object);
            *link = made;
            loaded = true;
        } else {
            rg_info("placing a library: %s", log.data != NULL ? log.data : "failed");
            free(made);
        }
        sg_text_fini(&log);
    }
    if (result == CUDA_SUCCESS) {
        *out = (*link)->module;
        sg_acquire(&(*out)->object);
    }
    pthread_mutex_unlock(&library->lock);
    drop_instances(dead);
    if (loaded)
        sg_wait_to_load(context);
    return result;
}

static CUresult load(CUlibrary *out, const void *data, unsigned n_jit, const CUjit_option *jit_options,
                     void **jit_values, unsigned n, const CUlibraryOption *options, void **values)
{
    struct sg_load_options jit;
    RG_TRY(sg_enter());
    if (out == NULL || data == NULL || (n > 0 && options == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) /* both say how to keep the caller's binary; it is not kept at all */
        if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE &&
            options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_INVALID_VALUE;
    (void)values;
    RG_TRY(sg_jit_options(&jit, n_jit, jit_options, jit_values));
    struct sg_library *library = calloc(1, sizeof *library);
    if (library == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sg_text log = {0};
    CUresult result = sg_image_load(data, &log, &library->image);
    sg_jit_report(&jit, &log, result != CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        rg_info("loading a library: %s", log.data != NULL ? log.data : "failed");
    sg_text_fini(&log);
    if (result != CUDA_SUCCESS) {
        free(library);
        return result;
    }
    pthread_mutex_init(&library->lock, NULL);
    sg_handle_add(&library->object, SG_KIND_LIBRARY, NULL, finish_library);
    result = make_kernels(library);
    if (result != CUDA_SUCCESS)
        destroy_library(library);
    else
        *out = (CUlibrary)(void *)library;
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *jit_options, void **jit_values,
                           unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n)
{
    return load(out, data, n_jit, jit_options, jit_values, n, options, values);
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit_options, void **jit_values,
                               unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n)
{
    RG_TRY(sg_enter());
    if (out == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_CLEANUP_FREE void *data = NULL;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(path, &data, &size));
    return load(out, data, n_jit, jit_options, jit_values, n, options, values);
}

CUresult cuLibraryUnload(CUlibrary handle)
{
    RG_TRY(sg_enter());
    SG_HANDLE_OR_RETURN(struct sg_library, library, SG_KIND_LIBRARY, handle);
    return destroy_library(library) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define LIBRARY_OR_RETURN(var, handle)                                                                       \
    RG_TRY(sg_enter());                                                                                      \
    SG_HANDLE_OR_RETURN(struct sg_library, var, SG_KIND_LIBRARY, handle)

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
    LIBRARY_OR_RETURN(library, handle);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < library->image->n_kernels; i++)
        if (strcmp(library->kernels[i]->kernel->name, name) == 0) {
            *out = (CUkernel)(void *)library->kernels[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    LIBRARY_OR_RETURN(library, handle);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = library->image->n_kernels;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int n, CUlibrary handle)
{
    LIBRARY_OR_RETURN(library, handle);
    if (out == NULL || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n && i < library->image->n_kernels; i++)
        out[i] = (CUkernel)(void *)library->kernels[i];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
    LIBRARY_OR_RETURN(library, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_CONTEXT_OR_RETURN(context);
    SG_REF(struct sg_module) module = NULL;
    RG_TRY(sg_library_module(library, context, &module));
    *out = (CUmodule)(void *)module;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary handle, const char *name)
{
    LIBRARY_OR_RETURN(library, handle);
    if (name == NULL || (address == NULL && size == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    SG_CONTEXT_OR_RETURN(context);
    SG_REF(struct sg_module) module = NULL;
    RG_TRY(sg_library_module(library, context, &module));
    return sg_module_variable(module, name, address, size);
}

/*
 * Managed variables are asked for without a context: they are those of the current one, else of the first
 * device's.
 */
static CUresult context_of_managed(struct sg_context **context)
{
    CUcontext primary;
    if (sg_enter_context(context) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    *context = sg_device(0)->primary;
    return (*context)->retained > 0 ? CUDA_SUCCESS : cuDevicePrimaryCtxRetain(&primary, 0);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary handle, const char *name)
{
    CUdeviceptr found;
    struct sg_range range;
    struct sg_context *context;
    LIBRARY_OR_RETURN(library, handle);
    if (name == NULL || (address == NULL && size == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(context_of_managed(&context));
    SG_REF(struct sg_module) module = NULL;
    RG_TRY(sg_library_module(library, context, &module));
    RG_TRY(sg_module_variable(module, name, &found, size));
    if (!sg_range_find(found, &range) || range.kind != SG_RANGE_MANAGED_MODULE)
        return CUDA_ERROR_NOT_FOUND;
    if (address != NULL)
        *address = found;
    return CUDA_SUCCESS;
}

/* Kernels' code is called by the engine alone: nothing in a library is a function of the host's too. */
CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *name)
{
    LIBRARY_OR_RETURN(library, handle);
    return function != NULL && name != NULL ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

/* --- kernels --- */

CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_CONTEXT_OR_RETURN(context);
    SG_REF(struct sg_module) module = NULL;
    RG_TRY(sg_library_module(kernel->library, context, &module));
    *out = (CUfunction)(void *)module->functions[kernel->index];
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel handle)
{
    SG_KERNEL_OR_RETURN(kernel, handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUlibrary)(void *)kernel->library;
    return CUDA_SUCCESS;
}
