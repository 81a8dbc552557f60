/* deferred.c - host calls, rendezvous, deferred reads, and the thread that sends deferred reads. See deferred.h. */
#include "server/transfer/deferred.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/tuning.h"
#include "generated/server/driver.h"
#include "server/images/image.h"
#include "server/prealloc/prealloc.h"
#include "server/timeline/completion.h"
#include "server/timeline/times.h"
#include "server/transfer/array.h"
#include "server/transfer/gpudirect.h"
#include "server/transfer/staging.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS (sizeof((struct rg_worker *)0)->deferred / sizeof *((struct rg_worker *)0)->deferred)

enum late_kind { HOST_CALL, RENDEZVOUS, DEFERRED_READ };

/* One host function of a transfer. */
struct step {
    struct rg_deferred_item *item;
    size_t index; /* of the chunk */
};

struct rg_deferred_item {
    struct rg_deferred_item *next;      /* in its bucket */
    struct rg_deferred_item *next_send; /* deferred reads with chunks to be sent */
    struct rg_worker *worker;
    uint64_t id;
    enum late_kind kind;
    const struct rg_worker_context *context; /* transfers: the stream's, whose buffers are used */
    pthread_cond_t changed;
    /* guarded by the late lock */
    bool due;      /* host calls: the client has been told */
    bool answered; /* host calls */
    bool listed;   /* deferred reads: in the list of the sending thread */
    size_t total, chunk;
    size_t requested, received; /* rendezvous: bytes */
    size_t posted, sent;        /* deferred reads: chunks */
    unsigned at_work;           /* transfers: threads that use the buffers, without the lock */
    bool gone;                  /* transfers: the context has ended, and the buffers with it */
    bool advertised;            /* rendezvous: the client may write what it is asked for where that belongs */
    size_t n_chunks;
    unsigned char *slots[RG_DEFERRED_SLOTS];
    struct rg_lease
        *holds[RG_DEFERRED_SLOTS]; /* of the slots, and of those that the next transfer uses; NULL: none */
    struct rg_gpudirect_area
        *area; /* deferred reads that are sent from where the data lies on the device; NULL: others */
    unsigned char *device; /* where that is */
    struct step steps[];
};

static struct rg_deferred_item *find(struct rg_worker *worker, uint64_t id)
{
    struct rg_deferred_item *item = worker->deferred[id % BUCKETS];
    while (item && item->id != id)
        item = item->next;
    return item;
}

static size_t bytes_of(size_t n_chunks)
{
    return sizeof(struct rg_deferred_item) + n_chunks * sizeof(struct step);
}

/* Makes an item and puts it into the table; NULL with request->result or a violation set. */
static struct rg_deferred_item *create(struct rg_request *request, enum late_kind kind, uint64_t id,
                                       size_t n_chunks)
{
    struct rg_worker *worker = request->worker;
    struct rg_deferred_item *item =
        n_chunks < RG_LATE_MAX / sizeof(struct step) ? calloc(1, bytes_of(n_chunks)) : NULL;
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
        item->steps[i] = (struct step){item, i};
    pthread_mutex_lock(&worker->deferred_lock);
    const bool taken = find(worker, id) != NULL;
    const bool room = bytes_of(n_chunks) <= RG_LATE_MAX - worker->deferred_bytes;
    if (!taken && room) {
        item->next = worker->deferred[id % BUCKETS];
        worker->deferred[id % BUCKETS] = item;
        worker->deferred_bytes += bytes_of(n_chunks);
    }
    pthread_mutex_unlock(&worker->deferred_lock);
    if (taken || !room) {
        pthread_cond_destroy(&item->changed);
        free(item);
        request->result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (taken)
        rg_request_violation(request, "transfer %llu is in use", (unsigned long long)id);
    if (taken || !room)
        return NULL;
    if (kind != DEFERRED_READ)
        atomic_fetch_add(&worker->answers_due, 1);
    return item;
}

/* Takes the item out of the table and frees it; the lock is held. */
static void destroy(struct rg_deferred_item *item)
{
    struct rg_deferred_item **link = &item->worker->deferred[item->id % BUCKETS];
    while (*link != item)
        link = &(*link)->next;
    *link = item->next;
    item->worker->deferred_bytes -= bytes_of(item->n_chunks);
    rg_gpudirect_unpin(item->worker, item->area);
    pthread_cond_destroy(&item->changed);
    free(item);
}

static void cancel(struct rg_deferred_item *item)
{
    struct rg_worker *worker = item->worker;
    if (item->kind != DEFERRED_READ)
        atomic_fetch_sub(&worker->answers_due, 1);
    pthread_mutex_lock(&worker->deferred_lock);
    destroy(item);
    pthread_mutex_unlock(&worker->deferred_lock);
}

static void notice(struct rg_deferred_item *item, unsigned type, uint64_t arg0, uint64_t arg1, uint64_t arg2)
{
    struct rg_notice message = {.type = type, .id = item->id, .arg = {arg0, arg1, arg2}};
    (void)rg_worker_notice(item->worker, &message, NULL, 0, NULL, 0);
}

/* --- host calls ------------------------------------------------------------------------------------------------- */

static void run_host_call(struct rg_deferred_item *item, CUresult status)
{
    struct rg_worker *worker = item->worker;
    pthread_mutex_lock(&worker->deferred_lock);
    item->due = true;
    pthread_mutex_unlock(&worker->deferred_lock);
    notice(item, RG_NOTICE_HOST_CALL, (uint64_t)status, 0, 0);
    pthread_mutex_lock(&worker->deferred_lock);
    while (!item->answered && !rg_worker_over(worker))
        pthread_cond_wait(&item->changed, &worker->deferred_lock);
    if (item->answered)
        destroy(item);
    pthread_mutex_unlock(&worker->deferred_lock);
}

static void CUDA_CB host_function(void *item)
{
    run_host_call(item, CUDA_SUCCESS);
}

static void CUDA_CB stream_callback(CUstream stream, CUresult status, void *item)
{
    (void)stream;
    run_host_call(item, status);
}

/* Tells the client that it will not be run. */
static void refuse_call(struct rg_request *request, uint64_t id)
{
    const struct rg_notice message = {.type = RG_NOTICE_HOST_CALL, .id = id, .arg = {0, 1, 0}};
    (void)rg_worker_notice(request->worker, &message, NULL, 0, NULL, 0);
    request->told = true;
}

CUresult rg_deferred_host_call(struct rg_request *request, CUstream stream, uint64_t id, bool callback)
{
    if (callback ? !rg_driver.cuStreamAddCallback : !rg_driver.cuLaunchHostFunc)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_deferred_item *item = create(request, HOST_CALL, id, 0);
    if (!item && !request->violated)
        refuse_call(request, id);
    if (!item)
        return request->result;
    CUresult result = callback ? rg_driver.cuStreamAddCallback(stream, stream_callback, item, 0)
                               : rg_driver.cuLaunchHostFunc(stream, host_function, item);
    if (result != CUDA_SUCCESS) {
        refuse_call(request, id);
        cancel(item);
    }
    return result;
}

/* --- transfers ----------------------------------------------------------------------------------------------------- */

/* Whether the transfer's buffers may be used now, until rest(); the lock is held. */
static bool begin_work(struct rg_deferred_item *item)
{
    item->at_work += !item->gone;
    return !item->gone;
}

static void rest(struct rg_deferred_item *item)
{
    if (--item->at_work == 0)
        pthread_cond_broadcast(&item->worker->deferred_settled);
}

/* Lets a transfer use the stream's buffers from `first` on, making or replacing those that are missing or too small. */
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
            CUresult result = rg_staging_take(request->worker, context, item->chunk, slot);
            if (result != CUDA_SUCCESS)
                return result;
            (*slot)->kept = true;
        }
        item->slots[i] = *slot ? (*slot)->memory : NULL;
        item->holds[i] = *slot ? &(*slot)->hold : NULL;
    }
    return CUDA_SUCCESS;
}

/* Where what is sent may be needed again, each deferred read goes on with the slots that have not been used for longest. */
static CUresult use_read_slots(struct rg_request *request, struct rg_deferred_item *item,
                               struct rg_worker_context *context, struct rg_worker_stream *state,
                               CUstream stream)
{
    const CUresult result =
        use_slots(request, item, context, state->read_slots, state->next_read_slot, stream);
    if (rg_conn_caps(request->worker->conn) & RG_CAP_RETRANSMITS)
        state->next_read_slot = (state->next_read_slot + item->n_chunks) % RG_DEFERRED_SLOTS;
    return result;
}

/* Whether all of the area is device memory: nothing may be put into the stream for a transfer that then fails. */
static CUresult check_area(const struct rg_deferred_area *area)
{
    if (area->box)
        return area->bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    CUdeviceptr base = 0;
    size_t size = 0;
    const size_t last_row = (area->total / area->width - 1) * area->pitch;
    if (!rg_driver.cuMemGetAddressRange_v2)
        return CUDA_SUCCESS;
    CUresult result = rg_driver.cuMemGetAddressRange_v2(&base, &size, area->device);
    if (result != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t left = size - (size_t)(area->device - base);
    return last_row <= left && area->width <= left - last_row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_part(bool to_device, const struct rg_deferred_area *area, void *host, size_t offset,
                          size_t size, CUstream stream)
{
    if (area->box)
        return rg_region_copy_box(to_device, area->box, host, offset, size, stream);
    return rg_region_copy_rows(to_device, area->device, area->pitch, area->width, host, offset, size, stream);
}

static CUresult begin(struct rg_request *request, const struct rg_deferred_area *area, enum late_kind kind,
                      CUstream stream, struct rg_deferred_item **out)
{
    CUresult result = rg_driver.cuLaunchHostFunc ? check_area(area) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS)
        return result;
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    struct rg_worker_stream *state = context ? rg_request_stream_state(request, stream) : NULL;
    const size_t chunk = area->total < RG_DEFERRED_CHUNK ? area->total : RG_DEFERRED_CHUNK;
    struct rg_deferred_item *item =
        state ? create(request, kind, area->transfer, (area->total + chunk - 1) / chunk) : NULL;
    if (!item)
        return request->result;
    item->total = area->total;
    item->context = context;
    if (kind == DEFERRED_READ && !area->box && area->pitch == area->width)
        item->area = rg_gpudirect_pin(request->worker, context, area->device, area->total);
    item->device = (unsigned char *)(uintptr_t)area->device;
    item->chunk = chunk;
    if (!item->area)
        result = kind == RENDEZVOUS ? use_slots(request, item, context, state->rendezvous_slots, 0, stream)
                                    : use_read_slots(request, item, context, state, stream);
    if (result != CUDA_SUCCESS)
        cancel(item);
    else
        *out = item;
    return result;
}

/* The same; what is ready and not used is given up for it, if there is no other memory. */
static CUresult begin_surely(struct rg_request *request, const struct rg_deferred_area *area,
                             enum late_kind kind, CUstream stream, struct rg_deferred_item **out)
{
    CUresult result = begin(request, area, kind, stream, out);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && rg_prealloc_reclaim(request)) {
        request->result = CUDA_SUCCESS;
        result = begin(request, area, kind, stream, out);
    }
    request->told = result != CUDA_SUCCESS; /* by the notice that follows */
    return result;
}

static size_t chunk_size(const struct rg_deferred_item *item, size_t index)
{
    return index + 1 < item->n_chunks ? item->chunk : item->total - index * item->chunk;
}

/* --- rendezvous ----------------------------------------------------------------------------------------------------------- */

/* Asks for chunks up to `end`, as far as that has not been done. */
static void request(struct rg_deferred_item *item, size_t end)
{
    struct rg_worker *worker = item->worker;
    for (;;) {
        pthread_mutex_lock(&worker->deferred_lock);
        const size_t index = item->requested / item->chunk;
        const bool more = index < end && item->requested < item->total && begin_work(item);
        const size_t offset = item->requested, size = more ? chunk_size(item, index) : 0;
        item->requested += size;
        pthread_mutex_unlock(&worker->deferred_lock);
        if (!more)
            return;
        const bool advertised =
            rg_conn_advertise(worker->conn, item->id, offset, item->slots[index % RG_DEFERRED_SLOTS], size) ==
            RG_OK; /* where that helps */
        notice(item, RG_NOTICE_RENDEZVOUS, offset, size, 0);
        pthread_mutex_lock(&worker->deferred_lock);
        item->advertised |= advertised;
        rest(item);
        pthread_mutex_unlock(&worker->deferred_lock);
    }
}

/* Before the copy of chunk `index`: the copies before it are done, so their buffers can be filled again. */
static void CUDA_CB rendezvous_step(void *user)
{
    struct step *step = user;
    struct rg_deferred_item *item = step->item;
    struct rg_worker *worker = item->worker;
    const size_t end = step->index * item->chunk + chunk_size(item, step->index);
    if (rg_worker_over(worker))
        return;
    request(item, step->index + (item->n_chunks < RG_DEFERRED_SLOTS ? item->n_chunks : RG_DEFERRED_SLOTS));
    pthread_mutex_lock(&worker->deferred_lock);
    while (item->received < end && !item->gone && !rg_worker_over(worker))
        pthread_cond_wait(&item->changed, &worker->deferred_lock);
    pthread_mutex_unlock(&worker->deferred_lock);
}

/* Behind the last copy. */
static void CUDA_CB rendezvous_end(void *user)
{
    struct rg_deferred_item *item = user;
    struct rg_worker *worker = item->worker;
    pthread_mutex_lock(&worker->deferred_lock);
    if (!item->gone && !rg_worker_over(worker)) /* else its data may be on its way */
        destroy(item);
    pthread_mutex_unlock(&worker->deferred_lock);
}

CUresult rg_deferred_rendezvous(struct rg_request *request, const struct rg_deferred_area *area,
                                CUstream stream)
{
    struct rg_deferred_item *item = NULL;
    CUresult result = begin_surely(request, area, RENDEZVOUS, stream, &item);
    if (result != CUDA_SUCCESS) {
        /* The client need not keep it: a part of no bytes at the end. */
        struct rg_notice message = {
            .type = RG_NOTICE_RENDEZVOUS, .id = area->transfer, .arg = {area->total, 0, 0}};
        (void)rg_worker_notice(request->worker, &message, NULL, 0, NULL, 0);
        return result;
    }
    for (size_t i = 0; i < item->n_chunks && result == CUDA_SUCCESS; i++) {
        result = rg_driver.cuLaunchHostFunc(stream, rendezvous_step, &item->steps[i]);
        if (result == CUDA_SUCCESS)
            result = copy_part(true, area, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                               chunk_size(item, i), stream);
    }
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuLaunchHostFunc(stream, rendezvous_end, item);
    return result; /* if it failed, the item stays: steps may be in the stream */
}

/* --- deferred reads --------------------------------------------------------------------------------------------------------- */

/* From a buffer; or, since the stream waits until all of it has been sent, from where it is. */
static void send_chunk(struct rg_deferred_item *item, size_t index)
{
    const unsigned char *from =
        item->area ? item->device + index * item->chunk : item->slots[index % RG_DEFERRED_SLOTS];
    if (item->area)
        rg_gpudirect_sent(item->worker, chunk_size(item, index));
    (void)rg_worker_send_transfer(item->worker, item->id, index * item->chunk, from, chunk_size(item, index),
                                  index + 1 == item->n_chunks,
                                  item->area ? NULL : item->holds[index % RG_DEFERRED_SLOTS]);
}

/* Before the next chunk, of this deferred read or the stream's next, is copied to its slot. The lock is held, and given up. */
static void end_hold(struct rg_deferred_item *item, size_t index)
{
    struct rg_lease *hold = item->holds[(index + 1) % RG_DEFERRED_SLOTS];
    if (item->area || !hold || !begin_work(item))
        return;
    pthread_mutex_unlock(&item->worker->deferred_lock);
    rg_lease_end(hold);
    pthread_mutex_lock(&item->worker->deferred_lock);
    rest(item);
}

static void *sender_main(void *arg)
{
    struct rg_worker *worker = arg;
    pthread_mutex_lock(&worker->deferred_lock);
    while (!rg_worker_over(worker)) {
        struct rg_deferred_item *item = worker->read_first;
        if (!item) {
            pthread_cond_wait(&worker->read_wake, &worker->deferred_lock);
            continue;
        }
        const size_t index = item->sent;
        if (begin_work(item)) {
            pthread_mutex_unlock(&worker->deferred_lock);
            rg_completion_before_notice(worker);
            send_chunk(item, index);
            pthread_mutex_lock(&worker->deferred_lock);
            rest(item);
        }
        item->sent++;
        if (item->sent == item->posted) {
            worker->read_first = item->next_send;
            if (!worker->read_first)
                worker->read_last = &worker->read_first;
            item->listed = false;
        }
        pthread_cond_broadcast(&item->changed);
    }
    pthread_mutex_unlock(&worker->deferred_lock);
    return NULL;
}

/* Leaves the chunk that was posted to the sending thread; the lock is held. */
static void list_chunk(struct rg_deferred_item *item)
{
    struct rg_worker *worker = item->worker;
    if (item->listed)
        return;
    item->listed = true;
    item->next_send = NULL;
    *worker->read_last = item;
    worker->read_last = &item->next_send;
    pthread_cond_signal(&worker->read_wake);
}

/*
 * Behind the copy of chunk `index`: it can be sent; the stream goes on while buffers are left, at the end when all of it
 * has been sent. The last chunk, if all before it have left, is sent from here: the stream would wait for the sending
 * thread to do it, and of a small result that is all there is.
 */
static void CUDA_CB read_step(void *user)
{
    struct step *step = user;
    struct rg_deferred_item *item = step->item;
    struct rg_worker *worker = item->worker;
    const bool last = step->index + 1 == item->n_chunks;
    const size_t enough = last                                  ? item->n_chunks
                          : step->index + 2 > RG_DEFERRED_SLOTS ? step->index + 2 - RG_DEFERRED_SLOTS
                                                                : 0;
    pthread_mutex_lock(&worker->deferred_lock);
    item->posted++;
    /* Where the client watches events, the other thread looks first whether they have come; this one may not. */
    if (last && item->sent == step->index && !rg_completion_any(worker) && !rg_worker_over(worker) &&
        begin_work(item)) {
        pthread_mutex_unlock(&worker->deferred_lock);
        send_chunk(item, step->index);
        pthread_mutex_lock(&worker->deferred_lock);
        rest(item);
        item->sent++;
    } else {
        list_chunk(item);
    }
    while (item->sent < enough && !rg_worker_over(worker))
        pthread_cond_wait(&item->changed, &worker->deferred_lock);
    if (item->sent >= enough)
        end_hold(item, step->index);
    if (last && item->sent == item->n_chunks)
        destroy(item);
    pthread_mutex_unlock(&worker->deferred_lock);
}

static bool start_sender(struct rg_worker *worker)
{
    if (!worker->read_thread_runs)
        worker->read_thread_runs =
            rg_thread_create(&worker->read_thread, "rg-landing", sender_main, worker) == RG_OK;
    return worker->read_thread_runs;
}

CUresult rg_deferred_read(struct rg_request *request, const struct rg_deferred_area *area, CUstream stream)
{
    struct rg_deferred_item *item = NULL;
    CUresult result = start_sender(request->worker)
                          ? begin_surely(request, area, DEFERRED_READ, stream, &item)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        request->told = true;
        struct rg_notice message = {.type = RG_NOTICE_DEFERRED_READ, .id = area->transfer, .arg = {0, 0, 1}};
        (void)rg_worker_notice(request->worker, &message, NULL, 0, NULL, 0);
        return result;
    }
    const size_t n_chunks = item->n_chunks; /* the last step frees the item */
    for (size_t i = 0; i < n_chunks && result == CUDA_SUCCESS; i++) {
        if (!item->area)
            result = copy_part(false, area, item->slots[i % RG_DEFERRED_SLOTS], i * item->chunk,
                               chunk_size(item, i), stream);
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuLaunchHostFunc(stream, read_step, &item->steps[i]);
    }
    return result;
}

/* --- answers ----------------------------------------------------------------------------------------------------------- */

static bool host_call_done(struct rg_worker *worker, uint64_t id)
{
    pthread_mutex_lock(&worker->deferred_lock);
    struct rg_deferred_item *item = find(worker, id);
    const bool good = item && item->kind == HOST_CALL && item->due && !item->answered;
    if (good) {
        item->answered = true;
        pthread_cond_signal(&item->changed);
    }
    pthread_mutex_unlock(&worker->deferred_lock);
    if (good)
        atomic_fetch_sub(&worker->answers_due, 1);
    return good;
}

/* Whether the client has nothing more to send for a rendezvous; the lock is held. */
static bool has_all(const struct rg_deferred_item *item)
{
    return item->received == (item->gone ? item->requested : item->total);
}

/* Data of a rendezvous comes in order, in parts that lie within what was asked for. */
static bool data(struct rg_worker *worker, const struct rg_answer *answer, size_t bulk_size)
{
    const uint64_t offset = answer->arg[0], size = answer->arg[1];
    pthread_mutex_lock(&worker->deferred_lock);
    struct rg_deferred_item *item = find(worker, answer->id);
    bool good = item && item->kind == RENDEZVOUS && size == bulk_size && size && offset == item->received &&
                size <= item->requested - item->received &&
                size <= item->chunk - item->received % item->chunk;
    const bool wanted = good && begin_work(item);
    pthread_mutex_unlock(&worker->deferred_lock);
    if (!good)
        return false;
    /* The item cannot go away while this part of it is missing; nor can a buffer that is lent. */
    unsigned char *slot = item->slots[offset / item->chunk % RG_DEFERRED_SLOTS];
    const bool came =
        rg_conn_recv_bulk(worker->conn, wanted ? slot + offset % item->chunk : NULL, size) == RG_OK;
    if (came && offset % item->chunk + size == chunk_size(item, offset / item->chunk))
        rg_conn_withdraw(worker->conn, item->id, slot);
    pthread_mutex_lock(&worker->deferred_lock);
    item->received += came ? size : 0;
    const bool all = came && has_all(item);
    if (wanted)
        rest(item);
    else
        pthread_cond_broadcast(&worker->deferred_settled);
    pthread_cond_signal(&item->changed);
    pthread_mutex_unlock(&worker->deferred_lock);
    if (!came)
        rg_worker_end(worker, 0, NULL);
    if (all)
        atomic_fetch_sub(&worker->answers_due, 1);
    return true;
}

static bool shared(struct rg_worker *worker, const struct rg_message *message, const struct rg_answer *answer)
{
    struct rg_message_header header;
    memcpy(&header, message->data, sizeof header);
    return rg_managed_answer(worker, &header, answer, message->bulk_size);
}

void rg_deferred_answer(struct rg_worker *worker, const struct rg_message *message)
{
    struct rg_answer answer;
    bool good = message->size == sizeof(struct rg_message_header) + sizeof answer;
    if (good) {
        memcpy(&answer, (const unsigned char *)message->data + sizeof(struct rg_message_header),
               sizeof answer);
        if (answer.type == RG_ANSWER_HOST_DONE)
            good = message->bulk_size == 0 && host_call_done(worker, answer.id);
        else if (answer.type == RG_ANSWER_MANAGED_IN || answer.type == RG_ANSWER_MANAGED_OUT)
            good = shared(worker, message, &answer);
        else if (answer.type == RG_ANSWER_RECLAIMED)
            good = rg_prealloc_answer(worker, &answer, message->bulk_size);
        else if (answer.type == RG_ANSWER_TIMES)
            good = rg_times_answer(worker, &answer, message->bulk_size);
        else
            good =
                answer.type == RG_ANSWER_DATA && (rg_image_answer(worker, &answer, message->bulk_size, &good)
                                                      ? good
                                                      : data(worker, &answer, message->bulk_size));
    }
    if (!good)
        rg_worker_end(worker, 1, "protocol violation: an answer to nothing that was asked");
}

/* --- the end of contexts ------------------------------------------------------------------------------------------------- */

/* The lock is held, and nobody is at work on the item. */
static void abandon(struct rg_deferred_item *item)
{
    rg_gpudirect_unpin(item->worker, item->area);
    item->area = NULL;
    if (item->kind == RENDEZVOUS && item->received != item->total && has_all(item))
        atomic_fetch_sub(&item->worker->answers_due, 1);
    item->context = NULL;
    pthread_cond_broadcast(&item->changed);
}

/* Whether something may still touch the item's buffers: a thread, or the client's device. The lock is held. */
static bool is_used(const struct rg_deferred_item *item)
{
    return item->at_work ||
           (item->advertised && item->received < item->requested && !rg_worker_over(item->worker));
}

void rg_deferred_drop_context(struct rg_worker *worker, const struct rg_worker_context *context)
{
    pthread_mutex_lock(&worker->deferred_lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct rg_deferred_item *item = worker->deferred[i]; item;) {
            item->gone |= item->context == context;
            if (item->context == context && is_used(item)) {
                pthread_cond_wait(&worker->deferred_settled, &worker->deferred_lock);
                item = worker->deferred[i]; /* the list may have changed */
                continue;
            }
            if (item->context == context)
                abandon(item);
            item = item->next;
        }
    pthread_mutex_unlock(&worker->deferred_lock);
}

/* --- beginning and end --------------------------------------------------------------------------------------------------- */

void rg_deferred_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->deferred_lock, NULL);
    pthread_cond_init(&worker->read_wake, NULL);
    pthread_cond_init(&worker->deferred_settled, NULL);
    worker->read_last = &worker->read_first;
}

void rg_deferred_wake(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->deferred_lock);
    pthread_cond_broadcast(&worker->read_wake);
    pthread_cond_broadcast(&worker->deferred_settled);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct rg_deferred_item *item = worker->deferred[i]; item; item = item->next)
            pthread_cond_broadcast(&item->changed);
    pthread_mutex_unlock(&worker->deferred_lock);
}

void rg_deferred_fini(struct rg_worker *worker)
{
    if (worker->read_thread_runs)
        pthread_join(worker->read_thread, NULL);
    pthread_mutex_lock(&worker->deferred_lock);
    for (size_t i = 0; i < BUCKETS; i++)
        while (worker->deferred[i])
            destroy(worker->deferred[i]);
    pthread_mutex_unlock(&worker->deferred_lock);
    pthread_cond_destroy(&worker->read_wake);
    pthread_cond_destroy(&worker->deferred_settled);
    pthread_mutex_destroy(&worker->deferred_lock);
}
