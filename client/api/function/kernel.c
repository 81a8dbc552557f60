/*
 * kernel.c - functions that kernels of libraries have in a context, and libraries' modules.
 *
 * Each is asked for once and kept by context. What is known of the image (image_cache.h) need not be waited for: the answer is requested as
 * a future, and compared. The first function of a library in a context loads it there, for which memory is taken.
 *
 * Without memory for a handle the call fails; a look-up that several threads make at once is made by one. Any thread.
 */
#include "client/api/function/function.h"
#include "client/api/function/lookup.h"
#include "client/cache/image_cache.h"
#include "client/cache/load_memory.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "generated/client/operations.h"

#include <string.h>

static void keep_function(struct rg_function *kernel, uint64_t context, uint64_t handle)
{
    rg_found_lock();
    (void)rg_found_add(&kernel->by_context, NULL, context, handle);
    rg_found_unlock();
}

/*
 * The function of a kernel that is known to have one in a context. NOT_FOUND: ask. So it is where the
 * library's module was asked for, by which the application may know the function already; and while other threads
 * may have to end the context's work, for which the driver may wait before it has the function.
 */
static CUresult take_cached_function(CUfunction *out, CUkernel kernel, struct rg_function *of,
                                     uint64_t context)
{
    struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, of->owner);
    if (!library || !library->library.cached)
        return CUDA_ERROR_NOT_FOUND;
    rg_found_lock();
    const bool by_module = rg_found_by_key(library->library.modules, context) != 0;
    rg_found_unlock();
    /* what has been set of the kernel is known of its own device alone */
    if (by_module || (atomic_load(&of->changed) && of->device != rg_device_current()) ||
        rg_hooks.blocks_on_context(context))
        return CUDA_ERROR_NOT_FOUND;
    struct rg_session *session = rg_session_current();
    CUfunction function = (CUfunction)rg_handle_create(RG_KIND_FUNCTION);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    struct rg_reader answer;
    struct rg_future *future = rg_lookup_begin_known(library->library.cached, true, of->name, &answer);
    CUresult status = CUDA_ERROR_NOT_FOUND;
    const rg_memory_level memory = future ? (rg_memory_level)future->user[2] : 0;
    if (future)
        status = rg_future_end(future, rg_op_rgKernelTakeFunction(&function, kernel, future, &reply));
    if (future && status != CUDA_SUCCESS) /* it was not sent */
        rg_load_memory_end(session, memory);
    if (future && status == CUDA_SUCCESS) {
        struct rg_function *made = &rg_handle_shadow(RG_KIND_FUNCTION, (uint64_t)function)->function;
        if (!rg_function_read(&answer, made, of->name, of->owner))
            status = CUDA_ERROR_OUT_OF_MEMORY;
        if (of->device == made->device)
            memcpy(made->set, of->set, sizeof made->set);
        atomic_store(&made->changed, of->changed);
        rg_future_release(future);
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
    const unsigned memory = reply.memory_taken;
    uint64_t actual = status == CUDA_SUCCESS ? rg_get_u64(&reply.reply) : 0;
    status = rg_handle_found(RG_KIND_FUNCTION, (uint64_t)function, actual, status);
    if (status == CUDA_SUCCESS) {
        struct rg_function *made = &rg_handle_shadow(RG_KIND_FUNCTION, actual)->function;
        if (!rg_function_is_filled(made) &&
            !rg_function_fill(&reply.reply, made, of->name, of->owner, NULL, 0))
            status = reply.reply.bad ? rg_call_outputs_read(&reply) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    rg_call_done(&reply);
    if (status != CUDA_SUCCESS)
        return status;
    const struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, of->owner);
    if (library && library->library.cached && rg_image_cache_here(library->library.cached)) {
        rg_image_cache_note_taken(library->library.cached, of->name);
        rg_image_cache_note_memory(library->library.cached, memory);
    }
    keep_function(of, context, actual);
    *out = (CUfunction)actual;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_KERNEL, (uint64_t)kernel);
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current_owner();
    struct rg_found_question question = {.owner = (uint64_t)kernel, .context = context};
    rg_found_lock();
    CUfunction known = (CUfunction)rg_found_by_key(shadow->function.by_context, context);
    if (!known) {
        rg_found_begin(&question);
        known = (CUfunction)rg_found_by_key(shadow->function.by_context, context);
        rg_found_unlock();
        CUresult status =
            known ? CUDA_SUCCESS : take_cached_function(&known, kernel, &shadow->function, context);
        if (status == CUDA_ERROR_NOT_FOUND)
            status = ask_for_function(&known, kernel, &shadow->function, context);
        rg_found_end(&question);
        RG_TRY(status);
    } else {
        rg_found_unlock();
    }
    *pFunc = known;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current_owner();
    rg_found_lock();
    CUmodule module = (CUmodule)rg_found_by_key(shadow->library.modules, context);
    rg_found_unlock();
    if (!module) {
        module = (CUmodule)rg_handle_create(RG_KIND_MODULE);
        if (!module)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const uint64_t proposed = (uint64_t)module;
        const CUresult status = rg_op_cuLibraryGetModule(&module, library);
        RG_TRY(rg_handle_found(RG_KIND_MODULE, proposed, (uint64_t)module, status));
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

/* Functions that host and device may both call by one address: there is no such address on two machines. */
CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    RG_TRY(rg_call_allowed(0));
    if (!rg_handle_known(RG_KIND_LIBRARY, (uint64_t)library))
        return CUDA_ERROR_INVALID_HANDLE;
    return fptr && symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

CUfunction rg_kernel_function_here(const struct rg_function *kernel)
{
    const uint64_t context = rg_context_current_owner();
    rg_found_lock();
    uint64_t function = rg_found_by_key(kernel->by_context, context);
    const struct rg_shadow *library = function ? NULL : rg_function_library(kernel);
    const struct rg_shadow *module =
        library ? rg_handle_shadow(RG_KIND_MODULE, rg_found_by_key(library->library.modules, context)) : NULL;
    if (module)
        function = rg_found_by_name(module->module.functions, kernel->name);
    rg_found_unlock();
    return (CUfunction)function;
}
