/* context.c - contexts and streams of a session. See context.h. */
#include "server/core/context.h"

#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/core/worker.h"

#include <stdlib.h>
#include <string.h>

struct rg_worker_context *rg_context_find(struct rg_worker *worker, uint64_t handle)
{
    struct rg_object *entry = rg_objects_find(&worker->objects, handle);
    return entry ? entry->extra : NULL;
}

struct rg_worker_context *rg_context_owner(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct rg_worker_context *owner = context->owner ? rg_context_find(worker, context->owner) : NULL;
    return owner ? owner : context;
}

/* --- what it has to do ---------------------------------------------------------------------------------- */

bool rg_context_has_few_streams(const struct rg_worker_context *context)
{
    return context->n_streams <= RG_FEW_STREAMS && context->greens == 0 &&
           context->left_at <= atomic_load(&context->idle_at);
}

/*
 * Of many streams those that no record has named since they were seen done need not be asked. Records that go on without the dispatcher
 * may still put work into a stream, and so may the record that is being executed.
 */
static bool stream_idle(const struct rg_worker *worker, struct rg_worker_stream *stream, bool notes)
{
    if (notes && stream->used <= stream->known_done)
        return true;
    if (rg_driver.cuStreamQuery(stream->object) != CUDA_SUCCESS)
        return false;
    if (notes && stream->used < worker->last_work)
        stream->known_done = stream->used;
    return true;
}

/* Of a green context it is known when its owner is: what others of that have to do counts, too. */
bool rg_context_idle(struct rg_worker *worker, const struct rg_worker_context *context)
{
    const struct rg_worker_context *owner = context->owner ? rg_context_find(worker, context->owner) : NULL;
    if (owner)
        context = owner;
    if (worker->last_work <= atomic_load(&context->idle_at))
        return true;
    if (context->greens > 0 || context->left_at > atomic_load(&context->idle_at) ||
        rg_driver.cuStreamQuery(CU_STREAM_LEGACY) != CUDA_SUCCESS)
        return false;
    const bool notes = context->n_streams > RG_FEW_STREAMS && atomic_load(&worker->detached) == 0;
    for (struct rg_worker_stream *stream = context->streams; stream; stream = stream->next_of_context)
        if (!stream_idle(worker, stream, notes))
            return false;
    return true;
}

CUevent rg_context_passed(struct rg_worker_context *context)
{
    CUstream stream = NULL; /* one of its own: behind others it might have to wait */
    if (context->passed)
        return context->passed;
    if (rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS &&
        rg_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        if (rg_driver.cuEventCreate(&context->passed, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            context->passed = NULL;
        } else if (rg_driver.cuEventRecord(context->passed, stream) != CUDA_SUCCESS) {
            (void)rg_driver.cuEventDestroy_v2(context->passed);
            context->passed = NULL;
        }
        (void)rg_driver.cuStreamDestroy_v2(stream);
    }
    rg_context_unknown();
    return context->passed;
}

/* --- streams -------------------------------------------------------------------------------------------- */

static void unlink_stream(struct rg_worker_stream *stream)
{
    if (!stream->link_of_context)
        return;
    *stream->link_of_context = stream->next_of_context;
    if (stream->next_of_context)
        stream->next_of_context->link_of_context = stream->link_of_context;
    stream->next_of_context = NULL;
    stream->link_of_context = NULL;
}

static void unlink_streams(struct rg_worker_context *context)
{
    while (context->streams)
        unlink_stream(context->streams);
    context->n_streams = 0;
}

static void link_stream(struct rg_worker_context *context, struct rg_worker_stream *stream)
{
    stream->next_of_context = context->streams;
    stream->link_of_context = &context->streams;
    if (context->streams)
        context->streams->link_of_context = &stream->next_of_context;
    context->streams = stream;
    context->n_streams++;
}

static void free_stream(struct rg_extra *extra)
{
    struct rg_worker_stream *stream = (struct rg_worker_stream *)extra;
    unlink_stream(stream); /* its context could not be made current, so that it was not dropped */
    free(stream->slots);
    free(stream);
}

struct rg_worker_stream *rg_stream_make(CUstream object, uint64_t context)
{
    static _Atomic uint64_t last;
    struct rg_worker_stream *stream = calloc(1, sizeof *stream);
    if (stream)
        *stream = (struct rg_worker_stream){
            .extra = {free_stream}, .object = object, .number = ++last, .context = context};
    return stream;
}

void rg_stream_add(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct rg_worker_context *context = rg_context_find(worker, stream->context);
    if (context)
        link_stream(context, stream);
    RG_MODULES_CALL(worker, add_stream, worker, stream);
}

void rg_stream_drop(struct rg_request *request, struct rg_worker_stream *stream)
{
    struct rg_worker_context *context = rg_context_find(request->worker, stream->context);
    if (context) {
        if (rg_driver.cuStreamQuery(stream->object) == CUDA_ERROR_NOT_READY)
            context->left_at = rg_executor_of(request)->seq;
        if (stream->link_of_context)
            context->n_streams--;
        unlink_stream(stream);
    }
    RG_MODULES_CALL(request->worker, drop_stream, request->worker, stream);
}

void rg_stream_synchronous(struct rg_request *request, struct rg_worker_context *context, CUstream stream)
{
    const struct rg_worker_stream *named = rg_executor_of(request)->stream;
    const uint64_t of = context->handle;
    context = rg_context_owner(request->worker, context);
    if (!context->synchronous &&
        rg_driver.cuEventCreate(&context->synchronous, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (rg_driver.cuEventRecord(context->synchronous, stream) != CUDA_SUCCESS)
        return;
    context->synchronous_seq++;
    context->synchronous_context = of;
    context->synchronous_stream = stream && stream != CU_STREAM_LEGACY && named ? named->number : 0;
}

void rg_stream_order(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct rg_worker_context *context = rg_context_find(worker, stream->context);
    if (context)
        context = rg_context_owner(worker, context);
    if (!context || stream->seen_synchronous == context->synchronous_seq)
        return;
    stream->seen_synchronous = context->synchronous_seq;
    /* The stream itself, and blocking streams after the legacy stream, come after it anyway. */
    if (context->synchronous_stream == stream->number ||
        (!context->synchronous_stream && !stream->non_blocking &&
         context->synchronous_context == stream->context))
        return;
    if (rg_driver.cuEventQuery(context->synchronous) != CUDA_SUCCESS)
        (void)rg_driver.cuStreamWaitEvent(stream->object, context->synchronous, 0);
}

void rg_client_thread_free(struct rg_client_thread *thread)
{
    for (struct rg_worker_stream *stream = thread->streams, *next; stream; stream = next) {
        next = stream->next_of_thread;
        rg_extra_release(&stream->extra);
    }
    free(thread);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* The per-thread default streams of the context. */
static void destroy_thread_streams(struct rg_client_thread *thread, uint64_t context)
{
    for (struct rg_worker_stream **link = &thread->streams; *link;) {
        struct rg_worker_stream *stream = *link;
        if (stream->context != context) {
            link = &stream->next_of_thread;
            continue;
        }
        *link = stream->next_of_thread;
        (void)rg_driver.cuStreamDestroy_v2(stream->object);
        rg_extra_release(&stream->extra);
    }
}

static void free_legacy(struct rg_worker_context *context)
{
    if (context->legacy)
        rg_extra_release(&context->legacy->extra);
    context->legacy = NULL;
}

void rg_context_release(struct rg_worker *worker, struct rg_worker_context *context)
{
    /* Buffers may be in use until the context's work is done. */
    (void)rg_driver.cuCtxSynchronize();
    RG_MODULES_CALL(worker, drop_context, worker, context);
    unlink_streams(context);
    for (uint32_t i = 0; i < worker->n_threads; i++)
        if (worker->threads[i])
            destroy_thread_streams(worker->threads[i], context->handle);
    if (context->synchronous)
        (void)rg_driver.cuEventDestroy_v2(context->synchronous);
    if (context->passed)
        (void)rg_driver.cuEventDestroy_v2(context->passed);
    context->synchronous = context->passed = NULL;
    free_legacy(context);
}

void rg_context_free(struct rg_worker_context *context)
{
    unlink_streams(context);
    free_legacy(context);
    free(context);
}

struct forget {
    struct rg_worker *worker;
    uint64_t context;
};

static void forget(struct rg_object *entry, void *user)
{
    const struct forget *which = user;
    if (entry->context != which->context)
        return;
    rg_extra_release(entry->extra);
    rg_objects_remove(&which->worker->objects, entry);
}

void rg_context_forget(struct rg_worker *worker, struct rg_worker_context *context)
{
    unlink_streams(context); /* where it could not be released they are there yet */
    rg_objects_each(&worker->objects, forget, &(struct forget){worker, context->handle});
    atomic_fetch_add(&worker->context_epoch, 1);
}

/* Frees contexts that have ended, if no thread can look at them: the dispatcher alone makes such threads. */
static void free_retired(struct rg_worker *worker)
{
    if (atomic_load(&worker->detached))
        return;
    for (struct rg_worker_context **link = &worker->retired; *link;) {
        struct rg_worker_context *context = *link;
        if (!context->released) {
            link = &context->next_retired;
            continue;
        }
        *link = context->next_retired;
        rg_context_free(context);
    }
}

void rg_context_retire(struct rg_worker *worker, struct rg_worker_context *context)
{
    context->next_retired = worker->retired;
    worker->retired = context;
    free_retired(worker);
}
