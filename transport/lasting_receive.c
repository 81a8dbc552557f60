/*
 * lasting_receive.c - receiving over a connection that may change its carrier: a failure is waited out; bulk data that was
 * under way is received again, and what had been taken of it is passed over.
 */
#include "transport/lasting_inside.h"

#include "common/base/clock.h"

#include <poll.h>
#include <string.h>

enum { AWAITED_MIN = 64 << 10 }; /* bulk data that costs more to copy than an acknowledgement costs */

static void unlocked(struct rg_lasting *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* --- acknowledgements -------------------------------------------------------------------------------------------- */

/* Whether nothing more has come yet, as far as the carrier shows that. */
static bool pauses(const struct rg_lasting *c)
{
    struct pollfd p = {.fd = rg_conn_fd(c->carrier), .events = POLLIN};
    return p.fd < 0 || poll(&p, 1, 0) == 0;
}

/*
 * Much has come by itself, or is the last that comes for now: somebody may hold its memory until it is acknowledged. Where
 * more follows at once, this can wait for it.
 */
static bool is_awaited(const struct rg_lasting *c)
{
    return c->bulk_size >= AWAITED_MIN && c->state == RG_LASTING_UP && pauses(c);
}

/* A receiver must not wait for the peer to receive, or both may do so for ever: what cannot go at once is left to the
 * mender, or to the next message. */
static void acknowledge_if_due(struct rg_lasting *c)
{
    if (c->untold_bytes < RG_LASTING_ACK_BYTES && c->received - c->told < RG_LASTING_ACK_COUNT &&
        !is_awaited(c))
        return;
    if (c->state == RG_LASTING_UP && !c->sending && rg_lasting_has_room(c->carrier)) {
        rg_lasting_say(c, RG_LASTING_ACK);
        return;
    }
    c->ack_wanted = true;
    rg_lasting_changed(c);
}

static void count_received(struct rg_lasting *c)
{
    c->received++;
    c->untold_bytes += c->msg_size + c->bulk_size;
    acknowledge_if_due(c);
}

/* Looks at what the carrier received. RG_ERR_NOT_FOUND: it is not for the user. */
static enum rg_status look_at(struct rg_lasting *c, struct rg_message *message)
{
    struct rg_lasting_header header;
    if (message->size < sizeof header)
        return RG_ERR_PROTOCOL;
    memcpy(&header, message->data, sizeof header);
    if (header.reserved || !rg_lasting_acknowledge(c, header.received))
        return RG_ERR_PROTOCOL;
    if (header.kind == RG_LASTING_DATA) {
        message->data = (const unsigned char *)message->data + sizeof header;
        message->size -= sizeof header;
        return RG_OK;
    }
    if (message->size != sizeof header || message->bulk_size ||
        (header.kind != RG_LASTING_ACK && header.kind != RG_LASTING_LEAVE))
        return RG_ERR_PROTOCOL;
    if (header.kind == RG_LASTING_LEAVE)
        c->peer_leaves = true;
    return RG_ERR_NOT_FOUND;
}

/* One message from the carrier, the lock given up meanwhile. RG_ERR_NOT_FOUND: one that is not for the user. */
static enum rg_status receive(struct rg_lasting *c, int timeout_ms, struct rg_message *message)
{
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    c->receiving = true;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = rg_conn_recv(carrier, timeout_ms, message);
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    const bool failed = status != RG_OK && status != RG_ERR_TIMEOUT;
    if (status == RG_OK)
        status = look_at(c, message);
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT)
        rg_lasting_end(c, status);
    else if (failed)
        rg_lasting_break(c, epoch, status);
    rg_lasting_changed(c);
    return status;
}

void rg_lasting_drain(struct rg_lasting *c, int timeout_ms)
{
    while (c->state == RG_LASTING_UP && !c->receiving && !c->has_ready && !c->in_use && !c->in_bulk) {
        enum rg_status status = receive(c, timeout_ms, &c->ready);
        c->has_ready = status == RG_OK && c->state == RG_LASTING_UP;
        if (status != RG_ERR_NOT_FOUND)
            return;
        timeout_ms = 0;
    }
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

/* Hands a message out; the lock is held. */
static void deliver(struct rg_lasting *c, struct rg_message *message)
{
    if (c->copy_all || message->size <= RG_LASTING_COPIED_MAX) {
        memcpy(c->copy, message->data, message->size);
        message->data = c->copy;
        c->in_use = false;
    } else {
        c->in_use = true;
        c->in_use_from = c->epoch;
    }
    c->msg_size = message->size;
    c->bulk_size = message->bulk_size;
    c->bulk_taken = 0;
    c->in_bulk = message->bulk_size > 0;
    c->bulk_epoch = c->epoch;
    if (!c->in_bulk)
        count_received(c);
}

/* The message last returned is done with: so is the carrier that it lay in. */
static void let_go(struct rg_lasting *c)
{
    if (c->in_use && c->state == RG_LASTING_BROKEN)
        rg_lasting_changed(c); /* the mender may wait for it */
    c->in_use = false;
    struct rg_conn *retired = c->retired;
    c->retired = NULL;
    if (!retired)
        return;
    pthread_mutex_unlock(&c->lock);
    rg_conn_destroy(retired);
    pthread_mutex_lock(&c->lock);
}

enum rg_status rg_lasting_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    const uint64_t until = timeout_ms < 0 ? UINT64_MAX : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    pthread_mutex_lock(&c->lock);
    let_go(c);
    for (;;) {
        if (c->state == RG_LASTING_OVER && c->last_words_size) {
            *out = (struct rg_message){.data = c->last_words, .size = c->last_words_size};
            c->last_words_size = 0; /* once */
            return unlocked(c), RG_OK;
        }
        if (c->state == RG_LASTING_OVER) {
            const enum rg_status over = c->over;
            return unlocked(c), over;
        }
        if (c->has_ready) {
            c->has_ready = false;
            *out = c->ready;
            deliver(c, out);
            rg_lasting_changed(c);
            return unlocked(c), RG_OK;
        }
        const uint64_t now = until == UINT64_MAX ? 0 : rg_now_ns();
        const bool late = timeout_ms != 0 && now >= until;
        if (c->state == RG_LASTING_BROKEN || c->receiving) {
            if (timeout_ms == 0 || late)
                return unlocked(c), RG_ERR_TIMEOUT;
            rg_lasting_sleep(c, until);
            continue;
        }
        if (late)
            return unlocked(c), RG_ERR_TIMEOUT;
        const int left = until == UINT64_MAX ? -1 : timeout_ms == 0 ? 0 : (int)((until - now) / 1000000u) + 1;
        enum rg_status status = receive(c, left, out);
        if (status == RG_OK) {
            deliver(c, out);
            return unlocked(c), status;
        }
        if (status == RG_ERR_TIMEOUT && timeout_ms == 0)
            return unlocked(c), status;
    }
}

/* By a new carrier the message comes again: passes over what had been taken of it. */
static void pass_over(struct rg_lasting *c)
{
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    struct rg_message again;
    enum rg_status status = receive(c, -1, &again);
    if (status != RG_OK)
        return;
    if (again.size != c->msg_size || again.bulk_size != c->bulk_size) {
        rg_lasting_end(c, RG_ERR_PROTOCOL);
        return;
    }
    c->receiving = true;
    pthread_mutex_unlock(&c->lock);
    status = c->bulk_taken ? rg_conn_recv_bulk(carrier, NULL, c->bulk_taken) : RG_OK;
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    if (status == RG_OK)
        c->bulk_epoch = epoch;
    else
        rg_lasting_break(c, epoch, status);
    rg_lasting_changed(c);
}

enum rg_status rg_lasting_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        enum rg_status status;
        if (c->state == RG_LASTING_OVER) {
            status = c->over == RG_ERR_CLOSED ? RG_ERR_CLOSED : RG_ERR_LOST;
            return unlocked(c), status;
        }
        if (c->state == RG_LASTING_BROKEN) {
            rg_lasting_sleep(c, UINT64_MAX);
            continue;
        }
        if (c->bulk_epoch != c->epoch) {
            pass_over(c);
            continue;
        }
        const uint64_t epoch = c->epoch;
        struct rg_conn *carrier = c->carrier;
        c->receiving = true;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_recv_bulk(carrier, buffer, size);
        pthread_mutex_lock(&c->lock);
        c->receiving = false;
        if (status == RG_OK || status == RG_ERR_FAULT) {
            c->bulk_taken += size;
            c->in_bulk = c->bulk_taken < c->bulk_size;
            if (!c->in_bulk)
                count_received(c);
            rg_lasting_changed(c);
            return unlocked(c), status;
        }
        rg_lasting_break(c, epoch, status);
        rg_lasting_changed(c);
    }
}

/* Where the carrier fails, nothing of the rest is in lent memory: it comes by rg_lasting_recv_bulk, which waits for the next. */
enum rg_status rg_lasting_take_lent(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    *size = 0;
    pthread_mutex_lock(&c->lock);
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    if ((c->state == RG_LASTING_UP || c->state == RG_LASTING_REPLAYING) && c->bulk_epoch == epoch) {
        c->receiving = true;
        pthread_mutex_unlock(&c->lock);
        enum rg_status status = rg_conn_take_lent(carrier, most, memory, size);
        pthread_mutex_lock(&c->lock);
        c->receiving = false;
        if (status == RG_OK && *size > 0) {
            c->bulk_taken += *size;
            c->in_bulk = c->bulk_taken < c->bulk_size;
            if (!c->in_bulk)
                count_received(c);
        } else if (status == RG_ERR_PROTOCOL) {
            rg_lasting_end(c, status);
        } else if (status != RG_OK) {
            rg_lasting_break(c, epoch, status);
        }
        rg_lasting_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
    return RG_OK;
}
