/*
 * request_objects.c - the objects of a request: what stands behind a handle, what goes with an object that is made or ends, and the
 * context that is current on this thread. The contract is in request.h.
 */
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/core/out_of_order.h"

#include <stdlib.h>

/* The context this thread has made current, and when: contexts may have ended since. */
static __thread CUcontext current;
static __thread uint64_t current_epoch;

/* --- objects -------------------------------------------------------------------------------------------- */

static CUresult unknown_handle(enum rg_kind kind)
{
    return kind == RG_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

void *rg_request_object(struct rg_request *request, enum rg_kind kind, uint64_t handle)
{
    if (!handle)
        return NULL;
    const unsigned claimed = rg_handle_kind(handle);
    const bool fits = claimed == (unsigned)kind || (kind == RG_KIND_FUNCTION && claimed == RG_KIND_KERNEL);
    struct rg_object *entry = fits ? rg_objects_find(&request->worker->objects, handle) : NULL;
    if (!entry) {
        rg_request_fail(request, unknown_handle(kind));
        return NULL;
    }
    if (kind == RG_KIND_EVENT)
        rg_executor_of(request)->named_event = handle;
    const bool holds = kind == RG_KIND_MODULE || kind == RG_KIND_LIBRARY || kind == RG_KIND_LINK;
    if (holds || kind == RG_KIND_FUNCTION || kind == RG_KIND_KERNEL) {
        request->uses = holds ? entry->object : entry->owner;
        request->uses_context = entry->context;
    }
    return entry->object;
}

/* The client thread's per-thread default stream in its current context. */
static struct rg_worker_stream *per_thread_stream(struct rg_request *request)
{
    struct rg_client_thread *thread = request->thread;
    for (struct rg_worker_stream *stream = thread->streams; stream; stream = stream->next_of_thread)
        if (stream->context == thread->context)
            return stream;
    CUstream object = NULL;
    CUresult result = rg_request_make_current(request);
    if (result == CUDA_SUCCESS && !thread->context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuStreamCreate(&object, CU_STREAM_DEFAULT);
    struct rg_worker_stream *stream = result == CUDA_SUCCESS ? rg_stream_make(object, thread->context) : NULL;
    if (!stream) {
        if (result == CUDA_SUCCESS)
            (void)rg_driver.cuStreamDestroy_v2(object);
        rg_request_fail(request, result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result);
        return NULL;
    }
    stream->per_thread = true;
    stream->next_of_thread = thread->streams;
    thread->streams = stream;
    rg_stream_add(request->worker, stream);
    return stream;
}

CUstream rg_request_stream(struct rg_request *request, uint64_t handle)
{
    struct rg_executor *executor = rg_executor_of(request);
    executor->stream = NULL;
    executor->named_stream = handle == (uint64_t)CU_STREAM_PER_THREAD
                                 ? RG_TIME_THREAD_STREAM | request->thread->number
                             : handle ? handle
                                      : (uint64_t)CU_STREAM_LEGACY;
    if (handle == 0 || handle == (uint64_t)CU_STREAM_LEGACY)
        return handle ? CU_STREAM_LEGACY : NULL;
    if (handle == (uint64_t)CU_STREAM_PER_THREAD) {
        executor->stream = per_thread_stream(request);
    } else {
        struct rg_object *entry = rg_handle_kind(handle) == RG_KIND_STREAM
                                      ? rg_objects_find(&request->worker->objects, handle)
                                      : NULL;
        if (!entry)
            rg_request_fail(request, CUDA_ERROR_INVALID_HANDLE);
        else
            executor->stream = entry->extra;
    }
    if (!executor->stream)
        return NULL;
    executor->stream->used = executor->seq;
    rg_stream_order(request->worker, executor->stream);
    return executor->stream->object;
}

struct rg_worker_stream *rg_request_stream_state(struct rg_request *request, CUstream stream)
{
    struct rg_executor *executor = rg_executor_of(request);
    if (stream && stream != CU_STREAM_LEGACY)
        return executor->stream;
    struct rg_worker_context *context = rg_request_context(request);
    if (!context)
        return NULL;
    if (!context->legacy && !(context->legacy = rg_stream_make(NULL, context->handle)))
        rg_request_fail(request, CUDA_ERROR_OUT_OF_MEMORY);
    return context->legacy;
}

/* Makes what goes with an object beyond its entry. */
static bool attach(struct rg_request *request, struct rg_object *entry)
{
    if (rg_handle_kind(entry->handle) == RG_KIND_STREAM) {
        struct rg_worker_stream *stream = rg_stream_make(entry->object, entry->context);
        unsigned flags = 0;
        if (!stream)
            return false;
        if (rg_driver.cuStreamGetFlags(entry->object, &flags) == CUDA_SUCCESS)
            stream->non_blocking = flags & CU_STREAM_NON_BLOCKING;
        entry->extra = stream;
        rg_stream_add(request->worker, stream);
    } else if (rg_handle_kind(entry->handle) == RG_KIND_CONTEXT) {
        struct rg_worker_context *context = calloc(1, sizeof *context);
        if (!context)
            return false;
        context->handle = entry->handle;
        context->object = entry->object;
        entry->extra = context;
    }
    return true;
}

/* Ends what goes with an object that ends. */
static void detach(struct rg_request *request, uint64_t handle, void *extra)
{
    if (rg_executor_of(request)->stream == extra)
        rg_executor_of(request)->stream = NULL;
    if (extra && rg_handle_kind(handle) == RG_KIND_CONTEXT)
        rg_context_retire(request->worker, extra);
    else
        rg_extra_release(extra);
}

static bool bound_to_context(enum rg_kind kind)
{
    return kind != RG_KIND_CONTEXT && kind != RG_KIND_LIBRARY && kind != RG_KIND_KERNEL &&
           kind != RG_KIND_POOL && kind != RG_KIND_ALLOCATION && kind != RG_KIND_RESOURCES &&
           kind != RG_KIND_GREEN;
}

/*
 * The context that an object goes with: its module's, if it was found in one, or the client thread's, of which what is no stream
 * goes with the owner.
 */
static uint64_t context_of(struct rg_request *request, uint64_t handle, uint64_t threads, const void *owner)
{
    const struct rg_object *module =
        owner ? rg_objects_find_object(&request->worker->objects, RG_KIND_MODULE, owner) : NULL;
    if (!bound_to_context(rg_handle_kind(handle)))
        return 0;
    if (module)
        return module->context;
    const struct rg_worker_context *context =
        rg_handle_kind(handle) == RG_KIND_STREAM ? NULL : rg_context_find(request->worker, threads);
    return context && context->owner ? context->owner : threads;
}

void rg_request_add_object(struct rg_request *request, uint64_t handle, void *object, uint64_t context,
                           const void *owner)
{
    const enum rg_status status = rg_objects_add(&request->worker->objects, handle, object,
                                                 context_of(request, handle, context, owner));
    if (status == RG_ERR_INVALID) {
        rg_request_violation(request, "handle %#llx is in use", (unsigned long long)handle);
        return;
    }
    struct rg_object *entry = status == RG_OK ? rg_objects_find(&request->worker->objects, handle) : NULL;
    if (!entry || !attach(request, entry))
        rg_worker_end(request->worker, 1, "the worker is out of memory");
    else
        entry->owner = owner;
}

void rg_request_new_of(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object,
                       const void *owner)
{
    if (rg_handle_kind(handle) != (unsigned)kind) {
        rg_request_violation(request, "handle %#llx is not of the kind that is made",
                             (unsigned long long)handle);
        return;
    }
    request->told = true; /* the handle stands for something */
    if (kind == RG_KIND_TEXREF || kind == RG_KIND_SURFREF)
        owner = request->uses; /* the module that has it, if it is no one's own */
    if (rg_executor_of(request)->roles)
        rg_request_add_object(request, handle, object, request->thread->context, owner);
    else
        rg_out_of_order_note(request, handle, object, owner);
}

void rg_request_new(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object)
{
    rg_request_new_of(request, kind, handle, object, NULL);
}

void rg_request_found_of(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object,
                         const void *owner)
{
    const uint64_t handle = rg_out_of_order_find(request, kind, proposed, object, owner);
    rg_request_output(request, &handle, sizeof handle);
}

void rg_request_found(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object)
{
    rg_request_found_of(request, kind, proposed, object, NULL);
}

struct owned {
    struct rg_request *request;
    const void *owner;
};

static void forget_all_of(struct rg_request *request, const void *owner);

static void forget_owned(struct rg_object *entry, void *user)
{
    const struct owned *which = user;
    if (entry->owner != which->owner)
        return;
    const void *object = entry->object;
    const bool owns = rg_handle_kind(entry->handle) == RG_KIND_MODULE;
    rg_objects_remove(&which->request->worker->objects, entry);
    if (owns)
        forget_all_of(which->request, object);
}

/* A module or library ends, and with it what was found in it. */
static void forget_all_of(struct rg_request *request, const void *owner)
{
    rg_out_of_order_settle(request, owner, 0);
    rg_objects_each(&request->worker->objects, forget_owned, &(struct owned){request, owner});
}

void rg_request_delete(struct rg_request *request, enum rg_kind kind, uint64_t handle)
{
    struct rg_object *entry =
        rg_handle_kind(handle) == (unsigned)kind ? rg_objects_find(&request->worker->objects, handle) : NULL;
    if (!entry || request->violated) /* then the driver still has it, and it ends with the session */
        return;
    /* their functions are gone: the driver may give their addresses to those of the next module */
    if (rg_handle_kind(handle) == RG_KIND_MODULE || rg_handle_kind(handle) == RG_KIND_LIBRARY) {
        RG_MODULES_CALL(request->worker, drop_module, request->worker, entry->object);
        forget_all_of(request, entry->object);
    }
    entry = rg_objects_find(&request->worker->objects, handle); /* others may have been entered */
    if (!entry)
        return;
    detach(request, handle, entry->extra);
    rg_objects_remove(&request->worker->objects, entry);
}

/* --- contexts ------------------------------------------------------------------------------------------- */

struct rg_worker_context *rg_request_context(struct rg_request *request)
{
    struct rg_object *entry = rg_objects_find(&request->worker->objects, request->thread->context);
    if (!entry)
        rg_request_fail(request, request->thread->context ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                          : CUDA_ERROR_INVALID_CONTEXT);
    return entry ? entry->extra : NULL;
}

struct rg_worker_context *rg_request_stream_context(struct rg_request *request, CUstream stream)
{
    struct rg_worker_context *own = rg_request_context(request);
    const struct rg_worker_stream *state =
        stream && stream != CU_STREAM_LEGACY ? rg_executor_of(request)->stream : NULL;
    if (!own || !state || state->context == own->handle)
        return own;
    struct rg_object *entry = rg_objects_find(&request->worker->objects, state->context);
    const CUresult result =
        entry ? rg_driver.cuCtxSetCurrent(entry->object) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    rg_context_unknown();
    if (result == CUDA_SUCCESS)
        return entry->extra;
    rg_request_fail(request, result);
    return NULL;
}

void rg_context_unknown(void)
{
    current_epoch = UINT64_MAX;
}

CUresult rg_request_make_current(struct rg_request *request)
{
    CUcontext wanted = NULL;
    if (request->thread->context) {
        struct rg_object *entry = rg_objects_find(&request->worker->objects, request->thread->context);
        if (!entry)
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        wanted = entry->object;
    }
    const uint64_t epoch = atomic_load_explicit(&request->worker->context_epoch, memory_order_relaxed);
    if (current == wanted && current_epoch == epoch)
        return CUDA_SUCCESS;
    CUresult result = rg_driver.cuCtxSetCurrent(wanted);
    if (result == CUDA_SUCCESS) {
        current = wanted;
        current_epoch = epoch;
    }
    return result;
}
