/*
 * module.c - modules and libraries: loading (module_load.c) and unloading them. What is in them: lookup.c, variable.c.
 *
 * With a module go the functions that were found in it and the memory of its variables; with a context the modules that
 * were loaded in it. A library outlives contexts, but not what it has in them. Any thread.
 */
#include "client/api/module.h"

#include "client/api/device_wait.h"
#include "client/api/function/function.h"
#include "client/api/module_load.h"
#include "client/cache/image.h"
#include "client/cache/jit_options.h"
#include "client/cache/variables.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/handle.h"
#include "client/core/hooks.h"
#include "client/core/session.h"
#include "client/managed/managed.h"
#include "client/multiserver/replication.h"
#include "client/prefetch/loaded_images.h"
#include "common/cuda/image_file.h"
#include "generated/client/operations.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    struct rg_image_view *view;
    RG_TRY(rg_jit_read(&jit, count, options, values));
    RG_TRY(rg_module_view_image(image, &jit, &view));
    CUresult status = rg_module_load_image(RG_KIND_MODULE, view, &jit, (uint64_t *)module);
    rg_jit_done(&jit);
    free(view);
    return status;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(fname, &image, &size));
    CUresult status = cuModuleLoadDataEx(module, image, 0, NULL, NULL);
    free(image);
    return status;
}

/* The memory of a module's variables becomes others' with the call that unloads it. */
static void before_unload(uint64_t module, const struct rg_shadow *shadow)
{
    rg_managed_drop_owner(module);
    rg_variables_unmap(&shadow->module.variables);
}

/* What was found in a module ends with it. */
static void forget_found(struct rg_shadow *shadow)
{
    rg_found_lock();
    rg_found_free(&shadow->module.functions, RG_KIND_FUNCTION);
    rg_found_free(&shadow->module.textures, RG_KIND_TEXREF);
    rg_found_free(&shadow->module.surfaces, RG_KIND_SURFREF);
    rg_found_unlock();
    rg_variables_drop(&shadow->module.variables, 0);
}

/* A module that was loaded ahead is a library's. */
static CUresult unload_whole(uint64_t library)
{
    const CUresult status = rg_op_cuLibraryUnload((CUlibrary)library, 0);
    rg_handle_delete(RG_KIND_LIBRARY, library);
    return status;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    if (!shadow || shadow->module.owner) /* a library's module goes with the library */
        return CUDA_ERROR_INVALID_HANDLE;
    struct rg_device_wait wait;
    rg_device_wait_begin(&wait, shadow->module.context, 0);
    before_unload((uint64_t)hmod, shadow);
    CUresult status = shadow->module.whole ? unload_whole(shadow->module.whole) : rg_op_cuModuleUnload(hmod);
    rg_device_wait_end(&wait);
    forget_found(shadow);
    rg_handle_delete(RG_KIND_MODULE, (uint64_t)hmod);
    return status;
}

/* Calls `each` with every handle of the kind. */
static void for_all(enum rg_kind kind, void (*each)(uint64_t handle, uint64_t context), uint64_t context)
{
    enum { AT_ONCE = 256 };
    uint64_t handles[AT_ONCE];
    for (uint64_t after = 0;;) {
        const size_t n = rg_handle_list(kind, after, handles, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            each(handles[i], context);
        if (n < AT_ONCE)
            return;
        after = handles[n - 1];
    }
}

/* One of a library's, which has gone. */
static void forget_module(uint64_t module)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, module);
    if (shadow)
        forget_found(shadow);
    rg_handle_delete(RG_KIND_MODULE, module);
}

static void end_module(uint64_t module, uint64_t context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, module);
    if (!shadow || shadow->module.context != context || shadow->module.owner)
        return;
    if (shadow->module.whole)
        unload_whole(shadow->module.whole);
    forget_found(shadow);
    rg_handle_delete(RG_KIND_MODULE, module);
}

/* The library stays; its variables, its module and its kernels' functions in the context were that one's. */
static void end_library_in(uint64_t library, uint64_t context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    uint64_t handle;
    if (!shadow)
        return;
    rg_variables_drop(&shadow->library.variables, context);
    rg_found_lock();
    for (struct rg_found_function *found = shadow->library.kernels; found; found = found->next) {
        struct rg_shadow *kernel = rg_handle_shadow(RG_KIND_KERNEL, found->handle);
        while (kernel && (handle = rg_found_take(&kernel->function.by_context, context)) != 0)
            rg_handle_delete(RG_KIND_FUNCTION, handle);
    }
    const uint64_t module = rg_found_take(&shadow->library.modules, context);
    rg_found_unlock();
    forget_module(module);
}

void rg_modules_context_ended(uint64_t context)
{
    for_all(RG_KIND_MODULE, end_module, context);
    for_all(RG_KIND_LIBRARY, end_library_in, context);
}

/*
 * Options of libraries: only the one that promises to keep the image means nothing here, since it is copied.
 */
static CUresult read_library_options(unsigned count, const CUlibraryOption *options)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return rg_unsupported("cuLibraryLoadData with CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE");
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    RG_TRY(rg_call_allowed(0));
    if (!library || !code || (numLibraryOptions && !libraryOptions))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    struct rg_image_view *view;
    RG_TRY(rg_jit_read(&jit, numJitOptions, jitOptions, jitOptionsValues));
    RG_TRY(read_library_options(numLibraryOptions, libraryOptions));
    RG_TRY(rg_module_view_image(code, &jit, &view));
    CUresult status = rg_module_load_image(RG_KIND_LIBRARY, view, &jit, (uint64_t *)library);
    rg_jit_done(&jit);
    free(view);
    return status;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    RG_TRY(rg_call_allowed(0));
    if (!library || !fileName)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(fileName, &image, &size));
    CUresult status = cuLibraryLoadData(library, image, jitOptions, jitOptionsValues, numJitOptions,
                                        libraryOptions, libraryOptionValues, numLibraryOptions);
    free(image);
    return status;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    /* what it has in contexts is unloaded, as modules are */
    struct rg_device_wait wait;
    rg_device_wait_begin(
        &wait, shadow->library.modules || shadow->library.kernels ? rg_context_current_handle() : 0, 0);
    rg_managed_drop_owner((uint64_t)library);
    rg_found_lock();
    struct rg_found_function *modules = shadow->library.modules;
    shadow->library.modules = NULL;
    rg_found_unlock();
    rg_variables_unmap(&shadow->library.variables);
    for (const struct rg_found_function *found = modules; found; found = found->next) {
        const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, found->handle);
        if (module)
            before_unload(found->handle, module);
    }
    CUresult status = rg_replication_unload((uint64_t)library);
    rg_device_wait_end(&wait);
    for (const struct rg_found_function *found = modules; found; found = found->next)
        forget_module(found->handle);
    rg_found_lock();
    for (struct rg_found_function *found = shadow->library.kernels; found; found = found->next) {
        struct rg_shadow *kernel = rg_handle_shadow(RG_KIND_KERNEL, found->handle);
        if (kernel)
            rg_found_free(&kernel->function.by_context, RG_KIND_FUNCTION);
    }
    rg_found_free(&shadow->library.kernels, RG_KIND_KERNEL);
    rg_found_free(&modules, RG_KIND_COUNT);
    rg_found_unlock();
    rg_variables_drop(&shadow->library.variables, 0);
    rg_handle_delete(RG_KIND_LIBRARY, (uint64_t)library);
    return status;
}

bool rg_modules_give_back(void)
{
    struct rg_withdrawn_image image;
    bool any = false;
    rg_module_loads_wait();
    while (rg_loaded_images_withdraw(&image)) {
        if (rg_context_scope_enter(image.context) != CUDA_SUCCESS)
            continue; /* it has ended with its context */
        any |= (image.kind == RG_KIND_LIBRARY ? cuLibraryUnload((CUlibrary)image.handle)
                                              : cuModuleUnload((CUmodule)image.handle)) == CUDA_SUCCESS;
        rg_context_scope_leave();
    }
    return any;
}
