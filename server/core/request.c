/*
 * request.c - what operations work with: parameters, bulk data, outputs, roles (objects and contexts: request_objects.c). The
 * contract is in request.h.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "server/core/leader_followers.h"
#include "server/core/out_of_order.h"
#include "transport/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_request_violation(struct rg_request *request, const char *format, ...)
{
    if (request->violated)
        return;
    request->violated = true;
    rg_request_fail(request, CUDA_ERROR_UNKNOWN);
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_worker_end(request->worker, 1, "protocol violation: %s: %s", rg_op_names[request->op], text);
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
        rg_request_fail(request, CUDA_ERROR_OUT_OF_MEMORY);
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
        rg_request_fail(request, CUDA_ERROR_OUT_OF_MEMORY);
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
            rg_request_fail(request, CUDA_ERROR_OUT_OF_MEMORY);
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
    rg_request_fail(request, CUDA_ERROR_OPERATING_SYSTEM);
    return false;
}

void rg_request_separate_reader(struct rg_request *request)
{
    if (!rg_leader_separate_reader(rg_executor_of(request)))
        request->violated = true;
}
