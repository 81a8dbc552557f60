/*
 * queue.c - batches and the sender thread.
 *
 * Locks of a session, in this order: send_lock (the right to send, held across system calls), then lock (the
 * current batch). Two batches exist: one collects while the other is being sent. A batch with bulk data is
 * closed: the memory belongs to a caller who waits in rg_call_post_bulk until it has left.
 */
#include "client/core/queue.h"

#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "client/core/thread.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/tuning.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "proto/delta.h"
#include "proto/wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DELTA_LEAST 64u /* bytes of records; fewer are sent as they are */

/*
 * How long the sender rests, in ns: after the first message of a burst a part of the quickest round trip, but not at all where that is too
 * short to sleep for; then twice as long each time.
 */
enum { REST_SHARE = 4, REST_LEAST = 15000, REST_FIRST = 20000, REST_MOST = 100000 };

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

/*
 * Has the records of a batch sent as what differs from earlier ones. False: they are to be sent as they are.
 */
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
        queue->encoded = malloc(RG_BATCH_SIZE + RG_DELTA_GROWTH);
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

/*
 * Sends what has been appended, without `bulk` not with bulk data, whose owner does; the send lock is held,
 * and released.
 */
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
    if (rg_session_lives(session))
        send_batch(session, batch);
    else if (batch->bulk)
        batch->bulk->status = RG_ERR_CLOSED;
    reset(batch); /* before the send lock is released: the other may then be taken and this one filled */
    pthread_mutex_unlock(&queue->send_lock);
}

void rg_queue_flush(struct rg_session *session)
{
    RG_UNCANCELLED;
    RG_THREAD_INSIDE(NULL);
    pthread_mutex_lock(&session->queue.send_lock);
    flush_locked(session, true);
}

/* The sender, which somebody has found asleep. */
static void signal_sender(struct rg_session *session)
{
    atomic_fetch_add_explicit(&session->stats.sender_wakes, 1, memory_order_relaxed);
    pthread_cond_signal(&session->queue.sender_wake);
}

/* Wakes the sender if it sleeps or rests and what was appended up to `seq` has not been taken. */
static void wake_sender_for(struct rg_session *session, uint64_t seq)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_lock(&queue->lock);
    const bool idle = queue->sender_sleeping || queue->sender_rests;
    const bool wake = idle && queue->current->count && queue->current->first_seq <= seq;
    if (wake)
        queue->sender_sleeping = false;
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        signal_sender(session);
}

void rg_queue_leave_awaited(struct rg_session *session)
{
    RG_UNCANCELLED;
    RG_THREAD_INSIDE(NULL);
    struct rg_queue *queue = &session->queue;
    const uint64_t seq = queue->next_seq - 1;
    const bool bulk = queue->current->bulk != NULL;
    pthread_mutex_unlock(&queue->lock);
    if (bulk)
        rg_queue_flush(session);
    else if (pthread_mutex_trylock(&queue->send_lock) == 0)
        flush_locked(session, false);
    else
        wake_sender_for(session, seq);
    atomic_fetch_add_explicit(&queue->waiters, 1, memory_order_relaxed);
}

void rg_queue_answered(struct rg_session *session)
{
    atomic_fetch_sub_explicit(&session->queue.waiters, 1, memory_order_relaxed);
}

void rg_queue_send_polled(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    if (!atomic_load_explicit(&queue->sender_rests, memory_order_relaxed))
        return;
    RG_UNCANCELLED;
    RG_THREAD_INSIDE(NULL);
    if (pthread_mutex_trylock(&queue->send_lock) == 0)
        flush_locked(session, false);
}

void rg_queue_lock_for(struct rg_session *session, size_t size)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_lock(&queue->lock);
    while (queue->current->bulk || queue->current->used + size > RG_BATCH_SIZE) {
        pthread_mutex_unlock(&queue->lock);
        const uint64_t since = rg_probe_wait();
        rg_queue_flush(session);
        rg_probe_waited(since, 0);
        pthread_mutex_lock(&queue->lock);
    }
}

unsigned char *rg_queue_append(struct rg_queue *queue, const struct rg_thread *thread, uint16_t number,
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

/*
 * Whether a thread that has posted so many records since it waited for a reply sends by itself. The first ones are no burst yet; of one
 * that goes on the beginning should be at the device before another thread has been woken to send it. Not where that thread was quicker,
 * or the device has to do for others who wait. The lock is held.
 */
static bool is_fresh(struct rg_queue *queue, unsigned posted)
{
    return rg_inline_sends_at(posted) &&
           (posted <= 2 || (queue->current->count >= posted / 2 &&
                            atomic_load_explicit(&queue->waiters, memory_order_relaxed) == 0));
}

/*
 * Who leaves the queue where nobody sends has posted a record on an idle wire. To wake the sender costs the caller about what sending
 * costs, and the record as much again until that thread runs, or much more where this one keeps the only core busy. So the caller
 * sends, unless it has just done so: those that come in a burst are better collected. "Just" is a multiple of what sending took, which
 * bounds the share of a caller's time that goes into it by itself, on any wire. A thread that has just waited has spent more than that
 * (is_fresh).
 */
void rg_queue_leave(struct rg_session *session, struct rg_thread *thread)
{
    struct rg_queue *queue = &session->queue;
    const bool idle = queue->sender_sleeping;
    const bool fresh = is_fresh(queue, ++thread->posted);
    pthread_mutex_unlock(&queue->lock);
    if (!rg_optimise[RG_OPT_BATCH])
        rg_queue_flush(session);
    if (!rg_optimise[RG_OPT_BATCH] || (!idle && !fresh))
        return;
    RG_UNCANCELLED;
    RG_THREAD_INSIDE(NULL);
    const uint64_t began = rg_now_ns();
    if (rg_optimise[RG_OPT_INLINE_SEND] &&
        (fresh || began >= atomic_load_explicit(&queue->next_inline, memory_order_relaxed)) &&
        pthread_mutex_trylock(&queue->send_lock) == 0) {
        flush_locked(session, false);
        atomic_fetch_add_explicit(&session->stats.inline_messages, 1, memory_order_relaxed);
        const uint64_t now = rg_now_ns();
        atomic_store_explicit(&queue->next_inline, now + RG_INLINE_SEND_SHARE * (now - began),
                              memory_order_relaxed);
    } else if (idle) {
        wake_sender_for(session, UINT64_MAX);
    }
}

enum rg_status rg_queue_send_bulk(struct rg_session *session, struct rg_bulk_send *bulk)
{
    RG_UNCANCELLED;
    RG_THREAD_INSIDE(NULL);
    pthread_mutex_unlock(&session->queue.lock);
    pthread_mutex_lock(&session->queue.send_lock);
    flush_locked(session, true); /* by this thread or one before it: the batch has left */
    if (!bulk->send.detached)
        return bulk->status;
    const enum rg_status status = rg_conn_send_detached(session->conn, &bulk->send);
    if (status != RG_OK && status != RG_ERR_FAULT)
        lost_sending(session, status);
    return status;
}

enum rg_status rg_queue_answer(struct rg_session *session, const struct rg_answer *answer,
                               const struct iovec *bulk, int n_bulk, struct rg_lease *lease)
{
    RG_THREAD_INSIDE(NULL);
    struct rg_queue *queue = &session->queue;
    struct rg_message_header header = {.kind = RG_MESSAGE_ANSWER,
                                       .version = RG_PROTOCOL_MAJOR,
                                       .count = 1,
                                       .ack = session->stats.received_messages};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)answer, sizeof *answer}};
    pthread_mutex_lock(&queue->lock);
    header.seq = queue->next_seq - 1;
    pthread_mutex_unlock(&queue->lock);
    /* the worker may have advertised memory for the data of a rendezvous */
    const uint64_t tag = answer->type == RG_ANSWER_DATA ? answer->id : 0, base = tag ? answer->arg[0] : 0;
    struct rg_send send = {.msg = parts,
                           .n_msg = 2,
                           .bulk = bulk,
                           .n_bulk = n_bulk,
                           .tag = tag,
                           .base = base,
                           .lease = lease,
                           .detachable = true};
    pthread_mutex_lock(&queue->send_lock);
    enum rg_status status = rg_session_lives(session) ? rg_conn_send(session->conn, &send) : RG_ERR_CLOSED;
    session->stats.sent_messages++;
    session->stats.sent_bytes += sizeof header + sizeof *answer + send.bulk_size;
    pthread_mutex_unlock(&queue->send_lock);
    if (send.detached)
        status = rg_conn_send_detached(session->conn, &send);
    if (status != RG_OK && status != RG_ERR_FAULT && status != RG_ERR_CLOSED)
        lost_sending(session, status);
    return status;
}

void rg_queue_say_alive(struct rg_session *session, bool asks)
{
    struct rg_queue *queue = &session->queue;
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER,
                  .version = RG_PROTOCOL_MAJOR,
                  .count = 1,
                  .ack = session->stats.received_messages},
                 {.type = RG_ANSWER_ALIVE, .arg = {asks}}};
    struct iovec part = {&message, sizeof message};
    struct rg_send send = {.msg = &part, .n_msg = 1};
    if (pthread_mutex_trylock(&queue->send_lock) != 0)
        return;
    const enum rg_status status =
        rg_session_lives(session) ? rg_conn_send(session->conn, &send) : RG_ERR_CLOSED;
    pthread_mutex_unlock(&queue->send_lock);
    if (status != RG_OK && status != RG_ERR_CLOSED)
        lost_sending(session, status);
}

void rg_queue_wake_sender(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    RG_SCOPED_LOCK(&queue->lock);
    queue->sender_has_pieces = true;
    queue->sender_sleeping = false;
    signal_sender(session);
}

/* The sender has nothing to send: sleeps, and sees to what is due after a while. The lock is held. */
static void sleep_until_needed(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    if (!rg_hooks.sender_is_due(session)) {
        pthread_cond_wait(&queue->sender_wake, &queue->lock);
        return;
    }
    const struct timespec until = rg_timespec(rg_now_ns() + RG_SENDER_IDLE_MS * 1000000ull);
    if (pthread_cond_timedwait(&queue->sender_wake, &queue->lock, &until) != ETIMEDOUT)
        return;
    pthread_mutex_unlock(&queue->lock);
    rg_receiver_poll(session); /* the worker may ask for something while nobody else reads */
    rg_hooks.sender_idle(session);
    pthread_mutex_lock(&queue->lock);
}

/* How long the sender rests after the first message of a burst; 0: not at all. */
static uint64_t first_rest(const struct rg_session *session)
{
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed);
    const uint64_t part = quickest / REST_SHARE;
    return part < REST_LEAST ? 0 : part < REST_FIRST ? part : REST_FIRST;
}

/*
 * The sender has sent a message. Those who post would wake it for record after record that follows in a burst, which costs them, and the
 * worker, more than the records do: so it rests for a moment, the longer the longer the burst goes on, and they collect. Who waits for a
 * record sends it (rg_queue_leave_awaited), and so does who polls. Near a server a program that does neither would lose by a rest what others
 * gain: there it takes none. The lock is held.
 */
static void rest(struct rg_queue *queue, uint64_t *rest_ns)
{
    if (queue->sender_has_pieces || !*rest_ns)
        return;
    const struct timespec until = rg_timespec(rg_now_ns() + *rest_ns);
    queue->sender_rests = true;
    (void)pthread_cond_timedwait(&queue->sender_wake, &queue->lock, &until);
    queue->sender_rests = false;
    *rest_ns = 2 * *rest_ns < REST_MOST ? 2 * *rest_ns : REST_MOST;
}

static void *sender_main(void *argument)
{
    struct rg_session *session = argument;
    struct rg_queue *queue = &session->queue;
    uint64_t rest_ns = 0;
    rg_thread_expect_little();
    rg_thread_sleep_precisely(); /* its rests are shorter than what the kernel usually adds */
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->current->count == 0 && !queue->sender_has_pieces) {
            queue->sender_sleeping = true;
            rest_ns = first_rest(session);
            sleep_until_needed(session);
        }
        queue->sender_sleeping = false;
        queue->sender_has_pieces = false;
        pthread_mutex_unlock(&queue->lock);
        rg_hooks.sender_runs(session);
        while (rg_hooks.sender_piece(session))
            rg_queue_flush(session); /* between two pieces */
        rg_queue_flush(session);
        pthread_mutex_lock(&queue->lock);
        rest(queue, &rest_ns);
    }
    return NULL;
}

enum rg_status rg_queue_start(struct rg_session *session)
{
    struct rg_queue *queue = &session->queue;
    pthread_mutex_init(&queue->send_lock, NULL);
    pthread_mutex_init(&queue->lock, NULL);
    rg_cond_init(&queue->sender_wake);
    queue->current = &queue->batches[0];
    queue->next_seq = 1;
    for (int i = 0; i < 2; i++) {
        queue->batches[i].data = malloc(RG_BATCH_SIZE);
        if (!queue->batches[i].data)
            return RG_ERR_NO_MEMORY;
        reset(&queue->batches[i]);
    }
    return rg_thread_create_detached("rg-sender", sender_main, session);
}
