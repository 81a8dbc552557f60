/*
 * image_prefetch.c - see image_prefetch.h. One lock guards the lists; it is not held while anything is sent or waited for. Answers are
 * read by the thread that needs them first.
 */
#include "client/prefetch/image_prefetch.h"

#include "client/api/context.h"
#include "client/api/variable.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/prefetch/own_images.h"
#include "client/prefetch/startup_profile.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"
#include "proto/function_info.h"

#include <pthread.h>
#include <stdlib.h>

/* More than this is not loaded in the hope that it is needed. */
#define IMAGES_MAX 128u
static const struct rg_own_images_limits limits = {
    .images = IMAGES_MAX, .image_bytes = 512u << 10, .bytes = 2u << 20};

/* As what an image may be asked for: the module is the library's. The program gets one of them. */
enum form { AS_LIBRARY, AS_MODULE, FORMS };
static const enum rg_kind kinds[FORMS] = {[AS_LIBRARY] = RG_KIND_LIBRARY, [AS_MODULE] = RG_KIND_MODULE};

/* An image that was loaded ahead. It is never freed: there are few, once. */
struct preloaded {
    struct preloaded *next;
    uint64_t context, image;
    struct {
        struct rg_cached_image *known;
        uint64_t handle; /* 0: there is none, or it has been taken */
    } as[FORMS];
    struct rg_future *future; /* NULL: its answer has been read */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct preloaded *images;

static bool possible(enum rg_op op)
{
    return rg_optimise[RG_OPT_PRELOAD] && rg_optimise[RG_OPT_SHADOW] && !rg_several_servers() &&
           rg_session_current()->op_numbers[op];
}

/* --- answers ---------------------------------------------------------------------------------------- */

static void read_functions(struct rg_reader *in, struct rg_cached_image *known)
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
        rg_image_cache_learn_function(known, name, taken, answer, (size_t)(in->at - answer));
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

static void drop(struct preloaded *image, enum form form)
{
    rg_handle_delete(kinds[form], image->as[form].handle);
    image->as[form].handle = 0;
}

static void read_preloaded(struct preloaded *image, CUresult status, struct rg_reader in)
{
    bool loaded = status == CUDA_SUCCESS;
    for (unsigned i = 0; i < FORMS; i++) {
        loaded = loaded && rg_get_u32(&in) == CUDA_SUCCESS && !in.bad && image->as[i].handle;
        if (loaded) {
            read_functions(&in, image->as[i].known);
            read_variables(&in, kinds[i], image->as[i].handle, image->context);
        }
        if (!loaded || in.bad)
            drop(image, i);
    }
}

/* --- a program's own images ---------------------------------------------------------------------------------------------- */

/* What is to be loaded: sent first, since the worker waits for the bytes where it loads. */
struct batch {
    struct preloaded *first, **last;
    uint64_t context;
};

static bool there_already(const struct batch *batch, const struct rg_cached_image *known)
{
    const struct preloaded *at = batch->first;
    while (at && at->as[AS_LIBRARY].known != known)
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
    struct preloaded *image = NULL;
    if (library && module && !rg_image_cache_loads(library) && !rg_image_cache_loads(module) &&
        !there_already(batch, library))
        image = calloc(1, sizeof *image);
    if (image)
        *image =
            (struct preloaded){.context = batch->context,
                               .as = {[AS_LIBRARY] = {.known = library}, [AS_MODULE] = {.known = module}}};
    if (image && rg_image_send(view, RG_IMAGE_PASSES, &image->image) == CUDA_SUCCESS) {
        *batch->last = image;
        batch->last = &image->next;
    } else {
        free(image);
    }
    free(view);
}

static void load(struct preloaded *image)
{
    struct rg_call reply;
    for (unsigned i = 0; i < FORMS; i++)
        image->as[i].handle = rg_handle_create(kinds[i]);
    const uint64_t library = image->as[AS_LIBRARY].handle, module = image->as[AS_MODULE].handle;
    struct rg_future *future = library && module ? rg_future_begin(RG_OP_rgImagePreload, NULL) : NULL;
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (future) {
        rg_handle_shadow(RG_KIND_LIBRARY, library)->library.known = image->as[AS_LIBRARY].known;
        rg_handle_shadow(RG_KIND_MODULE, module)->module = (struct rg_module){
            .context = image->context, .known = image->as[AS_MODULE].known, .whole = library};
        status = rg_future_end(future,
                               rg_op_rgImagePreload(&(CUlibrary){(CUlibrary)library}, image->image, &reply));
    }
    if (status == CUDA_SUCCESS) {
        image->future = future;
        pthread_mutex_lock(&lock);
        image->next = images;
        images = image;
        pthread_mutex_unlock(&lock);
        return;
    }
    for (unsigned i = 0; i < FORMS; i++)
        drop(image, i);
    free(image);
}

void rg_image_prefetch_context(uint64_t context)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    struct batch batch = {.last = &batch.first, .context = context};
    if (atomic_flag_test_and_set(&begun) || !possible(RG_OP_rgImagePreload) || !rg_startup_profile_is_new())
        return;
    struct rg_thread *thread = rg_thread_current();
    if (!thread || !rg_thread_push_context(thread, context))
        return;
    rg_own_images(&limits, send_image, &batch);
    while (batch.first) {
        struct preloaded *image = batch.first;
        batch.first = image->next;
        load(image);
    }
    thread->n_contexts--;
}

/* Waits for the answer of an image, of which nothing is known yet. */
static void settle(struct preloaded *image, struct rg_future *future)
{
    struct rg_reader reply;
    const CUresult status = rg_future_wait(future, &reply);
    pthread_mutex_lock(&lock);
    if (image->future == future) {
        read_preloaded(image, status, reply);
        image->future = NULL;
        rg_future_release(future);
    }
    pthread_mutex_unlock(&lock);
    rg_future_release(future);
}

void rg_image_prefetch_context_ended(uint64_t context)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        struct preloaded *image = images;
        while (image && !(image->future && image->context == context))
            image = image->next;
        struct rg_future *future = image ? image->future : NULL;
        if (future)
            rg_future_keep(future);
        pthread_mutex_unlock(&lock);
        if (!future)
            return;
        settle(image, future);
    }
}

/* The program gets the image in this form, and in no other. 0: it has been taken, or it was not loaded. */
static uint64_t take(struct preloaded *image, enum form form)
{
    pthread_mutex_lock(&lock);
    const uint64_t handle = image->as[form].handle;
    if (handle)
        image->as[form].handle = 0;
    if (handle && form == AS_LIBRARY)
        drop(image, AS_MODULE);
    else if (handle)
        image->as[AS_LIBRARY].handle = 0; /* it stays behind its module */
    pthread_mutex_unlock(&lock);
    return handle;
}

/* Of a module that the worker has found already. */
static bool name_module(uint64_t module)
{
    const uint64_t library = rg_handle_shadow(RG_KIND_MODULE, module)->module.whole;
    struct rg_call reply;
    struct rg_future *future = rg_future_begin(RG_OP_rgModuleTake, NULL);
    const CUresult status =
        rg_future_end(future, rg_op_rgModuleTake(&(CUmodule){(CUmodule)module}, (CUlibrary)library, &reply));
    if (!future)
        rg_call_done(&reply);
    else if (status == CUDA_SUCCESS)
        rg_future_release(future);
    return status == CUDA_SUCCESS;
}

uint64_t rg_image_prefetch_take(enum rg_kind kind, struct rg_cached_image *known)
{
    const enum form form = kind == RG_KIND_LIBRARY ? AS_LIBRARY : AS_MODULE;
    const uint64_t context = rg_context_current();
    pthread_mutex_lock(&lock);
    struct preloaded *image = images;
    while (image && (image->as[form].known != known || !image->as[form].handle || image->context != context))
        image = image->next;
    struct rg_future *future = image ? image->future : NULL;
    if (future)
        rg_future_keep(future);
    pthread_mutex_unlock(&lock);
    if (future)
        settle(image, future);
    const uint64_t handle = image ? take(image, form) : 0;
    if (!handle || !rg_handle_known(kind, handle)) /* its context may have ended */
        return 0;
    if (form == AS_MODULE && !name_module(handle)) {
        rg_handle_delete(kind, handle);
        return 0;
    }
    rg_image_cache_note_load(known);
    rg_probe_saved(RG_OPT_PRELOAD);
    return handle;
}

/* --- what is in others --------------------------------------------------------------------------------------------- */

static enum rg_op describes(enum rg_kind kind)
{
    return kind == RG_KIND_LIBRARY ? RG_OP_rgLibraryDescribe : RG_OP_rgModuleDescribe;
}

static CUresult describe(enum rg_kind kind, uint64_t handle, struct rg_call *reply)
{
    return kind == RG_KIND_LIBRARY ? rg_op_rgLibraryDescribe((CUlibrary)handle, reply)
                                   : rg_op_rgModuleDescribe((CUmodule)handle, reply);
}

struct rg_future *rg_image_prefetch_describe(enum rg_kind kind, uint64_t handle,
                                             const struct rg_cached_image *known)
{
    const enum rg_op op = describes(kind);
    struct rg_call reply;
    struct rg_future *future =
        known && rg_context_current() && possible(op) ? rg_future_begin(op, NULL) : NULL;
    if (!future)
        return NULL;
    const CUresult status = rg_future_end(future, describe(kind, handle, &reply));
    return status == CUDA_SUCCESS ? future : NULL;
}

void rg_image_prefetch_ask(enum rg_kind kind, uint64_t handle, struct rg_cached_image *known)
{
    struct rg_call reply;
    if (!known || !rg_context_current() || !possible(describes(kind)))
        return;
    if (describe(kind, handle, &reply) == CUDA_SUCCESS)
        read_functions(&reply.reply, known);
    rg_call_done(&reply);
}

void rg_image_prefetch_read(struct rg_future *description, struct rg_cached_image *known)
{
    struct rg_reader reply;
    if (!description)
        return;
    if (rg_future_wait(description, &reply) == CUDA_SUCCESS)
        read_functions(&reply, known);
    rg_future_release(description);
}
