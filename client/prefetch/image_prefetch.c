/*
 * image_prefetch.c - a program's own images are loaded, and the functions of others asked for, before it does (image_prefetch.h).
 *
 * All own images are sent first, then loaded, since the worker waits for the bytes where it loads. An answer says of each form (library,
 * module) whether it could be loaded and what is in it, which goes to the image cache; a form that could not is dropped, and the program's own call
 * then asks as it always would. Any thread that has a context.
 */
#include "client/prefetch/image_prefetch.h"

#include "client/cache/jit_options.h"
#include "client/cache/variables.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/prefetch/loaded_images.h"
#include "client/prefetch/startup_profile.h"
#include "common/base/limits.h"
#include "common/cuda/program/own_images.h"
#include "generated/client/operations.h"
#include "proto/function_info.h"

#include <stdatomic.h>
#include <stdlib.h>

/* More than this is not loaded in the hope that it is needed. */
#define IMAGES_MAX 128u
static const struct rg_own_images_limits limits = {
    .images = IMAGES_MAX, .image_bytes = 512u << 10, .bytes = 2u << 20};

/* An image that is to be loaded, and what the worker calls its bytes. */
struct prefetched {
    struct rg_loaded_image loaded; /* the module is the library's */
    struct prefetched *next;
    uint64_t image;
};

static bool possible(enum rg_op op)
{
    return rg_optimise[RG_OPT_IMAGE_PREFETCH] && rg_optimise[RG_OPT_QUERY_CACHE] &&
           !rg_several_own_servers() && rg_session_current()->op_numbers[op];
}

/* --- answers ---------------------------------------------------------------------------------------- */

static void read_functions(struct rg_reader *in, struct rg_cached_image *cached)
{
    while (rg_get_u32(in)) {
        struct rg_function_info info;
        const char *name = rg_get_string(in, RG_NAME_MAX);
        const bool taken = rg_get_u32(in);
        const unsigned char *answer = in->at;
        rg_get_into(in, &info, sizeof info);
        if (!name || info.n_params > RG_PARAMS_MAX ||
            !rg_get(in, info.n_params * sizeof(struct rg_param_info))) {
            in->bad = true;
            return;
        }
        rg_image_cache_learn_function(cached, name, taken, answer, (size_t)(in->at - answer));
    }
}

static void read_variables(struct rg_reader *in, enum rg_kind kind, uint64_t handle, uint64_t context)
{
    while (rg_get_u32(in)) {
        const char *name = rg_get_string(in, RG_NAME_MAX);
        const void *place = rg_get(in, RG_VARIABLE_ANSWER);
        if (!name || !place) {
            in->bad = true;
            return;
        }
        rg_variables_learn(kind, handle, context, name, place);
    }
}

static void read_answer(struct rg_loaded_image *image, struct rg_reader *in)
{
    bool loaded = true;
    for (enum rg_loaded_form form = 0; form < RG_LOADED_FORMS; form++) {
        loaded = loaded && rg_get_u32(in) == CUDA_SUCCESS && !in->bad && image->as[form].handle;
        if (loaded) {
            read_functions(in, image->as[form].cached);
            read_variables(in, rg_loaded_image_kind(form), image->as[form].handle, image->context);
        }
        if (!loaded || in->bad)
            rg_loaded_image_drop(image, form);
    }
}

/* Names a module that the worker has found already. */
static bool name_module(uint64_t module)
{
    const uint64_t library = rg_handle_shadow(RG_KIND_MODULE, module)->module.whole;
    struct rg_call reply;
    struct rg_future *future = rg_future_begin(NULL);
    const CUresult status = rg_future_end(
        future, rg_op_rgModuleTake(&(CUmodule){(CUmodule)module}, (CUlibrary)library, future, &reply));
    if (!future)
        rg_call_done(&reply);
    else if (status == CUDA_SUCCESS)
        rg_future_release(future);
    return status == CUDA_SUCCESS;
}

static bool taken(enum rg_kind kind, uint64_t handle, struct rg_cached_image *cached)
{
    if (kind == RG_KIND_MODULE && !name_module(handle))
        return false;
    rg_image_cache_note_load(cached);
    rg_probe_saved(RG_OPT_IMAGE_PREFETCH);
    return true;
}

/* --- a program's own images ----------------------------------------------------------------------------- */

/* What is to be loaded: sent first, since the worker waits for the bytes where it loads. */
struct batch {
    struct prefetched *first, **last;
    uint64_t context;
};

static bool there_already(const struct batch *batch, const struct rg_cached_image *cached)
{
    const struct prefetched *at = batch->first;
    while (at && at->loaded.as[RG_LOADED_LIBRARY].cached != cached)
        at = at->next;
    return at != NULL;
}

static void send_image(void *user, const void *wrapper)
{
    static const struct rg_jit no_options;
    struct batch *batch = user;
    struct rg_image_view *view;
    if (rg_image_view(wrapper, &view) != CUDA_SUCCESS)
        return;
    struct rg_cached_image *library = rg_image_cache_find(RG_KIND_LIBRARY, view, &no_options);
    struct rg_cached_image *module = rg_image_cache_find(RG_KIND_MODULE, view, &no_options);
    struct prefetched *image = NULL;
    if (library && module && !rg_image_cache_loads(library) && !rg_image_cache_loads(module) &&
        !there_already(batch, library))
        image = calloc(1, sizeof *image);
    if (image)
        image->loaded = (struct rg_loaded_image){
            .context = batch->context,
            .as = {[RG_LOADED_LIBRARY] = {.cached = library}, [RG_LOADED_MODULE] = {.cached = module}},
            .read = read_answer,
            .taken = taken};
    if (image && rg_image_send(view, RG_IMAGE_PASSES, &image->image) == CUDA_SUCCESS) {
        *batch->last = image;
        batch->last = &image->next;
    } else {
        free(image);
    }
    free(view);
}

static void load(struct prefetched *image)
{
    struct rg_call reply;
    struct rg_loaded_image *loaded = &image->loaded;
    for (enum rg_loaded_form form = 0; form < RG_LOADED_FORMS; form++)
        loaded->as[form].handle = rg_handle_create(rg_loaded_image_kind(form));
    const uint64_t library = loaded->as[RG_LOADED_LIBRARY].handle;
    const uint64_t module = loaded->as[RG_LOADED_MODULE].handle;
    struct rg_future *future =
        library && module ? rg_loaded_image_begin(loaded->as[RG_LOADED_LIBRARY].cached) : NULL;
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (future) {
        rg_handle_shadow(RG_KIND_LIBRARY, library)->library.cached = loaded->as[RG_LOADED_LIBRARY].cached;
        rg_handle_shadow(RG_KIND_MODULE, module)->module = (struct rg_module){
            .context = loaded->context, .cached = loaded->as[RG_LOADED_MODULE].cached, .whole = library};
        status = rg_loaded_image_end(
            future, rg_op_rgImagePrefetch(&(CUlibrary){(CUlibrary)library}, image->image, future, &reply));
    }
    if (status == CUDA_SUCCESS) {
        loaded->future = future;
        rg_loaded_images_add(loaded);
        return;
    }
    for (enum rg_loaded_form form = 0; form < RG_LOADED_FORMS; form++)
        rg_loaded_image_drop(loaded, form);
    free(image);
}

void rg_image_prefetch_context(uint64_t context)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    struct batch batch = {.last = &batch.first, .context = context};
    if (atomic_flag_test_and_set(&begun) || !possible(RG_OP_rgImagePrefetch) || !rg_startup_profile_is_new())
        return;
    if (rg_context_scope_enter(context) != CUDA_SUCCESS)
        return;
    rg_own_images(&limits, send_image, &batch);
    while (batch.first) {
        struct prefetched *image = batch.first;
        batch.first = image->next;
        load(image);
    }
    rg_context_scope_leave();
}

/* --- what is in others ---------------------------------------------------------------------------------- */

static enum rg_op describes(enum rg_kind kind)
{
    return kind == RG_KIND_LIBRARY ? RG_OP_rgLibraryDescribe : RG_OP_rgModuleDescribe;
}

static CUresult describe(enum rg_kind kind, uint64_t handle, struct rg_future *future, struct rg_call *reply)
{
    return kind == RG_KIND_LIBRARY ? rg_op_rgLibraryDescribe((CUlibrary)handle, future, reply)
                                   : rg_op_rgModuleDescribe((CUmodule)handle, future, reply);
}

struct rg_future *rg_image_prefetch_describe(enum rg_kind kind, uint64_t handle,
                                             const struct rg_cached_image *cached)
{
    const enum rg_op op = describes(kind);
    struct rg_call reply;
    struct rg_future *future =
        cached && rg_context_current_owner() && possible(op) ? rg_future_begin(NULL) : NULL;
    if (!future)
        return NULL;
    const CUresult status = rg_future_end(future, describe(kind, handle, future, &reply));
    return status == CUDA_SUCCESS ? future : NULL;
}

void rg_image_prefetch_ask(enum rg_kind kind, uint64_t handle, struct rg_cached_image *cached)
{
    struct rg_call reply;
    if (!cached || !rg_context_current_owner() || !possible(describes(kind)))
        return;
    if (describe(kind, handle, NULL, &reply) == CUDA_SUCCESS) {
        rg_image_cache_note_memory(cached, reply.memory_taken);
        read_functions(&reply.reply, cached);
    }
    rg_call_done(&reply);
}

void rg_image_prefetch_read(struct rg_future *description, struct rg_cached_image *cached)
{
    struct rg_reader reply;
    if (!description)
        return;
    if (rg_future_wait(description, &reply) == CUDA_SUCCESS) {
        rg_image_cache_note_memory(cached, rg_future_memory_taken(description));
        read_functions(&reply, cached);
    }
    rg_future_release(description);
}
