/* loaded_images.c - see loaded_images.h. */
#include "client/prefetch/loaded_images.h"

#include "client/cache/load_memory.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_loaded_image *images;

enum rg_kind rg_loaded_image_kind(enum rg_loaded_form form)
{
    return form == RG_LOADED_LIBRARY ? RG_KIND_LIBRARY : RG_KIND_MODULE;
}

void rg_loaded_image_drop(struct rg_loaded_image *image, enum rg_loaded_form form)
{
    rg_handle_delete(rg_loaded_image_kind(form), image->as[form].handle);
    image->as[form].handle = 0;
}

void rg_loaded_images_add(struct rg_loaded_image *image)
{
    RG_SCOPED_LOCK(&lock);
    image->next = images;
    images = image;
}

/* The answer to a load is there, by the reader: what was taken for it is in what the server says. */
static void load_arrived(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    (void)result;
    (void)reply;
    rg_load_memory_end(future->session, (rg_memory_level)future->user[0]);
}

struct rg_future *rg_loaded_image_begin(const struct rg_cached_image *cached)
{
    const bool known = rg_image_cache_loads(cached);
    const rg_memory_level memory = known ? rg_image_cache_memory(cached) : RG_LOAD_MEMORY_UNKNOWN;
    struct rg_session *session = rg_session_current();
    if (known && !rg_load_memory_take(session, memory))
        return NULL;
    if (!known)
        rg_load_memory_take_anyway(session, memory);
    struct rg_future *future = rg_future_begin(load_arrived);
    if (future)
        future->user[0] = memory;
    else
        rg_load_memory_end(session, memory);
    return future;
}

CUresult rg_loaded_image_end(struct rg_future *future, CUresult status)
{
    struct rg_session *session = rg_session_current();
    const rg_memory_level memory = (rg_memory_level)future->user[0];
    const CUresult result = rg_future_end(future, status);
    if (result != CUDA_SUCCESS) /* it was not sent */
        rg_load_memory_end(session, memory);
    return result;
}

/* Waits for the answer of an image, of which nothing is known yet; releases the reference to it. */
static void settle(struct rg_loaded_image *image, struct rg_future *future)
{
    struct rg_reader answer;
    const CUresult status = rg_future_wait(future, &answer);
    pthread_mutex_lock(&lock);
    if (image->future == future) {
        if (status == CUDA_SUCCESS && image->read)
            image->read(image, &answer);
        for (unsigned form = 0; status == CUDA_SUCCESS && form < RG_LOADED_FORMS; form++)
            if (image->as[form].cached)
                rg_image_cache_note_memory(image->as[form].cached, rg_future_memory_taken(future));
        for (unsigned form = 0; status != CUDA_SUCCESS && form < RG_LOADED_FORMS; form++)
            rg_loaded_image_drop(image, form);
        image->future = NULL;
        rg_future_release(future);
    }
    pthread_mutex_unlock(&lock);
    rg_future_release(future);
}

void rg_loaded_images_context_ended(uint64_t context)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        struct rg_loaded_image *image = images;
        while (image && !(image->future && image->read && image->context == context))
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

/* `next` stays: others may stand there. The lock is held. */
static void unlink_image(const struct rg_loaded_image *image)
{
    struct rg_loaded_image **link = &images;
    while (*link && *link != image)
        link = &(*link)->next;
    if (*link)
        *link = image->next;
}

/* The program gets the image in this form, and in no other. 0: it has been taken, or it was not loaded. */
static uint64_t take(struct rg_loaded_image *image, enum rg_loaded_form form)
{
    RG_SCOPED_LOCK(&lock);
    const uint64_t handle = image->as[form].handle;
    if (handle)
        image->as[form].handle = 0;
    if (handle && form == RG_LOADED_LIBRARY)
        rg_loaded_image_drop(image, RG_LOADED_MODULE);
    else if (handle)
        image->as[RG_LOADED_LIBRARY].handle = 0; /* it stays behind its module */
    if (handle)
        unlink_image(image);
    return handle;
}

bool rg_loaded_images_withdraw(struct rg_withdrawn_image *out)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        struct rg_loaded_image *image = images;
        struct rg_future *future = image ? image->future : NULL;
        if (future)
            rg_future_keep(future);
        pthread_mutex_unlock(&lock);
        if (!image)
            return false;
        if (future)
            settle(image, future);
        for (enum rg_loaded_form form = 0; form < RG_LOADED_FORMS; form++) {
            *out = (struct rg_withdrawn_image){rg_loaded_image_kind(form), image->context, take(image, form)};
            if (out->handle && rg_handle_known(out->kind, out->handle))
                return true;
        }
        RG_SCOPED_LOCK(&lock);
        unlink_image(image); /* it was not loaded, or somebody has just taken it */
    }
}

uint64_t rg_loaded_images_take(enum rg_kind kind, struct rg_cached_image *cached)
{
    const enum rg_loaded_form form = kind == RG_KIND_LIBRARY ? RG_LOADED_LIBRARY : RG_LOADED_MODULE;
    const uint64_t context = rg_context_current_owner();
    pthread_mutex_lock(&lock);
    struct rg_loaded_image *image = images;
    while (image &&
           (image->as[form].cached != cached || !image->as[form].handle || image->context != context))
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
    if (!image->taken || image->taken(kind, handle, cached))
        return handle;
    rg_handle_delete(kind, handle);
    return 0;
}
