/*
 * command.c - batches, the sender thread, and the life of one record (call.h).
 *
 * Locks, in this order: send_lock (the right to send, held across system calls), then lock (the current batch). Two
 * batches exist: one collects while the other is being sent. A batch with bulk data is closed: the memory belongs to
 * a caller who waits in rg_call_post_bulk until it has left.
 */
#include "client/command.h"

#include "client/handle.h"
#include "client/lane.h"
#include "client/managed.h"
#include "client/optimisations.h"
#include "client/receiver.h"
#include "client/session.h"
#include "client/stats.h"
#include "client/transfer.h"
#include "common/thread.h"
#include "proto/wire.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_SIZE     RG_MESSAGE_MAX
#define CONTEXT_RECORD (sizeof(struct rg_record) + 8) /* rgLaneSetContext */

struct batch {
    unsigned char *data; /* BATCH_SIZE bytes; a message header, then records */
    size_t used;
    uint32_t count;
    uint64_t first_seq;
    /* bulk data of the last record; closes the batch */
    const struct iovec *bulk;
    int n_bulk;
    enum rg_status *bulk_status;
};

static pthread_mutex_t send_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sender_wake = PTHREAD_COND_INITIALIZER;
static bool sender_sleeping, sender_has_pulls;
static struct batch batches[2];
static struct batch *current = &batches[0];
static uint64_t next_seq = 1;

__thread bool rg_per_thread_default_stream;

static void reset(struct batch *batch)
{
    batch->used = sizeof(struct rg_message_header);
    batch->count = 0;
    batch->bulk = NULL;
    batch->n_bulk = 0;
    batch->bulk_status = NULL;
}

/* Sends the taken batch; the send lock is held. */
static void send_batch(struct batch *batch)
{
    struct rg_message_header header = {
        .kind = RG_MESSAGE_BATCH,
        .version = RG_PROTOCOL_MAJOR,
        .count = batch->count,
        .seq = batch->first_seq,
        .ack = rg_stats.received_messages,
    };
    memcpy(batch->data, &header, sizeof header);
    struct iovec message = {batch->data, batch->used};
    enum rg_status status = rg_conn_send(rg_session.conn, &message, 1, batch->bulk, batch->n_bulk);
    rg_stats.sent_bytes += batch->used;
    for (int i = 0; i < batch->n_bulk; i++)
        rg_stats.sent_bytes += batch->bulk[i].iov_len;
    rg_stats.sent_messages++;
    if (batch->bulk_status)
        *batch->bulk_status = status;
    if (status != RG_OK && status != RG_ERR_FAULT)
        rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "lost the connection to %s while sending (%s)",
                       rg_session.server, rg_status_string(status));
}

void rg_command_flush(void)
{
    pthread_mutex_lock(&send_lock);
    pthread_mutex_lock(&lock);
    struct batch *batch = current;
    if (batch->count == 0) {
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&send_lock);
        return;
    }
    current = batch == &batches[0] ? &batches[1] : &batches[0];
    pthread_mutex_unlock(&lock);
    if (atomic_load(&rg_session.ended) == CUDA_SUCCESS)
        send_batch(batch);
    else if (batch->bulk_status)
        *batch->bulk_status = RG_ERR_CLOSED;
    reset(
        batch); /* before the send lock is released: the other batch may then be taken and this one filled */
    pthread_mutex_unlock(&send_lock);
}

void rg_command_answer(const struct rg_answer *answer, const struct iovec *bulk, int n_bulk)
{
    struct rg_message_header header = {.kind = RG_MESSAGE_ANSWER,
                                       .version = RG_PROTOCOL_MAJOR,
                                       .count = 1,
                                       .ack = rg_stats.received_messages};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)answer, sizeof *answer}};
    pthread_mutex_lock(&send_lock);
    enum rg_status status = RG_ERR_CLOSED;
    if (atomic_load(&rg_session.ended) == CUDA_SUCCESS)
        status = rg_conn_send(rg_session.conn, parts, 2, bulk, n_bulk);
    rg_stats.sent_messages++;
    rg_stats.sent_bytes += sizeof header + sizeof *answer;
    for (int i = 0; i < n_bulk; i++)
        rg_stats.sent_bytes += bulk[i].iov_len;
    pthread_mutex_unlock(&send_lock);
    if (status != RG_OK && status != RG_ERR_FAULT && status != RG_ERR_CLOSED)
        rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "lost the connection to %s while sending (%s)",
                       rg_session.server, rg_status_string(status));
}

void rg_command_wake_sender(void)
{
    pthread_mutex_lock(&lock);
    sender_has_pulls = true;
    sender_sleeping = false;
    pthread_cond_signal(&sender_wake);
    pthread_mutex_unlock(&lock);
}

static void *sender_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (current->count == 0 && !sender_has_pulls) {
            sender_sleeping = true;
            pthread_cond_wait(&sender_wake, &lock);
        }
        sender_sleeping = false;
        sender_has_pulls = false;
        pthread_mutex_unlock(&lock);
        while (rg_pull_send_next())
            ;
        rg_command_flush();
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

enum rg_status rg_command_start(void)
{
    for (int i = 0; i < 2; i++) {
        batches[i].data = malloc(BATCH_SIZE);
        if (!batches[i].data)
            return RG_ERR_NO_MEMORY;
        reset(&batches[i]);
    }
    return rg_thread_start("rg-sender", sender_main);
}

enum rg_status rg_thread_start(const char *name, void *(*main)(void *))
{
    pthread_t thread;
    enum rg_status status = rg_thread_create(&thread, name, main, NULL);
    if (status == RG_OK)
        pthread_detach(thread);
    return status;
}

/* --- one call ---------------------------------------------------------------------------------------- */

/* The lane of a call, or the error it must return. */
static CUresult usable_lane(unsigned flags, struct rg_lane **out)
{
    CUresult ended = atomic_load_explicit(&rg_session.ended, memory_order_acquire);
    if (ended != CUDA_SUCCESS)
        return ended;
    struct rg_lane *lane = rg_lane_current();
    if (!lane)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (lane->host_call)
        return CUDA_ERROR_NOT_PERMITTED;
    if (flags & RG_CALL_CONTEXT) {
        CUresult sticky = atomic_load_explicit(&rg_session.sticky, memory_order_relaxed);
        if (sticky != CUDA_SUCCESS)
            return sticky;
        uint64_t context = rg_lane_context(lane);
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!rg_handle_shadow(RG_KIND_CONTEXT, context))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *out = lane;
    return CUDA_SUCCESS;
}

CUresult rg_call_allowed(unsigned flags)
{
    struct rg_lane *lane;
    return usable_lane(flags, &lane);
}

/* Appends a record's header to the current batch, which has room; the lock is held. */
static unsigned char *append(struct rg_lane *lane, uint16_t number, uint32_t size)
{
    unsigned char *at = current->data + current->used;
    struct rg_record record = {.size = size, .op = number, .lane = lane->number};
    memcpy(at, &record, sizeof record);
    if (current->count == 0)
        current->first_seq = next_seq;
    next_seq++;
    current->count++;
    current->used += size;
    return at;
}

CUresult rg_call_begin(struct rg_call *call, enum rg_op op, size_t size, unsigned flags)
{
    struct rg_lane *lane;
    CUresult status = usable_lane(flags, &lane);
    if (status != CUDA_SUCCESS)
        return status;
    const uint16_t number = rg_session.op_numbers[op];
    if (!number)
        return rg_unsupported(rg_op_names[op]);
    if (size > BATCH_SIZE - sizeof(struct rg_message_header) - CONTEXT_RECORD - sizeof(struct rg_record) - 8)
        return CUDA_ERROR_INVALID_VALUE;
    const uint32_t record_size = (uint32_t)((sizeof(struct rg_record) + size + 7) & ~(size_t)7);

    if (flags & RG_CALL_WORK) {
        status = rg_managed_release();
        if (status != CUDA_SUCCESS)
            return status;
    }
    pthread_mutex_lock(&lock);
    while (current->bulk || current->used + record_size + CONTEXT_RECORD > BATCH_SIZE) {
        pthread_mutex_unlock(&lock);
        rg_command_flush();
        pthread_mutex_lock(&lock);
    }
    if (flags & RG_CALL_CONTEXT) {
        const uint64_t context = rg_lane_context(lane);
        if (lane->sent_context != context) {
            unsigned char *at = append(lane, rg_session.op_numbers[RG_OP_rgLaneSetContext], CONTEXT_RECORD);
            memcpy(at + sizeof(struct rg_record), &context, sizeof context);
            lane->sent_context = context;
        }
    }
    lane->announced = true;
    rg_stats.calls++;
    call->lane = lane;
    call->op = (uint16_t)op;
    call->size = record_size;
    call->record = append(lane, number, record_size);
    call->writer.at = call->record + sizeof(struct rg_record);
    if (size)
        memset(call->record + record_size - 8, 0, 8); /* padding; the parameters overwrite what is theirs */
    return CUDA_SUCCESS;
}

CUresult rg_call_post(struct rg_call *call)
{
    if (!rg_optimise[RG_OPT_ASYNC]) {
        CUresult status = rg_call_wait(call);
        rg_call_done(call);
        return status;
    }
    if (!rg_optimise[RG_OPT_BATCH]) {
        pthread_mutex_unlock(&lock);
        rg_command_flush();
        return CUDA_SUCCESS;
    }
    bool wake = sender_sleeping;
    sender_sleeping = false;
    pthread_mutex_unlock(&lock);
    if (wake)
        pthread_cond_signal(&sender_wake);
    return CUDA_SUCCESS;
}

CUresult rg_call_post_bulk(struct rg_call *call, const struct iovec *bulk, int n_bulk)
{
    enum rg_status status = RG_OK;
    CUresult result = CUDA_SUCCESS;
    if (n_bulk) {
        current->bulk = bulk;
        current->n_bulk = n_bulk;
        current->bulk_status = &status;
    }
    if (rg_optimise[RG_OPT_ASYNC]) {
        pthread_mutex_unlock(&lock);
        rg_command_flush(); /* by this thread or one before it: when the send lock was ours, the batch has left */
    } else {
        result = rg_call_wait(call);
        rg_call_done(call);
    }
    if (status == RG_ERR_FAULT)
        return CUDA_ERROR_INVALID_VALUE;
    return status == RG_OK ? result : atomic_load(&rg_session.ended);
}

void rg_call_expect_bulk(void *memory, size_t pitch, size_t width, size_t height)
{
    struct rg_lane *lane = rg_lane_current();
    if (!lane)
        return;
    struct rg_waiter *waiter = &lane->waiter;
    waiter->bulk = memory;
    waiter->bulk_pitch = pitch;
    waiter->bulk_width = width;
    waiter->bulk_height = height;
}

CUresult rg_call_wait(struct rg_call *call)
{
    struct rg_waiter *waiter = &call->lane->waiter;
    const uint32_t token = rg_lane_token(call->lane);
    memcpy(call->record + offsetof(struct rg_record, token), &token, sizeof token);
    rg_receiver_prepare(waiter, token);
    rg_stats.round_trips++;
    pthread_mutex_unlock(&lock);
    rg_command_flush();
    rg_receiver_wait(waiter);
    call->reply = rg_reader_of(waiter->output, waiter->size);
    CUresult result = waiter->result;
    if (rg_error_is_sticky(result))
        atomic_store(&rg_session.sticky, result);
    if (result == CUDA_SUCCESS)
        result = rg_session_take_latched();
    return result;
}

void rg_call_done(struct rg_call *call)
{
    if (!call->lane)
        return; /* it was never sent */
    struct rg_waiter *waiter = &call->lane->waiter;
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
    rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "%s answered %s with too few bytes", rg_session.server,
                   rg_op_names[call->op]);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}
