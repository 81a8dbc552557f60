/*
 * module_load.c - an image is loaded as a module or a library.
 *
 * Happy path: what has been prefetched is taken as it is; an image that is known to load is loaded without waiting, its
 * memory taken from what is known to be there, and the answer compared when it comes; else the answer is waited for.
 * An image that was known to load and does not makes the next call that waits fail, and is known no more. Without memory
 * a load that waits is tried once more after what is only kept ready has been given back. Any thread.
 */
#include "client/api/module_load.h"

#include "client/api/function/function.h"
#include "client/cache/image_cache.h"
#include "client/cache/load_memory.h"
#include "client/cache/variables.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/multiserver/replication.h"
#include "client/prefetch/image_prefetch.h"
#include "client/prefetch/loaded_images.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"

#include <stdatomic.h>
#include <stdlib.h>

static size_t log_size(size_t size)
{
    return size < RG_JIT_LOG_MAX ? size : RG_JIT_LOG_MAX;
}

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
    struct rg_session *session;
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
    struct rg_future *future = rg_future_begin(load_arrived);
    if (future) {
        future->user[0] = (uintptr_t)load->cached;
        future->user[1] = load->memory;
        rg_probe_saved(RG_OPT_IMAGE_CACHE);
    }
    const CUresult status = rg_future_end(future, ask(load, future, &reply));
    if (!future || status != CUDA_SUCCESS)
        rg_load_memory_end(load->session, load->memory);
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
    return rg_load_memory_take(load->session, load->memory);
}

/*
 * Waits for the answer; what is in the image is asked with it, or behind it where others' calls are to pass.
 */
static CUresult load_and_wait(const struct load *load)
{
    struct rg_call reply;
    const bool out_of_order = rg_call_goes_out_of_order(load->session);
    struct rg_future *future = load->cached && !out_of_order ? rg_future_begin(NULL) : NULL;
    CUresult status = rg_future_end(future, ask(load, future, &reply));
    unsigned memory = 0;
    if (!future) {
        memory = reply.memory_taken;
        rg_jit_answer(load->jit, &reply.reply);
        rg_call_done(&reply);
    } else if (status == CUDA_SUCCESS) {
        struct rg_reader answer;
        rg_image_prefetch_read(rg_image_prefetch_describe(load->kind, load->handle, load->cached),
                               load->cached);
        status = rg_future_wait(future, &answer);
        memory = rg_future_memory_taken(future);
        rg_jit_answer(load->jit, &answer);
        rg_future_release(future);
        if (status == CUDA_SUCCESS) /* as any call that waits */
            status = rg_session_take_latched(load->session);
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
        rg_load_memory_end(load->session, load->memory);
    free(copy);
    return status;
}

static void note_known(const struct load *load)
{
    struct rg_shadow *shadow = rg_handle_shadow(load->kind, load->handle);
    if (load->kind == RG_KIND_LIBRARY) {
        shadow->library.cached = load->cached;
    } else {
        shadow->module.context = rg_context_current_owner();
        shadow->module.cached = load->cached;
    }
}

static CUresult load_view(struct load *load, struct rg_image_view *view, uint64_t *out)
{
    const bool logs = load->jit->info_size || load->jit->error_size;
    const uint64_t there = load->cached && !logs ? rg_loaded_images_take(load->kind, load->cached) : 0;
    if (there) {
        *out = there;
        return CUDA_SUCCESS;
    }
    load->async = !logs && may_be_async(load); /* now: others may learn it at any time */
    struct rg_image_copy *copy = NULL;
    CUresult status =
        rg_image_send(view, load->async ? RG_IMAGE_STAYS_IN_FILE : RG_IMAGE_STAYS, &load->image);
    if (status == CUDA_SUCCESS && load->kind == RG_KIND_LIBRARY)
        status = rg_replication_keep(view, &copy);
    if (status != CUDA_SUCCESS)
        return fail(load, copy, status);
    load->handle = rg_handle_create(load->kind);
    if (!load->handle)
        return fail(load, copy, CUDA_ERROR_OUT_OF_MEMORY);
    note_known(load);
    status = load->async ? load_async(load) : load_and_wait(load);
    /* memory that is only kept ready does not make it fail; the image was used up */
    if (status == CUDA_ERROR_OUT_OF_MEMORY && !load->async && rg_hooks.out_of_memory(load->session)) {
        rg_image_settle(view);
        if (rg_image_send(view, RG_IMAGE_STAYS, &load->image) == CUDA_SUCCESS)
            status = load_and_wait(load);
    }
    if (status != CUDA_SUCCESS) {
        free(copy);
        rg_handle_delete(load->kind, load->handle);
        return status;
    }
    if (load->kind == RG_KIND_LIBRARY)
        rg_replication_note(load->handle, copy, load->jit);
    rg_variables_ask(load->kind, load->handle, load->cached);
    *out = load->handle;
    return CUDA_SUCCESS;
}

CUresult rg_module_load_image(enum rg_kind kind, struct rg_image_view *view, struct rg_jit *jit,
                              uint64_t *out)
{
    struct load load = {.session = rg_session_current(),
                        .kind = kind,
                        .jit = jit,
                        .cached = rg_image_cache_find(kind, view, jit)};
    const CUresult status = load_view(&load, view, out);
    if (!load.async)
        rg_image_settle(view); /* the program may free it */
    return status;
}

CUresult rg_module_view_image(const void *image, struct rg_jit *jit, struct rg_image_view **view)
{
    rg_jit_fail(jit, "");
    const CUresult status = rg_image_view(image, view);
    if (status == CUDA_ERROR_INVALID_IMAGE) {
        rg_jit_fail(jit, "neither PTX nor a fat binary");
        rg_jit_done(jit);
    }
    return status;
}

void rg_module_loads_wait(void)
{
    atomic_store(&memory_ran_out, true);
}
