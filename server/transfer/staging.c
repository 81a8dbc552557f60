/* staging.c - pools of pinned buffers, and which of them hold data that takes credit. See staging.h. */
#include "server/transfer/staging.h"

#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/modules.h"
#include "transport/memory.h"

#include <stdlib.h>

#define FEW_MAX 64 /* buffers of a context that are made for few bytes each */

struct staging {
    pthread_mutex_t lock; /* of the pools, and of all here; the driver is asked for events under it */
    pthread_cond_t given; /* a buffer was given back, while somebody waits */
    bool waits;
    uint64_t given_count;
    struct rg_staging_credit credit;
    struct rg_staging_buffer *first,
        *last; /* buffers with data that takes credit, in the order in which it came */
};

static struct staging *staging_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_STAGING];
}

static CUresult create(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                       struct rg_staging_buffer **out)
{
    struct rg_staging_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = rg_driver.cuMemHostAlloc(&buffer->memory, size, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS) {
        result = rg_driver.cuEventCreate(&buffer->ready, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
        if (result != CUDA_SUCCESS)
            (void)rg_driver.cuMemFreeHost(buffer->memory);
    }
    if (result != CUDA_SUCCESS) {
        free(buffer);
        return result;
    }
    (void)rg_conn_register(worker->conn, buffer->memory, size); /* where that helps, and if it can be had */
    buffer->size = size;
    buffer->taken = true;
    pthread_mutex_lock(&staging_of(worker)->lock);
    buffer->next = context->buffers;
    context->buffers = buffer;
    context->staging_bytes += size;
    pthread_mutex_unlock(&staging_of(worker)->lock);
    *out = buffer;
    return CUDA_SUCCESS;
}

static void destroy(struct rg_worker *worker, struct rg_staging_buffer *list)
{
    while (list) {
        struct rg_staging_buffer *next = list->next;
        (void)rg_driver.cuEventDestroy_v2(list->ready);
        rg_lease_end(&list->lease);
        rg_conn_unregister(worker->conn, list->memory);
        (void)rg_driver.cuMemFreeHost(list->memory);
        free(list);
        list = next;
    }
}

/* --- credit. The lock is held --------------------------------------------------------------------------- */

/* The buffer serves for something else, or ends: its data takes no credit any more. */
static void release_credit(struct staging *staging, struct rg_staging_buffer *buffer)
{
    if (!buffer->credit)
        return;
    *(buffer->earlier ? &buffer->earlier->later : &staging->first) = buffer->later;
    *(buffer->later ? &buffer->later->earlier : &staging->last) = buffer->earlier;
    staging->credit.freed += buffer->credit;
    buffer->credit = 0;
    buffer->earlier = buffer->later = NULL;
}

static void take_credit(struct staging *staging, struct rg_staging_buffer *buffer, uint64_t size)
{
    buffer->credit = size;
    buffer->earlier = staging->last;
    buffer->later = NULL;
    *(staging->last ? &staging->last->later : &staging->first) = buffer;
    staging->last = buffer;
}

/* Finds out which buffers are free again. */
static void look(struct staging *staging)
{
    for (struct rg_staging_buffer *buffer = staging->first, *next; buffer; buffer = next) {
        next = buffer->later;
        if (buffer->taken ||
            (buffer->pending && rg_driver.cuEventQuery(buffer->ready) == CUDA_ERROR_NOT_READY))
            continue;
        buffer->pending = false; /* or its context has failed, and nothing will read it any more */
        release_credit(staging, buffer);
    }
}

/* Waits until the device has taken what came first; the lock is released meanwhile. */
static void wait_for_first(struct staging *staging)
{
    struct rg_staging_buffer *first = staging->first;
    first->taken = true;
    pthread_mutex_unlock(&staging->lock);
    (void)rg_driver.cuEventSynchronize(first->ready);
    pthread_mutex_lock(&staging->lock);
    first->taken = first->pending = false;
    release_credit(staging, first);
}

/* --- taking --------------------------------------------------------------------------------------------- */

/* Whether nothing uses the buffer; the lock is held. */
static bool is_free(struct rg_staging_buffer *buffer)
{
    if (buffer->pending && !buffer->taken && rg_driver.cuEventQuery(buffer->ready) == CUDA_SUCCESS)
        buffer->pending = false;
    return !buffer->taken && !buffer->pending && rg_lease_ended(&buffer->lease);
}

/* What is held longest of buffers with nothing else in their way, if much is held. The lock is held. */
static struct rg_staging_buffer *held_longest(const struct rg_worker_context *context, size_t size)
{
    struct rg_staging_buffer *longest = NULL;
    size_t held = 0;
    for (struct rg_staging_buffer *buffer = context->buffers; buffer; buffer = buffer->next) {
        if (buffer->taken || buffer->pending || rg_lease_ended(&buffer->lease))
            continue;
        held += buffer->size;
        if (buffer->size >= size && (!longest || buffer->given < longest->given))
            longest = buffer;
    }
    return held + size > RG_STAGING_HELD ? longest : NULL;
}

/* The smallest buffer of the pool that will do, or NULL; the lock is held. */
static struct rg_staging_buffer *find(const struct rg_worker_context *context, size_t size)
{
    struct rg_staging_buffer *best = NULL;
    const bool crowded = context->staging_bytes + size > RG_BULK_CREDIT;
    for (struct rg_staging_buffer *buffer = context->buffers; buffer && (!best || best->size != size);
         buffer = buffer->next)
        if (buffer->size >= size && (crowded || buffer->size <= 4 * size) &&
            (!best || buffer->size < best->size) && is_free(buffer))
            best = buffer;
    return best ? best : held_longest(context, size);
}

CUresult rg_staging_take(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                         struct rg_staging_buffer **out)
{
    struct staging *staging = staging_of(worker);
    size = (size_t)rg_bulk_credit_of(size);
    pthread_mutex_lock(&staging->lock);
    struct rg_staging_buffer *buffer = find(context, size);
    if (buffer) {
        buffer->taken = true;
        release_credit(staging, buffer);
    }
    pthread_mutex_unlock(&staging->lock);
    if (!buffer)
        return create(worker, context, size, out);
    if (buffer->lease.conn) /* it was held */
        rg_lease_end(&buffer->lease);
    *out = buffer;
    return CUDA_SUCCESS;
}

/* Whether a buffer of the least size is free, or there are not too many of them. */
static bool has_few(struct rg_worker *worker, const struct rg_worker_context *context)
{
    unsigned n = 0;
    RG_SCOPED_LOCK(&staging_of(worker)->lock);
    for (const struct rg_staging_buffer *buffer = context->buffers; buffer; buffer = buffer->next)
        n += buffer->size == RG_STAGING_SMALL;
    return n < FEW_MAX || find(context, RG_STAGING_SMALL) != NULL;
}

struct rg_staging_buffer *rg_staging_take_few(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct rg_staging_buffer *buffer = NULL;
    if (!has_few(worker, context) ||
        rg_staging_take(worker, context, RG_STAGING_SMALL, &buffer) != CUDA_SUCCESS)
        return NULL;
    return buffer;
}

/* Frees buffers of a large pool that nothing uses; the context is idle, or the driver would wait for it. */
static void shrink(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct staging *staging = staging_of(worker);
    struct rg_staging_buffer *unused = NULL;
    pthread_mutex_lock(&staging->lock);
    for (struct rg_staging_buffer **link = &context->buffers;
         *link && context->staging_bytes > RG_BULK_CREDIT;) {
        struct rg_staging_buffer *buffer = *link;
        if (!is_free(buffer)) {
            link = &buffer->next;
            continue;
        }
        release_credit(staging, buffer);
        *link = buffer->next;
        context->staging_bytes -= buffer->size;
        buffer->next = unused;
        unused = buffer;
    }
    pthread_mutex_unlock(&staging->lock);
    destroy(worker, unused);
}

CUresult rg_staging_take_credited(struct rg_worker *worker, struct rg_worker_context *context, size_t brought,
                                  size_t size, struct rg_staging_buffer **out)
{
    struct staging *staging = staging_of(worker);
    struct rg_staging_credit *credit = &staging->credit;
    const uint64_t needed = rg_bulk_credit_of(brought);
    pthread_mutex_lock(&staging->lock);
    credit->taken += needed;
    if (credit->taken - credit->freed > RG_BULK_CREDIT)
        look(staging);
    while (credit->taken - credit->freed > RG_BULK_CREDIT && staging->first)
        wait_for_first(staging);
    const bool large = context->staging_bytes > RG_STAGING_KEPT;
    pthread_mutex_unlock(&staging->lock);
    if (large && rg_context_idle(worker, context))
        shrink(worker, context);
    CUresult result = rg_staging_take(worker, context, size, out);
    pthread_mutex_lock(&staging->lock);
    if (result == CUDA_SUCCESS)
        take_credit(staging, *out, needed);
    else
        credit->freed += needed;
    pthread_mutex_unlock(&staging->lock);
    return result;
}

struct rg_staging_credit rg_staging_credit(struct rg_worker *worker, uint64_t seen, uint64_t passed)
{
    struct staging *staging = staging_of(worker);
    RG_SCOPED_LOCK(&staging->lock);
    if (staging->credit.taken == seen) {
        staging->credit.taken += passed;
        staging->credit.freed += passed;
    }
    return staging->credit;
}

struct rg_staging_credit rg_staging_credit_look(struct rg_worker *worker)
{
    struct staging *staging = staging_of(worker);
    RG_SCOPED_LOCK(&staging->lock);
    look(staging);
    return staging->credit;
}

/* --- giving back ---------------------------------------------------------------------------------------- */

static void give(struct rg_worker *worker, struct rg_staging_buffer *buffer, bool pending)
{
    struct staging *staging = staging_of(worker);
    RG_SCOPED_LOCK(&staging->lock);
    buffer->given = staging->given_count++;
    buffer->pending = pending;
    buffer->taken = buffer->kept = false;
    if (staging->waits)
        pthread_cond_signal(&staging->given);
}

void rg_staging_give_after(struct rg_worker *worker, struct rg_staging_buffer *buffer, CUstream stream)
{
    if (buffer)
        /* If the event cannot be recorded the context has failed, and nothing will use the buffer. */
        give(worker, buffer, rg_driver.cuEventRecord(buffer->ready, stream) == CUDA_SUCCESS);
}

void rg_staging_give(struct rg_worker *worker, struct rg_staging_buffer *buffer)
{
    if (buffer)
        give(worker, buffer, false);
}

CUresult rg_staging_send(struct rg_worker *worker, struct rg_staging_buffer *buffer, uint64_t transfer,
                         size_t offset, size_t size, bool last)
{
    const enum rg_status status =
        rg_worker_send_transfer(worker, transfer, offset, buffer->memory, size, last, &buffer->lease);
    return status == RG_OK ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Whether a thread is at some buffer of the context's; the lock is held. */
static bool any_in_use(const struct rg_worker_context *context)
{
    const struct rg_staging_buffer *buffer = context->buffers;
    while (buffer && (!buffer->taken || buffer->kept))
        buffer = buffer->next;
    return buffer != NULL;
}

/*
 * Frees the context's buffers. Waits for threads that still send from some, of calls that wait; what deferred
 * transfers use is not in use any more, as those were dropped before.
 */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct staging *staging = staging_of(worker);
    pthread_mutex_lock(&staging->lock);
    staging->waits = true;
    while (any_in_use(context))
        pthread_cond_wait(&staging->given, &staging->lock);
    staging->waits = false;
    struct rg_staging_buffer *list = context->buffers;
    for (struct rg_staging_buffer *buffer = list; buffer; buffer = buffer->next)
        release_credit(staging, buffer);
    context->buffers = NULL;
    context->staging_bytes = 0;
    pthread_mutex_unlock(&staging->lock);
    destroy(worker, list);
}

static void init(struct rg_worker *worker)
{
    pthread_cond_init(&staging_of(worker)->given, NULL);
}

static void fini(struct rg_worker *worker)
{
    for (struct rg_worker_context *context = worker->retired; context; context = context->next_retired)
        drop_context(worker, context); /* nothing is left of one that ended as it should */
    pthread_cond_destroy(&staging_of(worker)->given);
}

const struct rg_server_module rg_staging_module = {
    .size = sizeof(struct staging),
    .locked = true,
    .init = init,
    .fini = fini,
    .drop_context = drop_context,
};
