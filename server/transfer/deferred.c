/* deferred.c - the table of items, the buffers of streams, and the end of contexts. See deferred.h. */
#include "server/transfer/deferred.h"

#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/transfer/gpudirect.h"

#include <stdlib.h>

/* --- items ---------------------------------------------------------------------------------------------- */

struct rg_deferred_item *rg_deferred_find(struct rg_worker *worker, uint64_t id)
{
    return (struct rg_deferred_item *)rg_hash_table_first(&rg_deferred_of(worker)->items, id);
}

static size_t bytes_of(size_t n_chunks)
{
    return sizeof(struct rg_deferred_item) + n_chunks * sizeof(struct rg_deferred_step);
}

static bool needs_answer(const struct rg_deferred_item *item)
{
    return item->kind == RG_DEFERRED_HOST_CALL || item->kind == RG_DEFERRED_RENDEZVOUS;
}

struct rg_deferred_item *rg_deferred_create(struct rg_request *request, enum rg_deferred_kind kind,
                                            uint64_t id, size_t n_chunks)
{
    struct rg_worker *worker = request->worker;
    struct rg_deferred *deferred = rg_deferred_of(worker);
    struct rg_deferred_item *item =
        n_chunks < RG_DEFERRED_MAX / sizeof(struct rg_deferred_step) ? calloc(1, bytes_of(n_chunks)) : NULL;
    if (!item) {
        request->result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    item->worker = worker;
    item->kind = kind;
    item->id = id;
    item->n_chunks = n_chunks;
    pthread_cond_init(&item->changed, NULL);
    for (size_t i = 0; i < n_chunks; i++)
        item->steps[i] = (struct rg_deferred_step){item, i};
    pthread_mutex_lock(&deferred->lock);
    const bool taken = rg_deferred_find(worker, id) != NULL;
    const bool fits = bytes_of(n_chunks) <= RG_DEFERRED_MAX - deferred->bytes;
    if (!taken && fits) {
        rg_hash_table_add(&deferred->items, &item->link, id);
        deferred->bytes += bytes_of(n_chunks);
    }
    pthread_mutex_unlock(&deferred->lock);
    if (taken || !fits) {
        pthread_cond_destroy(&item->changed);
        free(item);
        request->result = CUDA_ERROR_OUT_OF_MEMORY;
        if (taken)
            rg_request_violation(request, "transfer %llu is in use", (unsigned long long)id);
        return NULL;
    }
    if (needs_answer(item))
        atomic_fetch_add(&worker->answers_due, 1);
    return item;
}

void rg_deferred_destroy(struct rg_deferred_item *item)
{
    struct rg_deferred *deferred = rg_deferred_of(item->worker);
    rg_hash_table_remove(&deferred->items, &item->link);
    deferred->bytes -= bytes_of(item->n_chunks);
    rg_stream_word_give(&item->word);
    rg_gpudirect_unpin(item->worker, item->area);
    pthread_cond_destroy(&item->changed);
    free(item);
}

void rg_deferred_cancel(struct rg_deferred_item *item)
{
    struct rg_deferred *deferred = rg_deferred_of(item->worker);
    if (needs_answer(item))
        atomic_fetch_sub(&item->worker->answers_due, 1);
    RG_SCOPED_LOCK(&deferred->lock);
    rg_deferred_destroy(item);
}

void rg_deferred_notice(struct rg_worker *worker, unsigned type, uint64_t id, uint64_t arg0, uint64_t arg1,
                        uint64_t arg2)
{
    const struct rg_notice message = {.type = type, .id = id, .arg = {arg0, arg1, arg2}};
    (void)rg_worker_notice(worker, &message, NULL, 0, NULL, 0);
}

bool rg_deferred_work(struct rg_deferred_item *item)
{
    item->at_work += !item->gone;
    return !item->gone;
}

void rg_deferred_rest(struct rg_deferred_item *item)
{
    if (--item->at_work == 0)
        pthread_cond_broadcast(&rg_deferred_of(item->worker)->settled);
}

/* Chunks that are whole when there are so many bytes. */
static uint32_t chunks_of(const struct rg_deferred_item *item, size_t bytes)
{
    return (uint32_t)(bytes == item->total ? item->n_chunks : bytes / item->chunk);
}

static uint32_t steps_that_may_go_on(const struct rg_deferred_item *item)
{
    switch (item->kind) {
    case RG_DEFERRED_RENDEZVOUS:
    case RG_DEFERRED_PEER_RECEIVE:
        return chunks_of(item, item->received);
    case RG_DEFERRED_PEER_SEND:
        return chunks_of(item, item->demanded);
    default:
        return item->answered;
    }
}

void rg_deferred_tell(struct rg_deferred_item *item)
{
    const bool in_vain = item->gone || item->failed || rg_worker_over(item->worker);
    rg_stream_word_set(&item->word, in_vain ? RG_STREAM_WORD_OPEN : steps_that_may_go_on(item));
    pthread_cond_broadcast(&item->changed);
}

CUresult rg_deferred_take_word(struct rg_deferred_item *item, struct rg_worker_context *context)
{
    struct rg_stream_word word;
    RG_TRY(rg_stream_word_take(item->worker, context, &word));
    RG_SCOPED_LOCK(rg_deferred_lock(item->worker));
    item->word = word;
    rg_deferred_tell(item); /* the session may have ended before there was a word by which to say so */
    return CUDA_SUCCESS;
}

bool rg_deferred_has_all(const struct rg_deferred_item *item)
{
    return item->received == (item->gone ? item->requested : item->total);
}

/* --- buffers -------------------------------------------------------------------------------------------- */

/* Lets a transfer use the stream's buffers from `first` on; makes those that are missing or too small. */
static CUresult use_slots(struct rg_request *request, struct rg_deferred_item *item,
                          struct rg_worker_context *context, struct rg_staging_buffer **slots, size_t first,
                          CUstream stream)
{
    for (size_t i = 0; i < RG_DEFERRED_SLOTS; i++) {
        struct rg_staging_buffer **slot = &slots[(first + i) % RG_DEFERRED_SLOTS];
        if (*slot && (*slot)->size < item->chunk && i < item->n_chunks) {
            rg_staging_give_after(request->worker, *slot, stream);
            *slot = NULL;
        }
        if (!*slot && i < item->n_chunks) {
            RG_TRY(rg_staging_take(request->worker, context, item->chunk, slot));
            (*slot)->kept = true;
        }
        item->slots[i] = *slot ? (*slot)->memory : NULL;
        item->leases[i] = *slot ? &(*slot)->lease : NULL;
    }
    return CUDA_SUCCESS;
}

/* Where what is sent may be needed again, each deferred read takes the slots used longest ago. */
static CUresult take_slots(struct rg_request *request, struct rg_deferred_item *item,
                           struct rg_worker_context *context, struct rg_worker_stream *state, CUstream stream)
{
    if (!state->slots && !(state->slots = calloc(1, sizeof *state->slots)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_deferred_slots *slots = state->slots;
    if (item->kind == RG_DEFERRED_RENDEZVOUS || item->kind == RG_DEFERRED_PEER_RECEIVE)
        return use_slots(request, item, context, slots->rendezvous, 0, stream);
    const CUresult result = use_slots(request, item, context, slots->read, slots->next_read, stream);
    if (rg_conn_caps(request->worker->conn) & RG_CAP_RETRANSMITS)
        slots->next_read = (slots->next_read + item->n_chunks) % RG_DEFERRED_SLOTS;
    return result;
}

static CUresult begin(struct rg_request *request, const struct rg_device_region *region, uint64_t id,
                      enum rg_deferred_kind kind, CUstream stream, struct rg_deferred_item **out)
{
    CUresult result =
        rg_driver_has(cuLaunchHostFunc) ? rg_device_region_check(request, region) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS)
        return result;
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    struct rg_worker_stream *state = context ? rg_request_stream_state(request, stream) : NULL;
    const size_t chunk = region->total < RG_DEFERRED_CHUNK ? region->total : RG_DEFERRED_CHUNK;
    struct rg_deferred_item *item =
        state ? rg_deferred_create(request, kind, id, (region->total + chunk - 1) / chunk) : NULL;
    if (!item)
        return request->result;
    item->total = region->total;
    item->context = context;
    if (kind == RG_DEFERRED_READ && rg_device_region_is_plain(region)) {
        item->area = rg_gpudirect_pin(request->worker, context, region->device, region->total);
        item->device = (unsigned char *)(uintptr_t)region->device;
    }
    item->chunk = chunk;
    if (!item->area)
        result = take_slots(request, item, context, state, stream);
    if (result == CUDA_SUCCESS && kind != RG_DEFERRED_READ)
        result = rg_deferred_take_word(item, context);
    if (result != CUDA_SUCCESS)
        rg_deferred_cancel(item);
    else
        *out = item;
    return result;
}

CUresult rg_deferred_begin(struct rg_request *request, const struct rg_device_region *region, uint64_t id,
                           enum rg_deferred_kind kind, CUstream stream, struct rg_deferred_item **out)
{
    CUresult result = begin(request, region, id, kind, stream, out);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && rg_worker_reclaim(request)) {
        request->result = CUDA_SUCCESS;
        result = begin(request, region, id, kind, stream, out);
    }
    request->told = true; /* by the notice that follows; or there is an item, which stays whatever comes */
    return result;
}

/* Gives back what a stream kept, after the work now in it. */
static void drop_stream(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct rg_deferred_slots *slots = stream->slots;
    for (size_t i = 0; i < RG_DEFERRED_SLOTS && slots; i++) {
        rg_staging_give_after(worker, slots->rendezvous[i], stream->object);
        rg_staging_give_after(worker, slots->read[i], stream->object);
    }
    free(slots);
    stream->slots = NULL;
}

/* --- the end of contexts -------------------------------------------------------------------------------- */

/* The lock is held, and nobody is at work on the item. */
static void abandon(struct rg_deferred_item *item)
{
    rg_gpudirect_unpin(item->worker, item->area);
    item->area = NULL;
    if (item->kind == RG_DEFERRED_RENDEZVOUS && item->received != item->total && rg_deferred_has_all(item))
        atomic_fetch_sub(&item->worker->answers_due, 1);
    item->context = NULL;
    rg_deferred_tell(item);
}

/* Whether something may still touch its buffers: a thread, or the client's device. The lock is held. */
static bool is_used(const struct rg_deferred_item *item)
{
    return item->at_work ||
           (item->advertised && item->received < item->requested && !rg_worker_over(item->worker));
}

/* Waits for what the client may write into a buffer by itself. */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct rg_deferred *deferred = rg_deferred_of(worker);
    RG_SCOPED_LOCK(&deferred->lock);
    for (struct rg_hash_link *at = rg_hash_table_after(&deferred->items, NULL); at;) {
        struct rg_deferred_item *item = (struct rg_deferred_item *)at;
        item->gone |= item->context == context;
        if (item->context == context && is_used(item)) {
            pthread_cond_wait(&deferred->settled, &deferred->lock);
            at = rg_hash_table_after(&deferred->items, NULL); /* the table may have changed */
            continue;
        }
        if (item->context == context)
            abandon(item);
        at = rg_hash_table_after(&deferred->items, at);
    }
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

static void init(struct rg_worker *worker)
{
    pthread_cond_init(&rg_deferred_of(worker)->settled, NULL);
}

/* Releases every host function and every stream that waits. */
static void wake(struct rg_worker *worker)
{
    struct rg_deferred *deferred = rg_deferred_of(worker);
    RG_SCOPED_LOCK(&deferred->lock);
    pthread_cond_broadcast(&deferred->settled);
    for (struct rg_hash_link *at = NULL; (at = rg_hash_table_after(&deferred->items, at));)
        rg_deferred_tell((struct rg_deferred_item *)at);
}

static void destroy_link(struct rg_hash_link *link)
{
    rg_deferred_destroy((struct rg_deferred_item *)link);
}

/* No host function can run any more. */
static void fini(struct rg_worker *worker)
{
    struct rg_deferred *deferred = rg_deferred_of(worker);
    rg_hash_table_clear(&deferred->items, destroy_link);
    pthread_cond_destroy(&deferred->settled);
}

static bool busy(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    const bool any = rg_hash_table_after(&rg_deferred_of(worker)->items, NULL) != NULL;
    return any;
}

const struct rg_server_module rg_deferred_module = {
    .size = sizeof(struct rg_deferred),
    .locked = true,
    .init = init,
    .wake = wake,
    .fini = fini,
    .drop_stream = drop_stream,
    .drop_context = drop_context,
    .busy = busy,
};
