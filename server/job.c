/* job.c - what operations work with: parameters, objects, outputs. The contract is in job.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "generated/server/driver.h"
#include "server/aside.h"
#include "server/link.h"
#include "server/roles.h"
#include "server/staging.h"
#include "server/times.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The context this thread has made current, and when: contexts may have ended since. */
static __thread CUcontext current;
static __thread uint64_t current_epoch;

static void fail(struct rg_job *job, CUresult result)
{
    if (job->result == CUDA_SUCCESS)
        job->result = result;
}

void rg_job_violation(struct rg_job *job, const char *format, ...)
{
    if (job->violated)
        return;
    job->violated = true;
    fail(job, CUDA_ERROR_UNKNOWN);
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_worker_end(job->worker, 1, "protocol violation: %s: %s", job->worker->operations[job->op].name, text);
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static CUresult unknown_handle(enum rg_kind kind)
{
    return kind == RG_KIND_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

void *rg_job_object(struct rg_job *job, enum rg_kind kind, uint64_t handle)
{
    if (!handle)
        return NULL;
    const unsigned claimed = rg_handle_kind(handle);
    const bool fits = claimed == (unsigned)kind || (kind == RG_KIND_FUNCTION && claimed == RG_KIND_KERNEL);
    struct rg_object *entry = fits ? rg_objects_find(&job->worker->objects, handle) : NULL;
    if (!entry) {
        fail(job, unknown_handle(kind));
        return NULL;
    }
    if (kind == RG_KIND_EVENT)
        rg_thread_of(job)->named_event = handle;
    const bool holds = kind == RG_KIND_MODULE || kind == RG_KIND_LIBRARY || kind == RG_KIND_LINK;
    if (holds || kind == RG_KIND_FUNCTION || kind == RG_KIND_KERNEL) {
        job->uses = holds ? entry->object : entry->owner;
        job->uses_context = entry->context;
    }
    return entry->object;
}

/* The lane's per-thread default stream in its current context. */
static struct rg_stream *per_thread_stream(struct rg_job *job)
{
    struct rg_lane *lane = job->lane;
    for (struct rg_lane_stream *at = lane->streams; at; at = at->next)
        if (at->stream.context == lane->context)
            return &at->stream;
    CUresult result = rg_job_make_current(job);
    if (result == CUDA_SUCCESS && !lane->context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    struct rg_lane_stream *made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (result == CUDA_SUCCESS && !made)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuStreamCreate(&made->stream.object, CU_STREAM_DEFAULT);
    if (result != CUDA_SUCCESS) {
        free(made);
        fail(job, result);
        return NULL;
    }
    made->stream.context = lane->context;
    rg_context_add_stream(job->worker, lane->context, NULL);
    rg_unified_add_stream(job->worker, lane->context, made->stream.object);
    made->stream.per_thread = true;
    made->next = lane->streams;
    lane->streams = made;
    return &made->stream;
}

CUstream rg_job_stream(struct rg_job *job, uint64_t handle)
{
    struct rg_thread *thread = rg_thread_of(job);
    thread->stream = NULL;
    thread->named_stream = handle == (uint64_t)CU_STREAM_PER_THREAD
                               ? RG_TIME_THREAD_STREAM | job->lane->number
                           : handle ? handle
                                    : (uint64_t)CU_STREAM_LEGACY;
    if (handle == 0 || handle == (uint64_t)CU_STREAM_LEGACY)
        return handle ? CU_STREAM_LEGACY : NULL;
    if (handle == (uint64_t)CU_STREAM_PER_THREAD) {
        thread->stream = per_thread_stream(job);
    } else {
        struct rg_object *entry =
            rg_handle_kind(handle) == RG_KIND_STREAM ? rg_objects_find(&job->worker->objects, handle) : NULL;
        if (!entry)
            fail(job, CUDA_ERROR_INVALID_HANDLE);
        else
            thread->stream = entry->extra;
    }
    if (!thread->stream)
        return NULL;
    rg_staging_order(job->worker, thread->stream);
    return thread->stream->object;
}

struct rg_stream *rg_job_stream_state(struct rg_job *job, CUstream stream)
{
    struct rg_thread *thread = rg_thread_of(job);
    if (stream && stream != CU_STREAM_LEGACY)
        return thread->stream;
    struct rg_context *context = rg_job_context(job);
    if (!context)
        return NULL;
    if (!context->legacy) {
        context->legacy = calloc(1, sizeof *context->legacy);
        if (!context->legacy) {
            fail(job, CUDA_ERROR_OUT_OF_MEMORY);
            return NULL;
        }
        context->legacy->context = context->handle;
    }
    return context->legacy;
}

/* What goes with an object beyond its entry. */
static bool attach(struct rg_job *job, struct rg_object *entry)
{
    if (rg_handle_kind(entry->handle) == RG_KIND_STREAM) {
        struct rg_stream *stream = calloc(1, sizeof *stream);
        unsigned flags = 0;
        if (!stream)
            return false;
        stream->object = entry->object;
        stream->context = entry->context;
        if (rg_driver.cuStreamGetFlags && rg_driver.cuStreamGetFlags(entry->object, &flags) == CUDA_SUCCESS)
            stream->non_blocking = flags & CU_STREAM_NON_BLOCKING;
        entry->extra = stream;
        rg_context_add_stream(job->worker, stream->context, stream->object);
        rg_unified_add_stream(job->worker, stream->context, stream->object);
    } else if (rg_handle_kind(entry->handle) == RG_KIND_CONTEXT) {
        struct rg_context *context = calloc(1, sizeof *context);
        if (!context)
            return false;
        context->handle = entry->handle;
        context->object = entry->object;
        context->primary = job->op == RG_OP_cuDevicePrimaryCtxRetain || job->op == RG_OP_rgPrimaryTake;
        entry->extra = context;
        if (!context->primary) {
            /* cuCtxCreate made it current on this thread; which one is current is the lanes' business. */
            CUcontext popped;
            (void)rg_driver.cuCtxPopCurrent_v2(&popped);
            rg_current_context_unknown();
        }
    }
    return true;
}

/* Frees contexts that have ended, if no thread can look at them any more. The dispatcher, which alone makes such threads. */
static void free_retired(struct rg_worker *worker)
{
    if (atomic_load(&worker->apart))
        return;
    for (struct rg_context **link = &worker->retired; *link;) {
        struct rg_context *context = *link;
        if (!context->released) {
            link = &context->next_retired;
            continue;
        }
        *link = context->next_retired;
        free(context);
    }
}

/* Ends what goes with an object that ends. Threads that wait for a context may still look at it. */
static void detach(struct rg_job *job, uint64_t handle, void *extra)
{
    if (extra && rg_handle_kind(handle) == RG_KIND_CONTEXT) {
        struct rg_context *context = extra;
        context->next_retired = job->worker->retired;
        job->worker->retired = context;
        free_retired(job->worker);
        return;
    }
    if (rg_handle_kind(handle) == RG_KIND_LINK) {
        rg_link_let_go(extra);
        return;
    }
    if (rg_thread_of(job)->stream == extra)
        rg_thread_of(job)->stream = NULL;
    free(extra);
}

static bool bound_to_context(enum rg_kind kind)
{
    return kind != RG_KIND_CONTEXT && kind != RG_KIND_LIBRARY && kind != RG_KIND_KERNEL &&
           kind != RG_KIND_POOL && kind != RG_KIND_ALLOCATION;
}

/* The context that an object goes with: its module's, if it was found in one, which may be another than the lane's. */
static uint64_t context_of(struct rg_job *job, uint64_t handle, uint64_t lanes, const void *owner)
{
    const struct rg_object *module =
        owner ? rg_objects_find_object(&job->worker->objects, RG_KIND_MODULE, owner) : NULL;
    if (!bound_to_context(rg_handle_kind(handle)))
        return 0;
    return module ? module->context : lanes;
}

void rg_job_enter_object(struct rg_job *job, uint64_t handle, void *object, uint64_t context,
                         const void *owner)
{
    const enum rg_status status =
        rg_objects_add(&job->worker->objects, handle, object, context_of(job, handle, context, owner));
    if (status == RG_ERR_INVALID) {
        rg_job_violation(job, "handle %#llx is in use", (unsigned long long)handle);
        return;
    }
    struct rg_object *entry = status == RG_OK ? rg_objects_find(&job->worker->objects, handle) : NULL;
    if (!entry || !attach(job, entry))
        rg_worker_end(job->worker, 1, "the worker is out of memory");
    else
        entry->owner = owner;
}

void rg_job_new(struct rg_job *job, enum rg_kind kind, uint64_t handle, void *object)
{
    if (rg_handle_kind(handle) != (unsigned)kind) {
        rg_job_violation(job, "handle %#llx is not of the kind that is made", (unsigned long long)handle);
        return;
    }
    job->told = true; /* the handle stands for something */
    if (!job->owner && (kind == RG_KIND_TEXREF || kind == RG_KIND_SURFREF))
        job->owner = job->uses; /* the module that has it, if it is no one's own */
    if (rg_thread_of(job)->roles)
        rg_job_enter_object(job, handle, object, job->lane->context, job->owner);
    else
        rg_aside_made(job, handle, object);
}

void rg_job_found(struct rg_job *job, enum rg_kind kind, uint64_t proposed, void *object)
{
    const uint64_t handle = rg_aside_found(job, kind, proposed, object);
    rg_job_output(job, &handle, sizeof handle);
}

struct owned {
    struct rg_job *job;
    const void *owner;
};

static void forget_all_of(struct rg_job *job, const void *owner);

static void forget_owned(struct rg_object *entry, void *user)
{
    const struct owned *which = user;
    if (entry->owner != which->owner)
        return;
    const void *object = entry->object;
    const bool owns = rg_handle_kind(entry->handle) == RG_KIND_MODULE;
    rg_objects_remove(&which->job->worker->objects, entry);
    if (owns)
        forget_all_of(which->job, object);
}

/* A module or library ends, and with it what was found in it. */
static void forget_all_of(struct rg_job *job, const void *owner)
{
    rg_aside_settle(job, owner, 0);
    rg_objects_each(&job->worker->objects, forget_owned, &(struct owned){job, owner});
}

void rg_job_delete(struct rg_job *job, enum rg_kind kind, uint64_t handle)
{
    struct rg_object *entry =
        rg_handle_kind(handle) == (unsigned)kind ? rg_objects_find(&job->worker->objects, handle) : NULL;
    if (!entry)
        return;
    if (rg_handle_kind(handle) == RG_KIND_STREAM)
        rg_context_remove_stream(job->worker, entry->context, entry->object);
    /* their functions are gone: the driver may give their addresses to those of the next module */
    if (rg_handle_kind(handle) == RG_KIND_MODULE || rg_handle_kind(handle) == RG_KIND_LIBRARY)
        forget_all_of(job, entry->object);
    entry = rg_objects_find(&job->worker->objects, handle); /* others may have been entered */
    if (!entry)
        return;
    detach(job, handle, entry->extra);
    rg_objects_remove(&job->worker->objects, entry);
}

/* --- contexts ----------------------------------------------------------------------------------------------------- */

struct rg_context *rg_job_context(struct rg_job *job)
{
    struct rg_object *entry = rg_objects_find(&job->worker->objects, job->lane->context);
    if (!entry)
        fail(job, job->lane->context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT);
    return entry ? entry->extra : NULL;
}

struct rg_context *rg_job_stream_context(struct rg_job *job, CUstream stream)
{
    struct rg_context *own = rg_job_context(job);
    const struct rg_stream *state = stream && stream != CU_STREAM_LEGACY ? rg_thread_of(job)->stream : NULL;
    if (!own || !state || state->context == own->handle)
        return own;
    struct rg_object *entry = rg_objects_find(&job->worker->objects, state->context);
    const CUresult result =
        entry ? rg_driver.cuCtxSetCurrent(entry->object) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    rg_current_context_unknown();
    if (result == CUDA_SUCCESS)
        return entry->extra;
    fail(job, result);
    return NULL;
}

void rg_current_context_unknown(void)
{
    current_epoch = UINT64_MAX;
}

CUresult rg_job_make_current(struct rg_job *job)
{
    CUcontext wanted = NULL;
    if (job->lane->context) {
        struct rg_object *entry = rg_objects_find(&job->worker->objects, job->lane->context);
        if (!entry)
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        wanted = entry->object;
    }
    const uint64_t epoch = atomic_load_explicit(&job->worker->context_epoch, memory_order_relaxed);
    if (current == wanted && current_epoch == epoch)
        return CUDA_SUCCESS;
    CUresult result = rg_driver.cuCtxSetCurrent(wanted);
    if (result == CUDA_SUCCESS) {
        current = wanted;
        current_epoch = epoch;
    }
    return result;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

void *rg_job_memory(struct rg_job *job, size_t size)
{
    struct rg_thread *thread = rg_thread_of(job);
    const size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded <= sizeof thread->scratch - thread->scratch_used) {
        void *memory = thread->scratch + thread->scratch_used;
        thread->scratch_used += rounded;
        return memset(memory, 0, size);
    }
    void **block = calloc(1, 16 + size);
    if (!block) {
        fail(job, CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    *block = job->arena;
    job->arena = block;
    return (unsigned char *)block + 16;
}

void *rg_job_array_in(struct rg_job *job, uint64_t count, size_t size)
{
    const size_t n = rg_get_count(&job->in, RG_ARRAY_MAX, size);
    const void *data = rg_get(&job->in, n * size);
    if (!data || n != count) {
        rg_job_violation(job, "an array of %llu elements where %llu were announced", (unsigned long long)n,
                         (unsigned long long)count);
        return NULL;
    }
    void *copy = rg_job_memory(job, n * size);
    return copy ? memcpy(copy, data, n * size) : NULL;
}

const char *rg_job_string_in(struct rg_job *job)
{
    const char *text = rg_get_string(&job->in, RG_NAME_MAX);
    const size_t size = text ? strlen(text) + 1 : 0;
    char *copy = text ? rg_job_memory(job, size) : NULL;
    return copy ? memcpy(copy, text, size) : NULL;
}

const void *rg_job_bytes_in(struct rg_job *job, uint64_t count)
{
    const size_t n = rg_get_count(&job->in, RG_MESSAGE_MAX, 1);
    const void *data = rg_get(&job->in, n);
    if (!data || n != count) {
        rg_job_violation(job, "%llu bytes where %llu were announced", (unsigned long long)n,
                         (unsigned long long)count);
        return NULL;
    }
    return data;
}

void *rg_job_array_out(struct rg_job *job, uint64_t count, size_t size)
{
    if (size && count > RG_REPLY_INLINE / size) {
        rg_job_violation(job, "outputs of %llu elements", (unsigned long long)count);
        return NULL;
    }
    return rg_job_memory(job, (size_t)count * size);
}

bool rg_job_decoded(struct rg_job *job)
{
    if (job->in.bad || rg_left(&job->in) >= 8)
        rg_job_violation(job, job->in.bad ? "too few bytes of parameters" : "too many bytes of parameters");
    return !job->violated && job->result == CUDA_SUCCESS;
}

bool rg_job_enter(struct rg_job *job, bool context)
{
    if (!rg_job_decoded(job))
        return false;
    if (context) {
        job->result = rg_job_make_current(job);
        if (job->result != CUDA_SUCCESS)
            return false;
    }
    if (job->worker->operations[job->op].flags & RG_OPERATION_WAITS)
        return rg_job_hand_over(job);
    if (job->worker->operations[job->op].flags & RG_OPERATION_COMPILES)
        rg_job_stand_aside(job);
    return true;
}

void rg_job_let_pass(struct rg_job *job, bool context)
{
    const struct rg_object *entry =
        context && job->token ? rg_objects_find(&job->worker->objects, job->lane->context) : NULL;
    if (job->token && (!entry || !rg_context_idle(job->worker, entry->extra)) && !rg_job_hand_over(job))
        job->result = CUDA_SUCCESS; /* what ends something does not fail: others wait with it */
}

enum rg_status rg_job_recv_bulk(struct rg_job *job, void *buffer, size_t size)
{
    struct rg_feed *feed = &job->worker->feed;
    if (size > job->bulk_left) {
        rg_job_violation(job, "%zu bytes of bulk data where %zu were needed", job->bulk_left, size);
        return RG_ERR_PROTOCOL;
    }
    enum rg_status status = RG_OK;
    if (feed->bulk) {
        if (buffer && size)
            memcpy(buffer, feed->bulk, size);
        feed->bulk += size;
    } else if (size) {
        status = rg_conn_recv_bulk(job->worker->conn, buffer, size);
        if (status != RG_OK) {
            job->violated = true;
            rg_worker_end(job->worker, 0, NULL);
        }
    }
    job->bulk_left -= size;
    feed->bulk_left -= size;
    return status;
}

bool rg_job_places(struct rg_job *job, const void *memory, size_t size)
{
    return !job->worker->feed.bulk && size == job->bulk_left &&
           rg_conn_places(job->worker->conn, memory, size);
}

size_t rg_job_take_lent(struct rg_job *job, size_t most, void **memory)
{
    struct rg_feed *feed = &job->worker->feed;
    size_t size = 0;
    if (feed->bulk || most > job->bulk_left)
        return 0;
    if (rg_conn_take_lent(job->worker->conn, most, memory, &size) != RG_OK) {
        job->violated = true;
        rg_worker_end(job->worker, 0, NULL);
        return 0;
    }
    job->bulk_left -= size;
    feed->bulk_left -= size;
    return size;
}

void rg_job_output(struct rg_job *job, const void *data, size_t size)
{
    const size_t limit = RG_MESSAGE_MAX - sizeof(struct rg_message_header) - sizeof(struct rg_reply);
    if (size > limit - job->out_size) {
        fail(job, CUDA_ERROR_OUT_OF_MEMORY);
        rg_error("session %llu: the answer of %s is too long", (unsigned long long)job->worker->session,
                 job->worker->operations[job->op].name);
        return;
    }
    if (job->out_size + size > job->out_capacity) {
        size_t more = job->out_capacity * 2;
        while (more < job->out_size + size)
            more *= 2;
        const bool own = job->out != rg_thread_of(job)->output;
        unsigned char *bigger = own ? realloc(job->out, more) : malloc(more);
        if (!bigger) {
            fail(job, CUDA_ERROR_OUT_OF_MEMORY);
            return;
        }
        if (!own)
            memcpy(bigger, job->out, job->out_size);
        job->out = bigger;
        job->out_capacity = more;
    }
    if (size)
        memcpy(job->out + job->out_size, data, size);
    job->out_size += size;
}

/* --- roles --------------------------------------------------------------------------------------------------------- */

bool rg_job_hand_over(struct rg_job *job)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    struct rg_thread *thread = rg_thread_of(job);
    if (!thread->roles)
        return true;
    atomic_store_explicit(&job->lane->waits, true, memory_order_relaxed);
    atomic_store(&job->worker->served, thread->seq);
    rg_times_handed_over(thread);
    atomic_fetch_add(&job->worker->apart, 1);
    if (rg_roles_hand_over(thread))
        return true;
    atomic_fetch_sub(&job->worker->apart, 1);
    atomic_store_explicit(&job->lane->waits, false, memory_order_relaxed);
    if (!rg_worker_over(job->worker))
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN,
                       "session %llu: no thread for %s, which has to wait (there are %u at most)",
                       (unsigned long long)job->worker->session, job->worker->operations[job->op].name,
                       RG_CLIENT_THREADS_MAX);
    fail(job, CUDA_ERROR_OPERATING_SYSTEM);
    return false;
}

void rg_job_split(struct rg_job *job)
{
    if (!rg_roles_split(rg_thread_of(job)))
        job->violated = true;
}
