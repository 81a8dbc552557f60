/*
 * queue.c - one lock and one condition a queue.
 *
 * A pop that must wait for a time sleeps until shortly before it and watches the clock for the rest: sleeping
 * alone would add the kernel's timer slack to every delay, as much as the whole delay of a fast link. A
 * thread of our own sleeps without slack, and watches for no longer than it takes to wake up: where there are
 * few cores, others need them.
 */
#include "transport/queue.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 80000, SPIN_PRECISE_NS = 8000 };

struct rg_parcel *rg_parcel_create(size_t msg_size, size_t bulk_size)
{
    struct rg_parcel *parcel = malloc(sizeof *parcel + msg_size + bulk_size);
    if (!parcel)
        return NULL;
    *parcel =
        (struct rg_parcel){.msg_size = msg_size, .bulk_size = bulk_size, .bulk = parcel->data + msg_size};
    return parcel;
}

struct rg_parcel *rg_parcel_pack(const struct rg_send *message, bool *fault)
{
    *fault = false;
    struct rg_parcel *parcel = rg_parcel_create(message->msg_size, message->bulk_size);
    if (!parcel)
        return NULL;
    unsigned char *cur = parcel->data;
    for (int i = 0; i < message->n_msg; i++) {
        if (message->msg[i].iov_len > 0)
            memcpy(cur, message->msg[i].iov_base, message->msg[i].iov_len);
        cur += message->msg[i].iov_len;
    }
    for (int i = 0; i < message->n_bulk; i++) {
        size_t size = message->bulk[i].iov_len;
        if (!rg_safe_copy_from(cur, message->bulk[i].iov_base, size)) {
            memset(cur, 0, size);
            *fault = true;
        }
        cur += size;
    }
    return parcel;
}

enum rg_status rg_parcel_take_bulk(struct rg_parcel *parcel, void *buffer, size_t size)
{
    const unsigned char *from = parcel->bulk + parcel->bulk_taken;
    parcel->bulk_taken += size;
    return !buffer || rg_safe_copy_to(buffer, from, size) ? RG_OK : RG_ERR_FAULT;
}

static size_t parcel_weight(const struct rg_parcel *parcel)
{
    return sizeof *parcel + parcel->msg_size + parcel->bulk_size;
}

void rg_queue_init(struct rg_parcel_queue *queue, size_t limit)
{
    *queue = (struct rg_parcel_queue){.limit = limit};
    queue->tail = &queue->head;
    pthread_mutex_init(&queue->lock, NULL);
    rg_cond_init(&queue->changed);
}

void rg_queue_fini(struct rg_parcel_queue *queue)
{
    while (queue->head) {
        struct rg_parcel *parcel = queue->head;
        queue->head = parcel->next;
        free(parcel);
    }
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
}

enum rg_status rg_queue_push(struct rg_parcel_queue *queue, struct rg_parcel *parcel)
{
    enum rg_status status = RG_OK;
    size_t weight = parcel_weight(parcel);
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        status = queue->writer_now   ? queue->writer_now
                 : queue->writer_end ? queue->writer_end
                                     : queue->reader_end;
        if (status != RG_OK || queue->bytes == 0 || queue->bytes + weight <= queue->limit)
            break;
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    if (status == RG_OK) {
        parcel->next = NULL;
        *queue->tail = parcel;
        queue->tail = &parcel->next;
        queue->bytes += weight;
        parcel = NULL;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    free(parcel);
    return status;
}

/* Sleeps on the queue until woken or until `until_ns` (UINT64_MAX: for ever). */
static void wait_until(struct rg_parcel_queue *queue, uint64_t until_ns)
{
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(&queue->changed, &queue->lock);
        return;
    }
    struct timespec t = rg_timespec(until_ns);
    pthread_cond_timedwait(&queue->changed, &queue->lock, &t);
}

enum rg_status rg_queue_pop(struct rg_parcel_queue *queue, int timeout_ms, struct rg_parcel **out)
{
    uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    enum rg_status status = RG_OK;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        struct rg_parcel *head = queue->head;
        if (queue->reader_now != RG_OK) {
            status = queue->reader_now;
            break;
        }
        if (!head && queue->writer_end != RG_OK) {
            status = queue->writer_end;
            break;
        }
        uint64_t now = timeout_ms < 0 && !head ? 0 : rg_now_ns();
        if (head && head->due_ns <= now) {
            queue->head = head->next;
            if (!queue->head)
                queue->tail = &queue->head;
            queue->bytes -= parcel_weight(head);
            *out = head;
            pthread_cond_broadcast(&queue->changed);
            break;
        }
        if (now >= deadline) {
            status = RG_ERR_TIMEOUT;
            break;
        }
        const uint64_t spin = queue->precise ? SPIN_PRECISE_NS : SPIN_NS;
        if (head && head->due_ns - now <= spin && head->due_ns <= deadline) {
            /* the only reader is here, so the head stays the head */
            uint64_t due = head->due_ns;
            pthread_mutex_unlock(&queue->lock);
            while (rg_now_ns() < due)
                ;
            pthread_mutex_lock(&queue->lock);
            continue;
        }
        uint64_t until = head ? head->due_ns - spin : UINT64_MAX;
        wait_until(queue, until < deadline ? until : deadline);
    }
    pthread_mutex_unlock(&queue->lock);
    return status;
}

void rg_queue_pause(struct rg_parcel_queue *queue, uint64_t until_ns)
{
    RG_SCOPED_LOCK(&queue->lock);
    while (queue->writer_now == RG_OK && queue->writer_end == RG_OK && queue->reader_end == RG_OK &&
           queue->reader_now == RG_OK && rg_now_ns() < until_ns)
        wait_until(queue, until_ns);
}

static void set_state(struct rg_parcel_queue *queue, enum rg_status *state, enum rg_status status)
{
    RG_SCOPED_LOCK(&queue->lock);
    if (*state == RG_OK)
        *state = status;
    pthread_cond_broadcast(&queue->changed);
}

void rg_queue_end(struct rg_parcel_queue *queue, enum rg_status status)
{
    set_state(queue, &queue->writer_end, status);
}

void rg_queue_stop(struct rg_parcel_queue *queue, enum rg_status status)
{
    set_state(queue, &queue->reader_end, status);
}

void rg_queue_interrupt_push(struct rg_parcel_queue *queue)
{
    set_state(queue, &queue->writer_now, RG_ERR_CLOSED);
}

void rg_queue_interrupt_pop(struct rg_parcel_queue *queue)
{
    set_state(queue, &queue->reader_now, RG_ERR_CLOSED);
}
