/*
 * lasting_send.c - sending over a connection that may change its carrier: the message is kept, then sent; the memory of its
 * bulk data is the caller's as long as the call is inside, and copied at the end unless the peer has acknowledged it by
 * then, or the caller holds it (lasting_hold.c). If the carrier fails, the caller waits until the mender has sent the message by another.
 */
#include "transport/lasting_inside.h"

#include "common/base/clock.h"

#include <string.h>

enum {
    APART_MIN = 128 << 10, /* bulk data that may be sent by itself, if the carrier does that … */
    APART_ROOM = 1024,     /* … beside what it adds to a message */
    DRAIN_AT = 8 << 20,    /* bytes kept from which a sender looks for acknowledgements */
    DRAIN_MS = 10,         /* how long it waits for some, at RG_LASTING_KEPT_MAX … */
    DRAIN_TRIES = 200,     /* … and how often */
};

/* Much is not acknowledged: looks for it, waits for it; in the end does without keeping. */
static void make_way(struct rg_lasting *c)
{
    rg_lasting_drain(c, 0);
    for (int i = 0; i < DRAIN_TRIES && c->kept_bytes > RG_LASTING_KEPT_MAX && c->state == RG_LASTING_UP;
         i++) {
        if (c->has_ready || c->in_use || c->in_bulk)
            break; /* nobody may be there to take what has come */
        if (c->receiving)
            rg_lasting_sleep(c, rg_now_ns() + DRAIN_MS * 1000000ull);
        else
            rg_lasting_drain(c, DRAIN_MS);
    }
    if (c->kept_bytes > RG_LASTING_KEPT_LIMIT && c->state == RG_LASTING_UP) {
        if (!c->forgotten)
            rg_info("%s: %u MiB are not acknowledged; until they are, a lost connection is the session's end",
                    c->head.peer, RG_LASTING_KEPT_LIMIT >> 20);
        rg_lasting_forget(c);
    }
}

/* Keeps a message and takes the right to send it; the lock is held afterwards, if that succeeds. */
static enum rg_status take_turn(struct rg_lasting *c, const struct rg_outgoing *message,
                                struct rg_lasting_kept **out)
{
    if (message->msg_size > RG_MESSAGE_MAX - RG_LASTING_HEADER)
        return RG_ERR_INVALID;
    struct rg_lasting_kept *kept = rg_lasting_keep(c, message);
    if (!kept)
        return RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&c->lock);
    while (c->state != RG_LASTING_OVER && (c->state != RG_LASTING_UP || c->sending || c->turn_wanted))
        rg_lasting_sleep(c, UINT64_MAX);
    if (c->state == RG_LASTING_OVER) {
        const enum rg_status over = c->over;
        kept->busy = false;
        kept->acked = true;
        rg_lasting_release(c, kept);
        pthread_mutex_unlock(&c->lock);
        return over;
    }
    rg_lasting_append(c, kept);
    const struct rg_lasting_header header = rg_lasting_header_of(c, RG_LASTING_DATA);
    memcpy(kept->data, &header, sizeof header);
    c->on_wire = kept->seq;
    c->sending = true;
    *out = kept;
    return RG_OK;
}

/* A message was given to the carrier, with that status; if it failed, waits for the mender to send it. Gives up the lock. */
static enum rg_status finish(struct rg_lasting *c, struct rg_lasting_kept *kept, enum rg_status status)
{
    const bool failed = status != RG_OK && status != RG_ERR_FAULT;
    while (failed && c->state != RG_LASTING_UP && c->state != RG_LASTING_OVER && !kept->acked)
        rg_lasting_sleep(c, UINT64_MAX);
    enum rg_status result = kept->fault ? RG_ERR_FAULT : RG_OK;
    if (failed && c->state == RG_LASTING_OVER && !kept->acked)
        result = c->over;
    rg_lasting_settle(c, kept);
    if (c->kept_bytes + c->held_bytes > DRAIN_AT)
        make_way(c);
    if (c->ack_wanted && c->state == RG_LASTING_UP && !c->sending)
        rg_lasting_say(c, RG_LASTING_ACK);
    pthread_mutex_unlock(&c->lock);
    return result;
}

enum rg_status rg_lasting_send(struct rg_conn *conn, const struct rg_outgoing *message)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_lasting_kept *kept;
    enum rg_status status = take_turn(c, message, &kept);
    if (status != RG_OK)
        return status;
    const struct iovec part = {kept->data, kept->msg_size};
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    pthread_mutex_unlock(&c->lock);
    status = rg_conn_send_to(carrier, message->tag, message->base, &part, 1, message->bulk, message->n_bulk);
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    if (status == RG_ERR_FAULT)
        kept->fault = true;
    else if (status != RG_OK)
        rg_lasting_break(c, epoch, status);
    rg_lasting_changed(c);
    return finish(c, kept, status);
}

/* --- bulk data by itself --- */

bool rg_lasting_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size)
{
    struct rg_lasting *c = (struct rg_lasting *)(uintptr_t)conn;
    if (msg_size > RG_MESSAGE_MAX - RG_LASTING_HEADER - APART_ROOM || bulk_size < APART_MIN)
        return false;
    pthread_mutex_lock(&c->lock);
    if (!c->sends_apart && c->state == RG_LASTING_UP)
        c->sends_apart = rg_conn_sends_apart(c->carrier, RG_MESSAGE_MAX - APART_ROOM, APART_MIN);
    const bool apart = c->sends_apart;
    pthread_mutex_unlock(&c->lock);
    return apart;
}

/*
 * If the carrier of now can do that as well, it gets the head. Else the head stays, with the right to send, until the bulk
 * data is there. If it fails, the tail will wait for the mender, who waits for the tail's bulk data.
 */
enum rg_status rg_lasting_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                    struct rg_bulk_ticket *out)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_lasting_kept *kept;
    if (!rg_lasting_is_apart(conn, message->msg_size, message->bulk_size))
        return RG_ERR_INVALID;
    enum rg_status status = take_turn(c, message, &kept);
    if (status != RG_OK)
        return status;
    kept->promised = true;
    *out = (struct rg_bulk_ticket){
        .number = kept->seq, .route = (uint64_t)(uintptr_t)kept, .size = message->bulk_size};
    const struct iovec part = {kept->data, kept->msg_size};
    struct rg_conn *carrier = c->carrier;
    kept->holds = !rg_conn_sends_apart(carrier, kept->msg_size, message->bulk_size);
    if (!kept->holds) {
        const uint64_t epoch = c->epoch;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_send_head(carrier, &part, 1, message->bulk_size, &kept->ticket);
        pthread_mutex_lock(&c->lock);
        c->sending = false;
        kept->epoch = status == RG_OK ? epoch : 0;
        if (status != RG_OK)
            rg_lasting_break(c, epoch, status);
        rg_lasting_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
    return RG_OK;
}

enum rg_status rg_lasting_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                    const struct iovec *bulk, int n_bulk)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_lasting_kept *kept = (struct rg_lasting_kept *)(uintptr_t)ticket->route;
    enum rg_status status = RG_ERR_LOST;
    pthread_mutex_lock(&c->lock);
    kept->bulk = bulk;
    kept->n_bulk = n_bulk;
    kept->ticket.tag = ticket->tag;
    kept->ticket.base = ticket->base;
    kept->hold = ticket->hold;
    kept->promised = false;
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    if (c->state != RG_LASTING_OVER && (kept->holds || (kept->epoch == epoch && carrier))) {
        const struct iovec part = {kept->data, kept->msg_size};
        c->tails++;
        pthread_mutex_unlock(&c->lock);
        status = kept->holds ? rg_conn_send_to(carrier, ticket->tag, ticket->base, &part, 1, bulk, n_bulk)
                             : rg_conn_send_tail(carrier, &kept->ticket, bulk, n_bulk);
        pthread_mutex_lock(&c->lock);
        c->tails--;
        if (status == RG_ERR_FAULT)
            kept->fault = true;
        else if (status != RG_OK)
            rg_lasting_break(c, epoch, status);
    }
    if (kept->holds)
        c->sending = false;
    if (c->waiting) /* the mender may have waited for the bulk data */
        pthread_cond_broadcast(&c->changed);
    return finish(c, kept, status);
}
