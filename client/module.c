/*
 * module.c - modules and libraries: loading, and finding what is in them. What has been found is remembered, so a
 * second look-up asks nobody.
 */
#include "client/call.h"
#include "client/context.h"
#include "client/device.h"
#include "client/function.h"
#include "client/handle.h"
#include "client/image.h"
#include "client/known.h"
#include "client/lane.h"
#include "client/managed.h"
#include "client/optimisations.h"
#include "client/owner.h"
#include "client/profile/profile.h"
#include "client/program.h"
#include "client/promise.h"
#include "client/spread.h"
#include "client/variable.h"
#include "common/cuda/image_file.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

/* The log's buffers travel in one answer. */
#define LOG_MAX (RG_REPLY_INLINE / 2 - 64)

static size_t log_size(size_t size)
{
    return size < LOG_MAX ? size : LOG_MAX;
}

/* --- loading ---------------------------------------------------------------------------------------------- */

/* The answer of a load that was known to succeed. */
static void load_arrived(struct rg_promise *promise, CUresult result, struct rg_reader reply)
{
    (void)reply;
    if (result == CUDA_SUCCESS)
        return;
    rg_known_drop((struct rg_known *)(uintptr_t)promise->user[0]);
    rg_session_async_error(promise->session, result, promise->op);
}

/* Whether a load need not be waited for. */
static bool goes_on(const struct rg_known *known, const struct rg_jit *jit)
{
    return known && rg_known_loads(known) && !jit->info_size && !jit->error_size;
}

/* Then its answer is asked for ahead. */
static struct rg_promise *load_ahead(struct rg_known *known, enum rg_op op)
{
    struct rg_promise *promise = rg_promise_begin(op, load_arrived);
    if (promise) {
        promise->user[0] = (uintptr_t)known;
        rg_profile_saved(RG_OPT_KNOWN);
    }
    return promise;
}

/* After the load's record, with its status: reads the answer, unless it was asked for ahead. */
static CUresult load_end(struct rg_promise *promise, struct rg_known *known, struct rg_jit *jit,
                         struct rg_call *reply, CUresult status)
{
    if (promise) {
        status = rg_promise_end(promise, status);
        if (status == CUDA_SUCCESS)
            rg_promise_release(promise);
        return status;
    }
    rg_jit_answer(jit, reply);
    rg_call_done(reply);
    if (status == CUDA_SUCCESS && known)
        rg_known_note_load(known);
    return status;
}

static CUresult load_view(CUmodule *module, struct rg_image_view *view, struct rg_jit *jit)
{
    uint64_t id;
    struct rg_known *known = rg_known_of(RG_KIND_MODULE, view, jit);
    const bool ahead = goes_on(known, jit); /* now: others may learn it at any time */
    const uint64_t there = ahead ? rg_program_take(RG_KIND_MODULE, known) : 0;
    if (there) {
        *module = (CUmodule)there;
        return CUDA_SUCCESS;
    }
    CUresult status = rg_image_send(view, !ahead, &id);
    if (status != CUDA_SUCCESS)
        return status;
    CUmodule handle = (CUmodule)rg_handle_create(RG_KIND_MODULE);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_module *made = &rg_handle_shadow(RG_KIND_MODULE, (uint64_t)handle)->module;
    made->context = rg_context_current();
    made->known = known;
    struct rg_call reply;
    struct rg_promise *promise = ahead ? load_ahead(known, RG_OP_rgModuleLoad) : NULL;
    status = rg_op_rgModuleLoad(&handle, id, jit->count, jit->options, jit->values, log_size(jit->info_size),
                                log_size(jit->error_size), &reply);
    status = load_end(promise, known, jit, &reply, status);
    if (status == CUDA_SUCCESS) {
        rg_variables_ask(RG_KIND_MODULE, (uint64_t)handle, known);
        *module = handle;
    } else {
        rg_handle_delete(RG_KIND_MODULE, (uint64_t)handle);
    }
    return status;
}

static CUresult load_module(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    struct rg_image_view *view;
    status = rg_jit_read(&jit, count, options, values);
    if (status == CUDA_SUCCESS)
        status = rg_image_view(image, &view);
    if (status != CUDA_SUCCESS)
        return status;
    status = load_view(module, view, &jit);
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
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    status = rg_cuda_image_read_file(fname, &image, &size);
    if (status != CUDA_SUCCESS)
        return status;
    status = load_module(module, image, 0, NULL, NULL);
    free(image);
    return status;
}

/* What was found in a module ends with it. */
static void forget_found(struct rg_shadow *shadow)
{
    rg_found_lock();
    rg_found_free(&shadow->module.functions, RG_KIND_FUNCTION);
    rg_found_free(&shadow->module.textures, RG_KIND_TEXREF);
    rg_found_free(&shadow->module.surfaces, RG_KIND_SURFREF);
    rg_variables_drop(&shadow->module.variables, 0);
    rg_found_unlock();
}

CUresult cuModuleUnload(CUmodule hmod)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_managed_drop_owner((uint64_t)hmod);
    status = rg_op_cuModuleUnload(hmod);
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

static void end_module(uint64_t module, uint64_t context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, module);
    if (!shadow || shadow->module.context != context || shadow->module.owner)
        return;
    forget_found(shadow);
    rg_handle_delete(RG_KIND_MODULE, module);
}

static void end_library_in(uint64_t library, uint64_t context)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    if (!shadow)
        return;
    rg_found_lock();
    rg_variables_drop(&shadow->library.variables, context);
    rg_found_unlock();
}

void rg_modules_context_ended(uint64_t context)
{
    for_all(RG_KIND_MODULE, end_module, context);
    for_all(RG_KIND_LIBRARY, end_library_in, context);
}

/* Options of libraries: only the one that promises to keep the image means nothing here, since it is copied. */
static CUresult read_library_options(unsigned count, const CUlibraryOption *options)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return rg_unsupported("cuLibraryLoadData with CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE");
    return CUDA_SUCCESS;
}

static CUresult load_library_view(CUlibrary *library, struct rg_image_view *view, struct rg_jit *jit)
{
    uint64_t id;
    struct rg_known *known = rg_known_of(RG_KIND_LIBRARY, view, jit);
    const bool ahead = goes_on(known, jit); /* now: others may learn it at any time */
    const uint64_t there = ahead ? rg_program_take(RG_KIND_LIBRARY, known) : 0;
    if (there) {
        *library = (CUlibrary)there;
        return CUDA_SUCCESS;
    }
    CUresult status = rg_image_send(view, !ahead, &id);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_image_copy *copy;
    status = rg_spread_keep(view, &copy);
    CUlibrary handle = (CUlibrary)(status == CUDA_SUCCESS ? rg_handle_create(RG_KIND_LIBRARY) : 0);
    if (!handle) {
        free(copy);
        return status == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)handle)->library.known = known;
    struct rg_call reply;
    struct rg_promise *promise = ahead ? load_ahead(known, RG_OP_rgLibraryLoad) : NULL;
    status = rg_op_rgLibraryLoad(&handle, id, jit->count, jit->options, jit->values, 0, NULL, NULL,
                                 log_size(jit->info_size), log_size(jit->error_size), &reply);
    status = load_end(promise, known, jit, &reply, status);
    if (status == CUDA_SUCCESS) {
        rg_spread_note((uint64_t)handle, copy, jit);
        rg_variables_ask(RG_KIND_LIBRARY, (uint64_t)handle, known);
        *library = handle;
    } else {
        free(copy);
        rg_handle_delete(RG_KIND_LIBRARY, (uint64_t)handle);
    }
    return status;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!library || !code || (numLibraryOptions && !libraryOptions))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    struct rg_image_view *view;
    status = rg_jit_read(&jit, numJitOptions, jitOptions, jitOptionsValues);
    if (status == CUDA_SUCCESS)
        status = read_library_options(numLibraryOptions, libraryOptions);
    if (status == CUDA_SUCCESS)
        status = rg_image_view(code, &view);
    if (status != CUDA_SUCCESS)
        return status;
    status = load_library_view(library, view, &jit);
    free(view);
    return status;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!library || !fileName)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    status = rg_cuda_image_read_file(fileName, &image, &size);
    if (status != CUDA_SUCCESS)
        return status;
    status = cuLibraryLoadData(library, image, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                               libraryOptionValues, numLibraryOptions);
    free(image);
    return status;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_managed_drop_owner((uint64_t)library);
    status = rg_spread_unload((uint64_t)library, rg_op_cuLibraryUnload);
    rg_found_lock();
    for (struct rg_found_function *found = shadow->library.kernels; found; found = found->next) {
        struct rg_shadow *kernel = rg_handle_shadow(RG_KIND_KERNEL, found->handle);
        if (kernel)
            rg_found_free(&kernel->function.by_context, RG_KIND_FUNCTION);
    }
    rg_found_free(&shadow->library.kernels, RG_KIND_KERNEL);
    rg_found_free(&shadow->library.modules, RG_KIND_MODULE);
    rg_variables_drop(&shadow->library.variables, 0);
    rg_found_unlock();
    rg_handle_delete(RG_KIND_LIBRARY, (uint64_t)library);
    return status;
}

/* --- functions and kernels -------------------------------------------------------------------------------- */

/* The answer of a look-up that was known: the call has returned what it will say. */
static void function_arrived(struct rg_promise *promise, CUresult result, struct rg_reader reply)
{
    struct rg_known *known = (struct rg_known *)(uintptr_t)promise->user[0];
    const struct rg_known_function *function = (const struct rg_known_function *)(uintptr_t)promise->user[1];
    if (result != CUDA_SUCCESS) {
        rg_known_drop(known);
        rg_session_async_error(promise->session, result, promise->op);
        return;
    }
    const size_t head = sizeof(struct rg_function_info);
    if (promise->op == RG_OP_rgKernelTakeFunction ||
        (rg_left(&reply) == function->size && !memcmp(reply.at, function->answer, function->size)))
        return;
    rg_known_drop(known);
    if (rg_left(&reply) == function->size && function->size >= head &&
        memcmp(reply.at + head, function->answer + head, function->size - head) == 0)
        return; /* other attributes: of no consequence for what was launched */
    rg_session_end(
        promise->session, CUDA_ERROR_DEVICE_UNAVAILABLE,
        "kernel %s on %s has other parameters than were kept from an earlier session; what was kept is "
        "dropped, start the program again",
        function->name, promise->session->server);
}

/* Asks for a function ahead if its answer is known, which is then in *answer. NULL: it is to be waited for. */
static struct rg_promise *look_up_ahead(struct rg_known *known, enum rg_op op, const char *name,
                                        struct rg_reader *answer)
{
    const struct rg_known_function *function =
        known && rg_known_here(known) ? rg_known_function(known, name) : NULL;
    if (!function || (op == RG_OP_rgKernelTakeFunction && !function->taken))
        return NULL;
    struct rg_promise *promise = rg_promise_begin(op, function_arrived);
    if (!promise)
        return NULL;
    promise->user[0] = (uintptr_t)known;
    promise->user[1] = (uintptr_t)function;
    rg_profile_saved(RG_OPT_KNOWN);
    *answer = rg_reader_of(function->answer, function->size);
    return promise;
}

/* Ends a look-up whose answer describes the function: keeps it under `handle`, adds it to the list. */
static CUresult keep(enum rg_kind kind, uint64_t handle, struct rg_reader *answer, const char *name,
                     uint64_t owner, struct rg_found_function **list)
{
    struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
    if (!rg_function_read(answer, &shadow->function, name, owner))
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_found_lock();
    (void)rg_found_add(list, name, 0, handle); /* without memory it is merely asked for again */
    rg_found_unlock();
    return CUDA_SUCCESS;
}

static CUresult ask_by_name(enum rg_kind kind, uint64_t handle, uint64_t owner, const char *name,
                            struct rg_call *reply)
{
    return kind == RG_KIND_FUNCTION
               ? rg_op_rgModuleGetFunction(&(CUfunction){(CUfunction)handle}, (CUmodule)owner, name, reply)
               : rg_op_rgLibraryGetKernel(&(CUkernel){(CUkernel)handle}, (CUlibrary)owner, name, reply);
}

/* A function of a module or kernel of a library by name: known, or asked for and kept. */
static CUresult find_by_name(enum rg_kind kind, uint64_t owner, const char *name, struct rg_known *known,
                             struct rg_found_function **list, uint64_t *out)
{
    rg_found_lock();
    uint64_t handle = rg_found_by_name(*list, name);
    rg_found_unlock();
    if (handle) {
        *out = handle;
        return CUDA_SUCCESS;
    }
    handle = rg_handle_create(kind);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    struct rg_reader answer;
    struct rg_promise *promise =
        look_up_ahead(known, kind == RG_KIND_FUNCTION ? RG_OP_rgModuleGetFunction : RG_OP_rgLibraryGetKernel,
                      name, &answer);
    CUresult status = rg_promise_end(promise, ask_by_name(kind, handle, owner, name, &reply));
    if (status == CUDA_SUCCESS) {
        if (!promise)
            answer = reply.reply;
        const unsigned char *begins = answer.at;
        status = keep(kind, handle, &answer, name, owner, list);
        if (status != CUDA_SUCCESS && !promise && answer.bad) {
            reply.reply.bad = true;
            status = rg_call_outputs_read(&reply);
        }
        if (status == CUDA_SUCCESS && !promise && known && rg_known_here(known))
            rg_known_note_function(known, name, begins, (size_t)(answer.at - begins));
        rg_promise_release(promise);
    }
    if (!promise)
        rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        *out = handle;
    else
        rg_handle_delete(kind, handle);
    return status;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    return shadow ? find_by_name(RG_KIND_FUNCTION, (uint64_t)hmod, name, shadow->module.known,
                                 &shadow->module.functions, (uint64_t *)hfunc)
                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    return shadow ? find_by_name(RG_KIND_KERNEL, (uint64_t)library, name, shadow->library.known,
                                 &shadow->library.kernels, (uint64_t *)pKernel)
                  : CUDA_ERROR_INVALID_HANDLE;
}

static void keep_function(struct rg_function *kernel, uint64_t context, uint64_t handle)
{
    rg_found_lock();
    (void)rg_found_add(&kernel->by_context, NULL, context, handle);
    rg_found_unlock();
}

/*
 * The function of a kernel that is known to have one in a context. NOT_FOUND: ask. So it is where the library's module was
 * asked for, by which the application may know the function already.
 */
static CUresult take_known_function(CUfunction *out, CUkernel kernel, struct rg_function *of,
                                    uint64_t context)
{
    struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, of->owner);
    if (!library || !library->library.known || rg_found_by_key(library->library.modules, context))
        return CUDA_ERROR_NOT_FOUND;
    CUfunction function = (CUfunction)rg_handle_create(RG_KIND_FUNCTION);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    struct rg_reader answer;
    struct rg_promise *promise =
        look_up_ahead(library->library.known, RG_OP_rgKernelTakeFunction, of->name, &answer);
    CUresult status = CUDA_ERROR_NOT_FOUND;
    if (promise)
        status = rg_promise_end(promise, rg_op_rgKernelTakeFunction(&function, kernel, &reply));
    if (promise && status == CUDA_SUCCESS) {
        struct rg_function *made = &rg_handle_shadow(RG_KIND_FUNCTION, (uint64_t)function)->function;
        if (!rg_function_read(&answer, made, of->name, of->owner))
            status = CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(made->set, of->set, sizeof made->set);
        atomic_store(&made->changed, of->changed);
        rg_promise_release(promise);
    }
    if (status == CUDA_SUCCESS) {
        keep_function(of, context, (uint64_t)function);
        *out = function;
    } else {
        rg_handle_delete(RG_KIND_FUNCTION, (uint64_t)function);
    }
    return status;
}

static CUresult ask_for_function(CUfunction *out, CUkernel kernel, struct rg_function *of, uint64_t context)
{
    CUfunction function = (CUfunction)rg_handle_create(RG_KIND_FUNCTION);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    CUresult status = rg_op_rgKernelGetFunction(&function, kernel, &reply);
    uint64_t actual = status == CUDA_SUCCESS ? rg_get_u64(&reply.reply) : 0;
    status = rg_handle_found(RG_KIND_FUNCTION, (uint64_t)function, actual, status);
    if (status == CUDA_SUCCESS) {
        struct rg_function *made = &rg_handle_shadow(RG_KIND_FUNCTION, actual)->function;
        if (made->name == NULL && !rg_function_read(&reply.reply, made, of->name, of->owner))
            status = reply.reply.bad ? rg_call_outputs_read(&reply) : CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(made->set, of->set, sizeof made->set);
        atomic_store(&made->changed, of->changed);
    }
    rg_call_done(&reply);
    if (status != CUDA_SUCCESS)
        return status;
    const struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, of->owner);
    if (library && library->library.known && rg_known_here(library->library.known))
        rg_known_note_taken(library->library.known, of->name);
    keep_function(of, context, actual);
    *out = (CUfunction)actual;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_KERNEL, (uint64_t)kernel);
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current();
    rg_found_lock();
    uint64_t known = rg_found_by_key(shadow->function.by_context, context);
    rg_found_unlock();
    if (known) {
        *pFunc = (CUfunction)known;
        return CUDA_SUCCESS;
    }
    status = take_known_function(pFunc, kernel, &shadow->function, context);
    return status == CUDA_ERROR_NOT_FOUND ? ask_for_function(pFunc, kernel, &shadow->function, context)
                                          : status;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current();
    rg_found_lock();
    CUmodule module = (CUmodule)rg_found_by_key(shadow->library.modules, context);
    rg_found_unlock();
    if (!module) {
        module = (CUmodule)rg_handle_create(RG_KIND_MODULE);
        if (!module)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const uint64_t proposed = (uint64_t)module;
        status = rg_op_cuLibraryGetModule(&module, library);
        status = rg_handle_found(RG_KIND_MODULE, proposed, (uint64_t)module, status);
        if (status != CUDA_SUCCESS)
            return status;
        struct rg_module *made = &rg_handle_shadow(RG_KIND_MODULE, (uint64_t)module)->module;
        made->context = context;
        made->owner = (uint64_t)library;
        rg_found_lock();
        (void)rg_found_add(&shadow->library.modules, NULL, context, (uint64_t)module);
        rg_found_unlock();
    }
    *pMod = module;
    return CUDA_SUCCESS;
}

/* --- enumeration ------------------------------------------------------------------------------------------ */

enum { ENUMERATE_MAX = 4096 };

/* Offers `count` handles for what an enumeration finds, and reads the answer: id, name, info of each. */
static CUresult enumerate(enum rg_kind kind, uint64_t owner, struct rg_found_function **list, uint64_t *out,
                          unsigned count)
{
    CUresult status = CUDA_SUCCESS;
    unsigned long long *ids = calloc(count, sizeof *ids);
    if (!ids)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned offered = 0, n = 0;
    while (offered < count && (ids[offered] = rg_handle_create(kind)) != 0)
        offered++;
    if (offered < count) {
        status = CUDA_ERROR_OUT_OF_MEMORY;
        goto out;
    }
    struct rg_call reply;
    status = kind == RG_KIND_FUNCTION ? rg_op_rgModuleEnumerate((CUmodule)owner, count, ids, &reply)
                                      : rg_op_rgLibraryEnumerate((CUlibrary)owner, count, ids, &reply);
    struct rg_reader *in = &reply.reply;
    n = status == CUDA_SUCCESS ? rg_get_u32(in) : 0;
    for (unsigned i = 0; i < n && i < count && status == CUDA_SUCCESS; i++) {
        out[i] = rg_get_u64(in);
        const char *name = rg_get_string(in, RG_NAME_MAX);
        struct rg_shadow *shadow = rg_handle_shadow(kind, out[i]);
        struct rg_function ignored;
        bool fresh = shadow && !shadow->function.name;
        if (!name || !shadow || !rg_function_read(in, fresh ? &shadow->function : &ignored, name, owner)) {
            status = in->bad ? rg_call_outputs_read(&reply) : CUDA_ERROR_UNKNOWN;
        } else if (fresh) {
            rg_found_lock();
            (void)rg_found_add(list, name, 0, out[i]);
            rg_found_unlock();
        } else {
            free(ignored.name);
            free(ignored.params);
        }
    }
    rg_call_done(&reply);
out:
    for (unsigned i = 0; i < offered; i++) { /* those that were not taken */
        struct rg_shadow *shadow = rg_handle_shadow(kind, ids[i]);
        if (shadow && !shadow->function.name)
            rg_handle_delete(kind, ids[i]);
    }
    free(ids);
    return status;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)mod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!functions || !numFunctions || numFunctions > ENUMERATE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enumerate(RG_KIND_FUNCTION, (uint64_t)mod, &shadow->module.functions, (uint64_t *)functions,
                     numFunctions);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)lib);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!kernels || !numKernels || numKernels > ENUMERATE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enumerate(RG_KIND_KERNEL, (uint64_t)lib, &shadow->library.kernels, (uint64_t *)kernels,
                     numKernels);
}

/* Functions that host and device may both call by one address: there is no such address on two machines. */
CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_LIBRARY, (uint64_t)library))
        return CUDA_ERROR_INVALID_HANDLE;
    return fptr && symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
