/* module.c - modules and libraries: loading and unloading them. What is in them: lookup.c, variable.c. */
#include "client/api/module.h"

#include "client/api/function.h"
#include "client/cache/image.h"
#include "client/cache/image_cache.h"
#include "client/cache/load_memory.h"
#include "client/cache/variables.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/managed/managed.h"
#include "client/multiserver/replication.h"
#include "client/prefetch/image_prefetch.h"
#include "client/prefetch/loaded_images.h"
#include "common/cuda/image_file.h"
#include "generated/client/operations.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The log's buffers travel in one answer. */
#define LOG_MAX (RG_REPLY_INLINE / 2 - 64)

static size_t log_size(size_t size)
{
    return size < LOG_MAX ? size : LOG_MAX;
}

/* --- loading -------------------------------------------------------------------------------------------- */

/* That a load has succeeded before does not mean that it will, once memory has run out. */
static atomic_bool memory_ran_out;

/* The answer of a load that was known to succeed. */
static void load_arrived(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    (void)reply;
    struct rg_cached_image *cached = (struct rg_cached_image *)(uintptr_t)future->user[0];
    rg_load_memory_end(future->session, (rg_memory_level)future->user[1]);
    if (result == CUDA_SUCCESS) {
        rg_image_cache_note_memory(cached, rg_future_memory_taken(future));
        return;
    }
    rg_image_cache_drop(cached);
    rg_session_async_error(future->session, result, future->op);
}

/* An image that is being loaded as a module or a library. */
struct load {
    enum rg_kind kind;
    struct rg_jit *jit;
    struct rg_cached_image *cached; /* of it, or NULL */
    bool async;                     /* it is known to succeed, and not waited for */
    rg_memory_level memory;         /* that it takes, if so */
    uint64_t image, handle;
};

static CUresult ask(const struct load *load, struct rg_future *future, struct rg_call *reply)
{
    const struct rg_jit *jit = load->jit;
    const size_t info = log_size(jit->info_size), error = log_size(jit->error_size);
    if (load->kind == RG_KIND_LIBRARY)
        return rg_op_rgLibraryLoad(&(CUlibrary){(CUlibrary)load->handle}, load->image, jit->count,
                                   jit->options, jit->values, 0, NULL, NULL, info, error, 0, future, reply);
    return rg_op_rgModuleLoad(&(CUmodule){(CUmodule)load->handle}, load->image, jit->count, jit->options,
                              jit->values, info, error, future, reply);
}

/* The answer is compared when it comes. */
static CUresult load_async(const struct load *load)
{
    struct rg_call reply;
    struct rg_session *session = rg_session_current();
    struct rg_future *future = rg_future_begin(load_arrived);
    if (future) {
        future->user[0] = (uintptr_t)load->cached;
        future->user[1] = load->memory;
        rg_probe_saved(RG_OPT_IMAGE_CACHE);
    }
    const CUresult status = rg_future_end(future, ask(load, future, &reply));
    if (!future || status != CUDA_SUCCESS)
        rg_load_memory_end(session, load->memory);
    if (!future)
        rg_call_done(&reply);
    else if (status == CUDA_SUCCESS)
        rg_future_release(future);
    return status;
}

/* Whether a load need not be waited for: it is known to succeed, and sure to find its memory, which is taken for it. */
static bool may_be_async(struct load *load)
{
    if (!load->cached || atomic_load(&memory_ran_out) || !rg_image_cache_loads(load->cached))
        return false;
    load->memory = rg_image_cache_memory(load->cached);
    return rg_load_memory_take(rg_session_current(), load->memory);
}

/*
 * Waits for the answer; what is in the image is asked with it, or behind it where others' calls are to pass.
 */
static CUresult load_and_wait(const struct load *load)
{
    struct rg_call reply;
    const bool out_of_order = rg_call_goes_out_of_order(rg_session_current());
    struct rg_future *future = load->cached && !out_of_order ? rg_future_begin(NULL) : NULL;
    CUresult status = rg_future_end(future, ask(load, future, &reply));
    unsigned memory = 0;
    if (!future) {
        memory = reply.memory_taken;
        rg_jit_answer(load->jit, &reply.reply);
        rg_call_done(&reply);
    } else if (status == CUDA_SUCCESS) {
        struct rg_reader answer;
        struct rg_session *session = future->session;
        rg_image_prefetch_read(rg_image_prefetch_describe(load->kind, load->handle, load->cached),
                               load->cached);
        status = rg_future_wait(future, &answer);
        memory = rg_future_memory_taken(future);
        rg_jit_answer(load->jit, &answer);
        rg_future_release(future);
        if (status == CUDA_SUCCESS) /* as any call that waits */
            status = rg_session_take_latched(session);
    }
    if (status == CUDA_SUCCESS && load->cached && out_of_order)
        rg_image_prefetch_ask(load->kind, load->handle, load->cached);
    if (status == CUDA_SUCCESS && load->cached) {
        rg_image_cache_note_load(load->cached);
        rg_image_cache_note_memory(load->cached, memory);
    }
    return status;
}

/* It could not be sent. */
static CUresult fail(const struct load *load, struct rg_image_copy *copy, CUresult status)
{
    if (load->async)
        rg_load_memory_end(rg_session_current(), load->memory);
    free(copy);
    return status;
}

static void note_known(const struct load *load)
{
    struct rg_shadow *shadow = rg_handle_shadow(load->kind, load->handle);
    if (load->kind == RG_KIND_LIBRARY) {
        shadow->library.cached = load->cached;
    } else {
        shadow->module.context = rg_context_current();
        shadow->module.cached = load->cached;
    }
}

static CUresult load_image(enum rg_kind kind, struct rg_image_view *view, struct rg_jit *jit, uint64_t *out)
{
    struct load load = {.kind = kind, .jit = jit, .cached = rg_image_cache_find(kind, view, jit)};
    const bool logs = jit->info_size || jit->error_size;
    const uint64_t there = load.cached && !logs ? rg_loaded_images_take(kind, load.cached) : 0;
    if (there) {
        *out = there;
        return CUDA_SUCCESS;
    }
    load.async = !logs && may_be_async(&load); /* now: others may learn it at any time */
    struct rg_image_copy *copy = NULL;
    CUresult status = rg_image_send(view, load.async ? RG_IMAGE_STAYS_IN_FILE : RG_IMAGE_STAYS, &load.image);
    if (status == CUDA_SUCCESS && kind == RG_KIND_LIBRARY)
        status = rg_replication_keep(view, &copy);
    if (status != CUDA_SUCCESS)
        return fail(&load, copy, status);
    load.handle = rg_handle_create(kind);
    if (!load.handle)
        return fail(&load, copy, CUDA_ERROR_OUT_OF_MEMORY);
    note_known(&load);
    status = load.async ? load_async(&load) : load_and_wait(&load);
    /* memory that is only kept ready does not make it fail; the image was used up */
    if (status == CUDA_ERROR_OUT_OF_MEMORY && !load.async && rg_hooks.out_of_memory(rg_session_current()) &&
        rg_image_send(view, RG_IMAGE_STAYS, &load.image) == CUDA_SUCCESS)
        status = load_and_wait(&load);
    if (status != CUDA_SUCCESS) {
        free(copy);
        rg_handle_delete(kind, load.handle);
        return status;
    }
    if (kind == RG_KIND_LIBRARY)
        rg_replication_note(load.handle, copy, jit);
    rg_variables_ask(kind, load.handle, load.cached);
    *out = load.handle;
    return CUDA_SUCCESS;
}

/* Looks at the image; of one that is none, the log says so. */
static CUresult view_image(const void *image, struct rg_jit *jit, struct rg_image_view **view)
{
    rg_jit_fail(jit, "");
    const CUresult status = rg_image_view(image, view);
    if (status == CUDA_ERROR_INVALID_IMAGE) {
        rg_jit_fail(jit, "neither PTX nor a fat binary");
        rg_jit_done(jit);
    }
    return status;
}

static CUresult load_module(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    struct rg_image_view *view;
    RG_TRY(rg_jit_read(&jit, count, options, values));
    RG_TRY(view_image(image, &jit, &view));
    CUresult status = load_image(RG_KIND_MODULE, view, &jit, (uint64_t *)module);
    rg_jit_done(&jit);
    free(view);
    return status;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load_module(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    return load_module(module, image, numOptions, options, optionValues);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return load_module(module, fatCubin, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(fname, &image, &size));
    CUresult status = load_module(module, image, 0, NULL, NULL);
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
    before_unload((uint64_t)hmod, shadow);
    CUresult status = shadow->module.whole ? unload_whole(shadow->module.whole) : rg_op_cuModuleUnload(hmod);
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
    RG_TRY(view_image(code, &jit, &view));
    CUresult status = load_image(RG_KIND_LIBRARY, view, &jit, (uint64_t *)library);
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
    struct rg_thread *thread = rg_thread_current();
    bool any = false;
    atomic_store(&memory_ran_out, true);
    while (thread && rg_loaded_images_withdraw(&image)) {
        if (!rg_thread_push_context(thread, image.context))
            return any;
        any |= (image.kind == RG_KIND_LIBRARY ? cuLibraryUnload((CUlibrary)image.handle)
                                              : cuModuleUnload((CUmodule)image.handle)) == CUDA_SUCCESS;
        thread->n_contexts--;
    }
    return any;
}
