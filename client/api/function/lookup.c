/*
 * lookup.c - functions of modules and kernels of libraries, by name (all of them: enumerate.c; by kernel: kernel.c).
 * What has been found is remembered, so a second look-up asks nobody; what is known of the image
 * (image_cache.h) need not be waited for.
 */
#include "client/api/function/lookup.h"

#include "client/api/function/function.h"
#include "client/cache/image_cache.h"
#include "client/cache/load_memory.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

/* But for whether the function is loaded, which it may be by now, and for attributes that one of them does not tell. */
static bool same_attributes(const unsigned char *answer, const unsigned char *other)
{
    struct rg_function_info one, two;
    memcpy(&one, answer, sizeof one);
    memcpy(&two, other, sizeof two);
    bool same = one.n_params == two.n_params;
    for (unsigned i = 0; i < RG_FUNCTION_ATTRIBUTES && same; i++)
        same = !(one.known & two.known & 1u << i) || one.attributes[i] == two.attributes[i];
    return same;
}

/* What was known is so no more: the call has returned that it succeeded. */
static void fail_later(struct rg_future *future, CUresult result)
{
    rg_image_cache_drop((struct rg_cached_image *)(uintptr_t)future->user[0]);
    rg_session_async_error(future->session, result, future->op);
}

/* The answer to taking the function of a known kernel in a context, for which memory was taken. */
static void taken(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    (void)reply;
    rg_load_memory_end(future->session, (rg_memory_level)future->user[2]);
    if (result != CUDA_SUCCESS)
        fail_later(future, result);
    else
        rg_image_cache_note_memory((struct rg_cached_image *)(uintptr_t)future->user[0],
                                   rg_future_memory_taken(future));
}

/* The answer of a look-up that was known: the call has returned what it will say. */
static void function_arrived(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    struct rg_cached_image *cached = (struct rg_cached_image *)(uintptr_t)future->user[0];
    const struct rg_cached_function *function = (const struct rg_cached_function *)(uintptr_t)future->user[1];
    if (result != CUDA_SUCCESS) {
        fail_later(future, result);
        return;
    }
    const size_t head = sizeof(struct rg_function_info);
    const bool same_parameters = rg_left(&reply) == function->size && function->size >= head &&
                                 memcmp(reply.at + head, function->answer + head, function->size - head) == 0;
    rg_image_cache_note_memory(cached, rg_future_memory_taken(future));
    if (same_parameters && same_attributes(reply.at, function->answer)) {
        rg_image_cache_note_attributes(cached, function, reply.at);
        return;
    }
    rg_image_cache_drop(cached);
    if (same_parameters)
        return; /* other attributes: of no consequence for what was launched */
    rg_session_end(future->session, CUDA_ERROR_DEVICE_UNAVAILABLE,
                   "kernel %s on %s has other parameters than were kept from an earlier session; what was "
                   "kept is dropped, start the program again",
                   function->name, future->session->server);
}

struct rg_future *rg_lookup_begin_known(struct rg_cached_image *cached, bool take, const char *name,
                                        struct rg_reader *answer)
{
    const struct rg_cached_function *function =
        cached && rg_image_cache_here(cached) ? rg_image_cache_function(cached, name) : NULL;
    if (!function || (take && !function->taken))
        return NULL;
    struct rg_session *session = rg_session_current();
    const rg_memory_level memory = take ? rg_image_cache_memory(cached) : 0;
    if (take && !rg_load_memory_take(session, memory))
        return NULL;
    struct rg_future *future = rg_future_begin(take ? taken : function_arrived);
    if (!future) {
        if (take)
            rg_load_memory_end(session, memory);
        return NULL;
    }
    rg_image_cache_used(cached, name, take);
    future->user[0] = (uintptr_t)cached;
    future->user[1] = (uintptr_t)function;
    future->user[2] = memory;
    rg_probe_saved(RG_OPT_IMAGE_CACHE);
    *answer = rg_reader_of(function->answer, function->size);
    return future;
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
                            struct rg_future *future, struct rg_call *reply)
{
    return kind == RG_KIND_FUNCTION ? rg_op_rgModuleGetFunction(&(CUfunction){(CUfunction)handle},
                                                                (CUmodule)owner, name, future, reply)
                                    : rg_op_rgLibraryGetKernel(&(CUkernel){(CUkernel)handle},
                                                               (CUlibrary)owner, name, 0, future, reply);
}

static CUresult ask_and_keep(enum rg_kind kind, uint64_t owner, const char *name,
                             struct rg_cached_image *cached, struct rg_found_function **list, uint64_t *out)
{
    const uint64_t handle = rg_handle_create(kind);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    struct rg_reader answer;
    struct rg_future *future = rg_lookup_begin_known(cached, false, name, &answer);
    CUresult status = rg_future_end(future, ask_by_name(kind, handle, owner, name, future, &reply));
    if (status == CUDA_SUCCESS) {
        if (!future)
            answer = reply.reply;
        const unsigned char *begins = answer.at;
        status = keep(kind, handle, &answer, name, owner, list);
        if (status != CUDA_SUCCESS && !future && answer.bad) {
            reply.reply.bad = true;
            status = rg_call_outputs_read(&reply);
        }
        if (status == CUDA_SUCCESS && !future && cached && rg_image_cache_here(cached))
            rg_image_cache_note_function(cached, name, begins, (size_t)(answer.at - begins));
        rg_future_release(future);
    }
    if (!future)
        rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        *out = handle;
    else
        rg_handle_delete(kind, handle);
    return status;
}

/* A function of a module or kernel of a library by name: known, or asked for and kept, by one thread for all. */
static CUresult find_by_name(enum rg_kind kind, uint64_t owner, const char *name,
                             struct rg_cached_image *cached, struct rg_found_function **list, uint64_t *out)
{
    struct rg_found_question question = {.owner = owner, .name = name};
    rg_found_lock();
    uint64_t handle = rg_found_by_name(*list, name);
    if (!handle) {
        rg_found_begin(&question);
        handle = rg_found_by_name(*list, name);
        rg_found_unlock();
        const CUresult status =
            handle ? CUDA_SUCCESS : ask_and_keep(kind, owner, name, cached, list, &handle);
        rg_found_end(&question);
        RG_TRY(status);
    } else {
        rg_found_unlock();
    }
    *out = handle;
    return CUDA_SUCCESS;
}

/* What is known of a module's functions; of a library's module, what is known of the library's kernels. */
static struct rg_cached_image *cached_image_of(const struct rg_module *module)
{
    const struct rg_shadow *library =
        module->cached ? NULL : rg_handle_shadow(RG_KIND_LIBRARY, module->owner);
    return library ? library->library.cached : module->cached;
}

/* What is known of the image that a function comes from; NULL: nothing is kept of it. */
static struct rg_cached_image *cached_image_by_owner(uint64_t owner)
{
    const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, owner);
    const struct rg_shadow *library = module ? NULL : rg_handle_shadow(RG_KIND_LIBRARY, owner);
    struct rg_cached_image *cached = module    ? cached_image_of(&module->module)
                                     : library ? library->library.cached
                                               : NULL;
    return cached && rg_image_cache_here(cached) ? cached : NULL;
}

static void keep_attributes(struct rg_function *function, const void *answer, size_t size)
{
    struct rg_function_info info;
    memcpy(&info, answer, sizeof info);
    rg_found_lock();
    if (!(function->info.known & ~RG_FUNCTION_UNLOADED)) {
        memcpy(function->info.attributes, info.attributes, sizeof info.attributes);
        memcpy(function->set, info.attributes, sizeof function->set);
        __atomic_store_n(&function->info.known, info.known, __ATOMIC_RELEASE);
    }
    rg_found_unlock();
    struct rg_cached_image *cached = cached_image_by_owner(function->owner);
    const struct rg_cached_function *known = cached ? rg_image_cache_function(cached, function->name) : NULL;
    if (known && known->size == size)
        rg_image_cache_note_attributes(cached, known, answer);
}

CUresult rg_function_ask_attributes(CUfunction handle)
{
    struct rg_function *function = rg_function_of(handle);
    struct rg_call reply;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = rg_op_rgFunctionAttributes(handle, &reply);
    if (status == CUDA_SUCCESS && rg_left(&reply.reply) >= sizeof(struct rg_function_info)) {
        keep_attributes(function, reply.reply.at, rg_left(&reply.reply));
    } else if (status == CUDA_SUCCESS) {
        reply.reply.bad = true;
        status = rg_call_outputs_read(&reply);
    }
    rg_call_done(&reply);
    return status;
}

/* In a library's module: the function that the kernel of that name is known to have in the module's context; 0: none is known. */
static uint64_t function_by_kernel(const struct rg_module *module, const char *name)
{
    const struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, module->owner);
    if (!library)
        return 0;
    rg_found_lock();
    const struct rg_shadow *kernel =
        rg_handle_shadow(RG_KIND_KERNEL, rg_found_by_name(library->library.kernels, name));
    const uint64_t function = kernel ? rg_found_by_key(kernel->function.by_context, module->context) : 0;
    rg_found_unlock();
    return function;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t known = function_by_kernel(&shadow->module, name);
    if (known) {
        *hfunc = (CUfunction)known;
        return CUDA_SUCCESS;
    }
    return find_by_name(RG_KIND_FUNCTION, (uint64_t)hmod, name, cached_image_of(&shadow->module),
                        &shadow->module.functions, (uint64_t *)hfunc);
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    RG_TRY(rg_call_allowed(0));
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    return shadow ? find_by_name(RG_KIND_KERNEL, (uint64_t)library, name, shadow->library.cached,
                                 &shadow->library.kernels, (uint64_t *)pKernel)
                  : CUDA_ERROR_INVALID_HANDLE;
}
