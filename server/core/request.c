/* request.c - what operations work with: parameters, objects, outputs. The contract is in request.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/core/out_of_order.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The context this thread has made current, and when: contexts may have ended since. */
static __thread CUcontext current;
static __thread uint64_t current_epoch;

static void fail(struct rg_request *request, CUresult result)
{
    if (request->result == CUDA_SUCCESS)
        request->result = result;
}

void rg_request_violation(struct rg_request *request, const char *format, ...)
{
    if (request->violated)
        return;
    request->violated = true;
    fail(request, CUDA_ERROR_UNKNOWN);
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_worker_end(request->worker, 1, "protocol violation: %s: %s", rg_op_names[request->op], text);
}

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
        fail(request, unknown_handle(kind));
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
        fail(request, result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result);
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
            fail(request, CUDA_ERROR_INVALID_HANDLE);
        else
            executor->stream = entry->extra;
    }
    if (!executor->stream)
        return NULL;
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
        fail(request, CUDA_ERROR_OUT_OF_MEMORY);
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
        context->primary = request->primary;
        entry->extra = context;
        if (!context->primary) {
            /* cuCtxCreate made it current here; which one is current is the client threads' business. */
            CUcontext popped;
            (void)rg_driver.cuCtxGetDevice(&context->device);
            (void)rg_driver.cuCtxPopCurrent_v2(&popped);
            rg_context_unknown();
        }
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
           kind != RG_KIND_POOL && kind != RG_KIND_ALLOCATION;
}

/* The context that an object goes with: its module's, if it was found in one, or the client thread's. */
static uint64_t context_of(struct rg_request *request, uint64_t handle, uint64_t threads, const void *owner)
{
    const struct rg_object *module =
        owner ? rg_objects_find_object(&request->worker->objects, RG_KIND_MODULE, owner) : NULL;
    if (!bound_to_context(rg_handle_kind(handle)))
        return 0;
    return module ? module->context : threads;
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

void rg_request_new(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object)
{
    if (rg_handle_kind(handle) != (unsigned)kind) {
        rg_request_violation(request, "handle %#llx is not of the kind that is made",
                             (unsigned long long)handle);
        return;
    }
    request->told = true; /* the handle stands for something */
    if (!request->owner && (kind == RG_KIND_TEXREF || kind == RG_KIND_SURFREF))
        request->owner = request->uses; /* the module that has it, if it is no one's own */
    if (rg_executor_of(request)->roles)
        rg_request_add_object(request, handle, object, request->thread->context, request->owner);
    else
        rg_out_of_order_note(request, handle, object);
}

void rg_request_found(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object)
{
    const uint64_t handle = rg_out_of_order_find(request, kind, proposed, object);
    rg_request_output(request, &handle, sizeof handle);
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
        fail(request,
             request->thread->context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT);
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
    fail(request, result);
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

/* --- parameters ----------------------------------------------------------------------------------------- */

void *rg_request_memory(struct rg_request *request, size_t size)
{
    struct rg_executor *executor = rg_executor_of(request);
    const size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded <= sizeof executor->scratch - executor->scratch_used) {
        void *memory = executor->scratch + executor->scratch_used;
        executor->scratch_used += rounded;
        return memset(memory, 0, size);
    }
    void **block = calloc(1, 16 + size);
    if (!block) {
        fail(request, CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    *block = request->arena;
    request->arena = block;
    return (unsigned char *)block + 16;
}

void *rg_request_array_in(struct rg_request *request, uint64_t count, size_t size)
{
    const size_t n = rg_get_count(&request->in, RG_ARRAY_MAX, size);
    const void *data = rg_get(&request->in, n * size);
    if (!data || n != count) {
        rg_request_violation(request, "an array of %llu elements where %llu were announced",
                             (unsigned long long)n, (unsigned long long)count);
        return NULL;
    }
    void *copy = rg_request_memory(request, n * size);
    return copy ? memcpy(copy, data, n * size) : NULL;
}

const char *rg_request_string_in(struct rg_request *request)
{
    const char *text = rg_get_string(&request->in, RG_NAME_MAX);
    const size_t size = text ? strlen(text) + 1 : 0;
    char *copy = text ? rg_request_memory(request, size) : NULL;
    return copy ? memcpy(copy, text, size) : NULL;
}

const void *rg_request_bytes_in(struct rg_request *request, uint64_t count)
{
    const size_t n = rg_get_count(&request->in, RG_MESSAGE_MAX, 1);
    const void *data = rg_get(&request->in, n);
    if (!data || n != count) {
        rg_request_violation(request, "%llu bytes where %llu were announced", (unsigned long long)n,
                             (unsigned long long)count);
        return NULL;
    }
    return data;
}

void *rg_request_array_out(struct rg_request *request, uint64_t count, size_t size)
{
    if (size && count > RG_REPLY_INLINE / size) {
        rg_request_violation(request, "outputs of %llu elements", (unsigned long long)count);
        return NULL;
    }
    return rg_request_memory(request, (size_t)count * size);
}

bool rg_request_decoded(struct rg_request *request)
{
    if (request->in.bad || rg_left(&request->in) >= 8)
        rg_request_violation(request, request->in.bad ? "too few bytes of parameters"
                                                      : "too many bytes of parameters");
    return !request->violated && request->result == CUDA_SUCCESS;
}

bool rg_request_enter(struct rg_request *request, bool context)
{
    if (!rg_request_decoded(request))
        return false;
    if (context) {
        request->result = rg_request_make_current(request);
        if (request->result != CUDA_SUCCESS)
            return false;
    }
    const unsigned traits = rg_op_traits[request->op];
    if (traits & RG_TRAIT_CUSTOM)
        return true;
    if (traits & RG_TRAIT_WAITS)
        return rg_request_detach(request);
    if (traits & RG_TRAIT_COMPILES)
        rg_request_go_out_of_order(request);
    return true;
}

void rg_request_may_block(struct rg_request *request, bool context)
{
    const struct rg_object *entry = context && request->token
                                        ? rg_objects_find(&request->worker->objects, request->thread->context)
                                        : NULL;
    if (request->token && (!entry || !rg_context_idle(request->worker, entry->extra)) &&
        !rg_request_detach(request))
        request->result = CUDA_SUCCESS; /* what ends something does not fail: others wait with it */
}

enum rg_status rg_request_recv_bulk(struct rg_request *request, void *buffer, size_t size)
{
    struct rg_batch_cursor *cursor = &request->worker->cursor;
    if (size > request->bulk_left) {
        rg_request_violation(request, "%zu bytes of bulk data where %zu were needed", request->bulk_left,
                             size);
        return RG_ERR_PROTOCOL;
    }
    enum rg_status status = RG_OK;
    if (cursor->bulk) {
        if (buffer && size)
            memcpy(buffer, cursor->bulk, size);
        cursor->bulk += size;
    } else if (size) {
        status = rg_conn_recv_bulk(request->worker->conn, buffer, size);
        if (status != RG_OK) {
            request->violated = true;
            rg_worker_end(request->worker, 0, NULL);
        }
    }
    request->bulk_left -= size;
    cursor->bulk_left -= size;
    return status;
}

bool rg_request_places(struct rg_request *request, const void *memory, size_t size)
{
    return !request->worker->cursor.bulk && size == request->bulk_left &&
           rg_conn_writes_directly(request->worker->conn, memory, size);
}

size_t rg_request_take_advertised(struct rg_request *request, size_t most, void **memory)
{
    struct rg_batch_cursor *cursor = &request->worker->cursor;
    size_t size = 0;
    if (cursor->bulk || most > request->bulk_left)
        return 0;
    if (rg_conn_take_advertised(request->worker->conn, most, memory, &size) != RG_OK) {
        request->violated = true;
        rg_worker_end(request->worker, 0, NULL);
        return 0;
    }
    request->bulk_left -= size;
    cursor->bulk_left -= size;
    return size;
}

void rg_request_output(struct rg_request *request, const void *data, size_t size)
{
    const size_t limit = RG_MESSAGE_MAX - sizeof(struct rg_message_header) - sizeof(struct rg_reply);
    if (size > limit - request->out_size) {
        fail(request, CUDA_ERROR_OUT_OF_MEMORY);
        rg_error("session %llu: the answer of %s is too long", (unsigned long long)request->worker->session,
                 rg_op_names[request->op]);
        return;
    }
    if (request->out_size + size > request->out_capacity) {
        size_t more = request->out_capacity * 2;
        while (more < request->out_size + size)
            more *= 2;
        const bool own = request->out != rg_executor_of(request)->output;
        unsigned char *bigger = own ? realloc(request->out, more) : malloc(more);
        if (!bigger) {
            fail(request, CUDA_ERROR_OUT_OF_MEMORY);
            return;
        }
        if (!own)
            memcpy(bigger, request->out, request->out_size);
        request->out = bigger;
        request->out_capacity = more;
    }
    if (size)
        memcpy(request->out + request->out_size, data, size);
    request->out_size += size;
}

/* --- roles ---------------------------------------------------------------------------------------------- */

bool rg_request_detach(struct rg_request *request)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    struct rg_executor *executor = rg_executor_of(request);
    if (!executor->roles)
        return true;
    atomic_store_explicit(&request->thread->waits, true, memory_order_relaxed);
    atomic_store(&request->worker->submitted, executor->seq);
    if (request->worker->observer)
        request->worker->observer->detached(executor);
    atomic_fetch_add(&request->worker->detached, 1);
    if (rg_leader_promote(executor))
        return true;
    atomic_fetch_sub(&request->worker->detached, 1);
    atomic_store_explicit(&request->thread->waits, false, memory_order_relaxed);
    if (!rg_worker_over(request->worker))
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN,
                       "session %llu: no thread for %s, which has to wait (there are %u at most)",
                       (unsigned long long)request->worker->session, rg_op_names[request->op],
                       RG_EXECUTORS_MAX);
    fail(request, CUDA_ERROR_OPERATING_SYSTEM);
    return false;
}

void rg_request_separate_reader(struct rg_request *request)
{
    if (!rg_leader_separate_reader(rg_executor_of(request)))
        request->violated = true;
}
