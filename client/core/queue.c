/*
 * queue.c - batches, the sender thread, and the life of one record (call.h).
 *
 * Locks of a session, in this order: send_lock (the right to send, held across system calls), then lock (the current batch). Two
 * batches exist: one collects while the other is being sent. A batch with bulk data is closed: the memory belongs to
 * a caller who waits in rg_call_post_bulk until it has left.
 */
#include "client/core/queue.h"

#include "client/api/context.h"
#include "client/api/device.h"
#include "client/core/future.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "client/prealloc/prealloc.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/tuning.h"
#include "common/base/uncancelled.h"
#include "proto/delta.h"
#include "proto/wire.h"
#include "transport/resumable/resumable.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_SIZE     (RG_MESSAGE_MAX - RG_RESUMABLE_HEADER - RG_DELTA_GROWTH)
#define CONTEXT_RECORD (sizeof(struct rg_record) + 8) /* rgLaneSetContext */
#define SHORT_WAIT_NS  5000000
#define DELTA_LEAST    64u /* bytes of records; fewer are sent as they are */

__thread bool rg_per_thread_default_stream;

static void reset(struct rg_batch *batch)
{
    batch->used = sizeof(struct rg_message_header);
    batch->count = 0;
    batch->bulk = NULL;
}

static void lost_sending(struct rg_session *session, enum rg_status status)
{
    rg_receiver_last_words(session);
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "lost the connection to %s while sending (%s)",
                   session->server, rg_status_string(status));
}

/* Has the records of a batch sent as what differs from earlier ones. False: they are to be sent as they are. */
static bool encode_batch(struct rg_session *session, const struct rg_batch *batch, size_t *size)
{
    struct rg_queue *queue = &session->queue;
    const size_t head = sizeof(struct rg_message_header);
    if (batch->used < head + DELTA_LEAST || !rg_optimise[RG_OPT_DELTA] ||
        !(session->hello.capabilities & RG_CONTROL_CAP_DELTA))
        return false;
    if (!queue->delta)
        queue->delta = rg_delta_create();
    if (!queue->encoded)
        queue->encoded = malloc(BATCH_SIZE + RG_DELTA_GROWTH);
    if (!queue->delta || !queue->encoded)
        return false;
    *size =
        head + rg_delta_encode(queue->delta, batch->data + head, batch->used - head, queue->encoded + head);
    session->stats.repeated_bytes += batch->used > *size ? batch->used - *size : 0;
    return true;
}

/* Sends the taken batch; the send lock is held. */
static void send_batch(struct rg_session *session, struct rg_batch *batch)
{
    size_t size = batch->used;
    const bool encoded = encode_batch(session, batch, &size);
    unsigned char *data = encoded ? session->queue.encoded : batch->data;
    struct rg_message_header header = {
        .kind = encoded ? RG_MESSAGE_DELTA : RG_MESSAGE_BATCH,
        .version = RG_PROTOCOL_MAJOR,
        .count = batch->count,
        .seq = batch->first_seq,
        .ack = session->stats.received_messages,
    };
    memcpy(data, &header, sizeof header);
    struct iovec message = {data, size};
    struct rg_bulk_send *way = batch->bulk;
    struct rg_send small = {0}, *send = way ? &way->send : &small;
    send->msg = &message;
    send->n_msg = 1;
    const enum rg_status status = rg_conn_send(session->conn, send);
    session->stats.sent_bytes += size + send->bulk_size;
    session->stats.sent_messages++;
    if (way)
        way->status = status;
    if (status != RG_OK && status != RG_ERR_FAULT)
        lost_sending(session, status);
}

/* Sends what has been appended, without `bulk` not with bulk data, whose owner does; the send lock is held, and released. */
static void flush_locked(struct rg_session *session, bool bulk)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_lock(&queue->lock);
    struct rg_batch *batch = queue->current;
    if (batch->count == 0 || (batch->bulk && !bulk)) {
        pthread_mutex_unlock(&queue->lock);
        pthread_mutex_unlock(&queue->send_lock);
        return;
    }
    queue->current = batch == &queue->batches[0] ? &queue->batches[1] : &queue->batches[0];
    pthread_mutex_unlock(&queue->lock);
    if (atomic_load(&session->ended) == CUDA_SUCCESS)
        send_batch(session, batch);
    else if (batch->bulk)
        batch->bulk->status = RG_ERR_CLOSED;
    reset(batch); /* before the send lock is released: the other may then be taken and this one filled */
    pthread_mutex_unlock(&queue->send_lock);
}

void rg_queue_flush(struct rg_session *session)
{
    RG_UNCANCELLED;
    pthread_mutex_lock(&session->queue.send_lock);
    flush_locked(session, true);
}

/* Wakes the sender, which somebody has found asleep. */
static void signal_sender(struct rg_session *session)
{
    atomic_fetch_add_explicit(&session->stats.sender_wakes, 1, memory_order_relaxed);
    pthread_cond_signal(&session->queue.sender_wake);
}

/*
 * Sees to it that the record `seq`, whose reply the caller is about to wait for, leaves: by this thread if nobody sends, by
 * who sends just now if it was taken along, else by the sender. To wait for the right to send would be to wait for a
 * worker that may be waiting itself, until somebody reads what it sends: and who waits for a reply is the one to read.
 */
static void send_awaited(struct rg_session *session, uint64_t seq)
{
    RG_UNCANCELLED;
    struct rg_queue *queue = &session->queue;
    if (pthread_mutex_trylock(&queue->send_lock) == 0) {
        flush_locked(session, false);
        return;
    }
    pthread_mutex_lock(&queue->lock);
    const bool taken = queue->current->count == 0 || queue->current->first_seq > seq;
    const bool wake = !taken && queue->sender_sleeping;
    if (wake)
        queue->sender_sleeping = false;
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        signal_sender(session);
}

/*
 * A record was posted on a wire that nobody sends on. To wake the sender costs the caller about what sending costs, and
 * the record as much again until that thread runs, or much more where this one keeps the only core busy. So the caller
 * sends, unless it has just done so: those that come in a burst are better collected. "Just" is a multiple of what
 * sending took, which bounds the share of a caller's time that goes into it by itself, on any wire. A thread that has just
 * waited has spent more than that: its first records after it are no burst yet.
 */
static void send_on_idle_wire(struct rg_session *session, struct rg_thread *thread)
{
    RG_UNCANCELLED;
    struct rg_queue *queue = &session->queue;
    const uint64_t began = rg_now_ns();
    const bool fresh = thread->sends_after_wait > 0;
    thread->sends_after_wait -= fresh;
    if (rg_optimise[RG_OPT_DIRECT] &&
        (fresh || began >= atomic_load_explicit(&queue->next_direct, memory_order_relaxed)) &&
        pthread_mutex_trylock(&queue->send_lock) == 0) {
        flush_locked(session, false);
        atomic_fetch_add_explicit(&session->stats.direct_messages, 1, memory_order_relaxed);
        const uint64_t now = rg_now_ns();
        atomic_store_explicit(&queue->next_direct, now + RG_INLINE_SEND_SHARE * (now - began),
                              memory_order_relaxed);
        return;
    }
    pthread_mutex_lock(&queue->lock);
    const bool wake = queue->sender_sleeping && queue->current->count;
    if (wake)
        queue->sender_sleeping = false;
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        signal_sender(session);
}

enum rg_status rg_queue_answer(struct rg_session *session, const struct rg_answer *answer,
                               const struct iovec *bulk, int n_bulk, struct rg_lease *hold)
{
    struct rg_queue *queue = &session->queue;
    struct rg_message_header header = {.kind = RG_MESSAGE_ANSWER,
                                       .version = RG_PROTOCOL_MAJOR,
                                       .count = 1,
                                       .ack = session->stats.received_messages};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)answer, sizeof *answer}};
    pthread_mutex_lock(&queue->lock);
    header.seq = queue->next_seq - 1;
    pthread_mutex_unlock(&queue->lock);
    /* the worker may have lent memory for the data of a pull */
    const uint64_t tag = answer->type == RG_ANSWER_DATA ? answer->id : 0, base = tag ? answer->arg[0] : 0;
    struct rg_send send = {.msg = parts,
                           .n_msg = 2,
                           .bulk = bulk,
                           .n_bulk = n_bulk,
                           .tag = tag,
                           .base = base,
                           .lease = hold,
                           .detachable = true};
    pthread_mutex_lock(&queue->send_lock);
    enum rg_status status =
        atomic_load(&session->ended) == CUDA_SUCCESS ? rg_conn_send(session->conn, &send) : RG_ERR_CLOSED;
    session->stats.sent_messages++;
    session->stats.sent_bytes += sizeof header + sizeof *answer + send.bulk_size;
    pthread_mutex_unlock(&queue->send_lock);
    if (send.detached)
        status = rg_conn_send_detached(session->conn, &send);
    if (status != RG_OK && status != RG_ERR_FAULT && status != RG_ERR_CLOSED)
        lost_sending(session, status);
    return status;
}

void rg_queue_wake_sender(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_lock(&queue->lock);
    queue->sender_has_pulls = true;
    queue->sender_sleeping = false;
    signal_sender(session);
    pthread_mutex_unlock(&queue->lock);
}

/* The sender has nothing to send: sleeps, and sees to what is due after a while. The lock is held. */
static void sleep_until_needed(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    if (!rg_prealloc_any(session)) {
        pthread_cond_wait(&queue->sender_wake, &queue->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += RG_PREALLOC_AGE_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&queue->sender_wake, &queue->lock, &until) != ETIMEDOUT)
        return;
    pthread_mutex_unlock(&queue->lock);
    rg_receiver_poll(session); /* the worker may ask for what is ready while nobody else reads */
    rg_prealloc_answer_reclaim(session);
    rg_prealloc_age(session);
    pthread_mutex_lock(&queue->lock);
}

static void *sender_main(void *argument)
{
    struct rg_session *session = argument;
    struct rg_queue *queue = &session->queue;
    rg_thread_expect_little();
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->current->count == 0 && !queue->sender_has_pulls) {
            queue->sender_sleeping = true;
            sleep_until_needed(session);
        }
        queue->sender_sleeping = false;
        queue->sender_has_pulls = false;
        pthread_mutex_unlock(&queue->lock);
        rg_prealloc_answer_reclaim(session);
        while (rg_rendezvous_send_next(session))
            rg_queue_flush(session); /* between two pieces */
        rg_queue_flush(session);
        pthread_mutex_lock(&queue->lock);
    }
    return NULL;
}

enum rg_status rg_queue_start(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_init(&queue->send_lock, NULL);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->sender_wake, NULL);
    queue->current = &queue->batches[0];
    queue->next_seq = 1;
    for (int i = 0; i < 2; i++) {
        queue->batches[i].data = malloc(BATCH_SIZE);
        if (!queue->batches[i].data)
            return RG_ERR_NO_MEMORY;
        reset(&queue->batches[i]);
    }
    return rg_thread_start("rg-sender", sender_main, session);
}

enum rg_status rg_thread_start(const char *name, void *(*main)(void *), void *argument)
{
    pthread_t thread;
    enum rg_status status = rg_thread_create(&thread, name, main, argument);
    if (status == RG_OK)
        pthread_detach(thread);
    return status;
}

/* --- one call ---------------------------------------------------------------------------------------- */

/* Finds the session of a call that names something of another server, and the context to use there. */
static CUresult bind_to_owner(struct rg_call *call, unsigned flags, uint64_t owner)
{
    struct rg_session *session = owner ? rg_home_session(owner) : call->thread->target;
    if (!session || session == call->session)
        return CUDA_SUCCESS;
    call->session = session;
    if (!(flags & RG_CALL_CONTEXT))
        return CUDA_SUCCESS;
    call->context = owner > rg_n_sessions ? owner : atomic_load(&session->context);
    return rg_handle_shadow(RG_KIND_CONTEXT, call->context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Fills in thread, session and context of a call, or returns the error it must return. */
static CUresult bind(struct rg_call *call, unsigned flags, uint64_t owner)
{
    CUresult ended = atomic_load_explicit(&rg_sessions_ended, memory_order_acquire);
    if (ended != CUDA_SUCCESS)
        return ended;
    struct rg_thread *thread = rg_thread_current();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->host_call)
        return CUDA_ERROR_NOT_PERMITTED;
    const uint64_t context = rg_thread_context(thread);
    const struct rg_shadow *shadow = context ? rg_handle_shadow(RG_KIND_CONTEXT, context) : NULL;
    call->thread = thread;
    call->session = shadow ? shadow->context.session : &rg_sessions[0];
    call->context = flags & RG_CALL_CONTEXT ? context : 0;
    if (flags & RG_CALL_CONTEXT) {
        if (atomic_load_explicit(&rg_contexts_suspect, memory_order_relaxed))
            rg_context_find_failed();
        CUresult sticky =
            shadow ? atomic_load_explicit(&shadow->context.sticky, memory_order_relaxed) : CUDA_SUCCESS;
        if (sticky != CUDA_SUCCESS)
            return sticky;
        if (!shadow)
            return context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    }
    return owner || thread->target ? bind_to_owner(call, flags, owner) : CUDA_SUCCESS;
}

CUresult rg_call_allowed(unsigned flags)
{
    struct rg_call call;
    CUresult status = bind(&call, flags, 0);
    if (status == CUDA_SUCCESS && (flags & RG_CALL_CONTEXT))
        status = atomic_load_explicit(&call.session->ended, memory_order_acquire);
    return status;
}

CUresult rg_call_allowed_anywhere(void)
{
    const CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    return status == CUDA_ERROR_INVALID_CONTEXT || status == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? rg_call_allowed(0)
               : status;
}

bool rg_call_stands_aside(const struct rg_session *session)
{
    return (session->hello.capabilities & RG_CONTROL_CAP_AWAITED) && rg_thread_has_others();
}

bool rg_call_waits_are_short(const struct rg_session *session)
{
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed);
    return quickest > 0 && quickest < SHORT_WAIT_NS;
}

void rg_call_sets_home(const struct rg_call *call, uint64_t handle)
{
    if (call->context || rg_several_servers())
        rg_handle_set_home(handle, call->context ? call->context : call->session->number + 1u);
}

CUdevice rg_call_device(const struct rg_call *call, CUdevice device)
{
    return rg_several_servers() ? rg_device_there(call->session, device) : device;
}

void rg_call_place(const struct rg_call *call, size_t size, size_t count, size_t offset)
{
    for (size_t i = 1; i <= count && rg_several_servers(); i++) {
        CUmemLocation location;
        unsigned char *at = call->writer.at - i * size + offset;
        memcpy(&location, at, sizeof location);
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            location.id = rg_device_there(call->session, location.id);
        memcpy(at, &location, sizeof location);
    }
}

/* Appends a record's header to the current batch, which has room; the lock is held. */
static unsigned char *append(struct rg_queue *queue, const struct rg_thread *thread, uint16_t number,
                             uint32_t size)
{
    unsigned char *at = queue->current->data + queue->current->used;
    struct rg_record record = {.size = size, .op = number, .thread = thread->number};
    memcpy(at, &record, sizeof record);
    if (queue->current->count == 0)
        queue->current->first_seq = queue->next_seq;
    queue->next_seq++;
    queue->current->count++;
    queue->current->used += size;
    return at;
}

/* Held while records that belong together are put into several streams, and while a call that blocks is put. */
static pthread_mutex_t together = PTHREAD_MUTEX_INITIALIZER;

void rg_calls_together_begin(void)
{
    pthread_mutex_lock(&together);
}

void rg_calls_together_end(void)
{
    pthread_mutex_unlock(&together);
}

CUresult rg_call_begin(struct rg_call *call, enum rg_op op, size_t size, unsigned flags, uint64_t owner)
{
    CUresult status = bind(call, flags, owner);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_thread *thread = call->thread;
    struct rg_session *session = call->session;
    struct rg_queue *queue = &session->queue;
    CUresult ended = atomic_load_explicit(&session->ended, memory_order_acquire);
    if (ended != CUDA_SUCCESS)
        return ended;
    const uint16_t number = session->op_numbers[op];
    if (!number)
        return rg_unsupported(rg_op_names[op]);
    if (size > BATCH_SIZE - sizeof(struct rg_message_header) - CONTEXT_RECORD - sizeof(struct rg_record) - 8)
        return CUDA_ERROR_INVALID_VALUE;
    const uint32_t record_size = (uint32_t)((sizeof(struct rg_record) + size + 7) & ~(size_t)7);

    bool sharing = false;
    if (flags & RG_CALL_WORK) {
        status = rg_unified_begin_work(op == RG_OP_rgLaunch || op == RG_OP_rgGraphRun, &sharing);
        if (status != CUDA_SUCCESS)
            return status;
    }
    const bool stays = (flags & RG_CALL_BLOCKS) && rg_timeline_blocks_on_context(rg_thread_context(thread));
    const bool blocks = (flags & RG_CALL_BLOCKS) && rg_several_servers();
    const bool aside = (flags & RG_CALL_COMPILES) && rg_call_stands_aside(session);
    if (blocks)
        pthread_mutex_lock(&together);
    pthread_mutex_lock(&queue->lock);
    while (queue->current->bulk || queue->current->used + record_size + CONTEXT_RECORD > BATCH_SIZE) {
        pthread_mutex_unlock(&queue->lock);
        const uint64_t since = rg_probe_wait();
        rg_queue_flush(session);
        rg_probe_waited(since, 0);
        pthread_mutex_lock(&queue->lock);
    }
    if (call->context && thread->at[session->number].sent_context != call->context) {
        unsigned char *at =
            append(queue, thread, session->op_numbers[RG_OP_rgLaneSetContext], CONTEXT_RECORD);
        memcpy(at + sizeof(struct rg_record), &call->context, sizeof call->context);
        thread->at[session->number].sent_context = call->context;
        atomic_store_explicit(&session->context, call->context, memory_order_relaxed);
    }
    thread->at[session->number].announced = true;
    session->stats.calls++;
    thread->position = rg_timeline_submit(&session->timeline, op, flags);
    call->op = (uint16_t)op;
    call->lasts = flags & RG_CALL_LASTS;
    call->stays = stays;
    call->aside = aside;
    call->size = record_size;
    call->record = append(queue, thread, number, record_size);
    call->writer.at = call->record + sizeof(struct rg_record);
    if (blocks) /* its place is taken */
        pthread_mutex_unlock(&together);
    rg_probe_post(op, queue->next_seq - 1, record_size);
    if (sharing)
        rg_unified_end_work();
    if (size)
        memset(call->record + record_size - 8, 0, 8); /* padding; the parameters overwrite what is theirs */
    return CUDA_SUCCESS;
}

/* Sends the call and waits for its reply; returns what became of this very call. */
static CUresult wait_for_reply(struct rg_call *call)
{
    struct rg_session *session = call->session;
    struct rg_queue *queue = &session->queue;
    struct rg_waiter *waiter = &call->thread->waiter;
    const uint32_t token = rg_thread_token(call->thread);
    memcpy(call->record + offsetof(struct rg_record, token), &token, sizeof token);
    if (call->aside)
        memcpy(call->record + offsetof(struct rg_record, flags), &(uint16_t){RG_RECORD_AWAITED},
               sizeof(uint16_t));
    rg_receiver_prepare(session, waiter, token);
    session->stats.round_trips++;
    const uint64_t seq = queue->next_seq - 1;
    const bool bulk = queue->current->bulk != NULL; /* the caller's memory, until it has left */
    pthread_mutex_unlock(&queue->lock);
    const uint64_t began = rg_now_ns();
    if (bulk)
        rg_queue_flush(session);
    else
        send_awaited(session, seq);
    rg_receiver_wait(session, waiter);
    call->thread->sends_after_wait = RG_INLINE_SEND_AFTER_WAIT;
    const uint64_t waited = rg_now_ns() - began;
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&session->stats.waited_ns, waited, memory_order_relaxed);
    if (quickest == 0 || waited < quickest)
        atomic_store_explicit(&session->quickest_ns, waited, memory_order_relaxed);
    rg_probe_bytes(0, waiter->received);
    rg_probe_waited(began, 1);
    call->reply = rg_reader_of(waiter->output, waiter->size);
    CUresult result = waiter->result;
    if (rg_error_is_sticky(result))
        atomic_store(&rg_contexts_suspect, true);
    if (result == CUDA_SUCCESS)
        rg_unified_settle();
    return result;
}

/* Releases the lock behind a record that nobody waits for, and sees to it that the record is sent. */
static void leave_in_batch(struct rg_session *session, struct rg_thread *thread)
{
    struct rg_queue *queue = &session->queue;
    if (!rg_optimise[RG_OPT_BATCH]) {
        pthread_mutex_unlock(&queue->lock);
        rg_queue_flush(session);
        return;
    }
    const bool idle = queue->sender_sleeping;
    pthread_mutex_unlock(&queue->lock);
    if (idle)
        send_on_idle_wire(session, thread);
}

/*
 * A call that is only posted returns nobody else's error, with and without the optimisation: its caller undoes what it
 * registered for a record that failed, and must not where the worker has taken it.
 */
CUresult rg_call_post(struct rg_call *call)
{
    if (!rg_optimise[RG_OPT_ASYNC] || call->stays) {
        CUresult status = wait_for_reply(call);
        rg_call_done(call);
        return status;
    }
    leave_in_batch(call->session, call->thread);
    return CUDA_SUCCESS;
}

/* Bulk data whose batch has left: without any lock, so that others' batches leave meanwhile. */
static enum rg_status send_after(struct rg_session *session, struct rg_send *send)
{
    RG_UNCANCELLED;
    enum rg_status status = rg_conn_send_detached(session->conn, send);
    if (status != RG_OK && status != RG_ERR_FAULT)
        lost_sending(session, status);
    return status;
}

CUresult rg_call_post_bulk(struct rg_call *call, const struct iovec *bulk, int n_bulk)
{
    struct rg_session *session = call->session;
    struct rg_queue *queue = &session->queue;
    struct rg_bulk_send way = {.send = {.bulk = bulk,
                                        .n_bulk = n_bulk,
                                        .lease = call->thread->hold,
                                        .detachable = rg_optimise[RG_OPT_ASYNC]}};
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < n_bulk; i++)
        rg_probe_bytes(bulk[i].iov_len, 0);
    if (n_bulk)
        queue->current->bulk = &way;
    if (rg_optimise[RG_OPT_ASYNC]) {
        pthread_mutex_unlock(&queue->lock);
        const uint64_t since = rg_probe_wait();
        rg_queue_flush(
            session); /* by this thread or one before it: when the send lock was ours, the batch has left */
        if (way.send.detached)
            way.status = send_after(session, &way.send);
        rg_probe_waited(since, 0);
    } else {
        result = wait_for_reply(call);
        rg_call_done(call);
    }
    if (way.status == RG_ERR_FAULT)
        return CUDA_ERROR_INVALID_VALUE;
    return way.status == RG_OK ? result : atomic_load(&session->ended);
}

void rg_call_begin_lease(struct rg_lease *hold)
{
    struct rg_thread *thread = rg_thread_current();
    if (thread)
        thread->hold = hold;
}

void rg_call_end_lease(struct rg_lease *hold)
{
    struct rg_thread *thread = rg_thread_current();
    if (thread)
        thread->hold = NULL;
    if (rg_lease_ended(hold))
        return;
    rg_receiver_poll(rg_session_current()); /* acknowledgements may stand behind what else has come */
    rg_lease_end(hold);
}

void rg_call_expect_bulk(void *memory, size_t pitch, size_t width, size_t height)
{
    struct rg_thread *thread = rg_thread_current();
    if (!thread)
        return;
    struct rg_waiter *waiter = &thread->waiter;
    waiter->bulk = memory;
    waiter->bulk_pitch = pitch;
    waiter->bulk_width = width;
    waiter->bulk_height = height;
}

CUresult rg_call_wait_own(struct rg_call *call)
{
    struct rg_future *future = rg_future_takes(call->thread, call->op);
    if (future) {
        const uint32_t token = rg_future_prepare(future, call->session);
        memcpy(call->record + offsetof(struct rg_record, token), &token, sizeof token);
        leave_in_batch(call->session, call->thread);
        call->reply = rg_reader_of(NULL, 0);
        call->thread = NULL; /* there is nothing to release */
        return CUDA_SUCCESS;
    }
    return wait_for_reply(call);
}

CUresult rg_call_wait(struct rg_call *call)
{
    const CUresult result = rg_call_wait_own(call);
    const bool waited = call->thread != NULL;
    return result == CUDA_SUCCESS && waited ? rg_session_take_latched(call->session) : result;
}

void rg_call_done(struct rg_call *call)
{
    if (!call->thread)
        return; /* it was never sent */
    struct rg_waiter *waiter = &call->thread->waiter;
    if (waiter->output != waiter->small)
        free(waiter->output);
    waiter->output = waiter->small;
    waiter->size = 0;
    waiter->bulk = NULL;
}

void rg_call_output(struct rg_call *call, void *to, size_t size)
{
    const void *data = rg_get(&call->reply, size);
    if (data && to)
        memcpy(to, data, size);
}

CUresult rg_call_outputs_read(struct rg_call *call)
{
    if (!call->reply.bad)
        return CUDA_SUCCESS;
    struct rg_session *session = call->session;
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s answered %s with too few bytes",
                   session->server, rg_op_names[call->op]);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}
