/*
 * resumable_send.c - sending over a connection that may change its link: the message is kept, then sent; the memory of its
 * bulk data is the caller's as long as the call is inside, and copied at the end unless the peer has acknowledged it by
 * then, or the caller holds it (resumable_hold.c). If the link fails, the caller waits until the reconnector has sent the message by another.
 */
#include "transport/resumable/internal.h"

#include "common/clock.h"

#include <string.h>

enum {
    APART_MIN = 128 << 10, /* bulk data that may be sent by itself, if the link does that … */
    APART_ROOM = 1024,     /* … beside what it adds to a message */
    DRAIN_AT = 8 << 20,    /* bytes kept from which a sender looks for acknowledgements */
    DRAIN_MS = 10,         /* how long it waits for some, at RG_RESUMABLE_UNACKNOWLEDGED_MAX … */
    DRAIN_TRIES = 200,     /* … and how often */
};

/* Much is not acknowledged: looks for it, waits for it; in the end does without keeping. */
static void make_way(struct rg_resumable *c)
{
    rg_resumable_drain(c, 0);
    for (int i = 0;
         i < DRAIN_TRIES && c->queued_bytes > RG_RESUMABLE_UNACKNOWLEDGED_MAX && c->state == RG_RESUMABLE_UP;
         i++) {
        if (c->has_ready || c->in_use || c->in_bulk)
            break; /* nobody may be there to take what has come */
        if (c->receiving)
            rg_resumable_sleep(c, rg_now_ns() + DRAIN_MS * 1000000ull);
        else
            rg_resumable_drain(c, DRAIN_MS);
    }
    if (c->queued_bytes > RG_RESUMABLE_UNACKNOWLEDGED_LIMIT && c->state == RG_RESUMABLE_UP) {
        if (!c->forgotten)
            rg_info("%s: %u MiB are not acknowledged; until they are, a lost connection is the session's end",
                    c->head.peer, RG_RESUMABLE_UNACKNOWLEDGED_LIMIT >> 20);
        rg_retransmit_forget(c);
    }
}

/* Keeps a message and takes the right to send it; the lock is held afterwards, if that succeeds. */
static enum rg_status take_turn(struct rg_resumable *c, const struct rg_outgoing *message,
                                struct rg_retransmit_entry **out)
{
    if (message->msg_size > RG_MESSAGE_MAX - RG_RESUMABLE_HEADER)
        return RG_ERR_INVALID;
    struct rg_retransmit_entry *entry = rg_retransmit_create(c, message);
    if (!entry)
        return RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&c->lock);
    while (c->state != RG_RESUMABLE_OVER && (c->state != RG_RESUMABLE_UP || c->sending || c->turn_wanted))
        rg_resumable_sleep(c, UINT64_MAX);
    if (c->state == RG_RESUMABLE_OVER) {
        const enum rg_status over = c->over;
        entry->busy = false;
        entry->acked = true;
        rg_retransmit_release(c, entry);
        pthread_mutex_unlock(&c->lock);
        return over;
    }
    rg_retransmit_append(c, entry);
    const struct rg_resumable_header header = rg_resumable_header_of(c, RG_RESUMABLE_DATA);
    memcpy(entry->data, &header, sizeof header);
    c->on_wire = entry->seq;
    c->sending = true;
    *out = entry;
    return RG_OK;
}

/* A message was given to the link, with that status; if it failed, waits for the reconnector to send it. Gives up the lock. */
static enum rg_status finish(struct rg_resumable *c, struct rg_retransmit_entry *entry, enum rg_status status)
{
    const bool failed = status != RG_OK && status != RG_ERR_FAULT;
    while (failed && c->state != RG_RESUMABLE_UP && c->state != RG_RESUMABLE_OVER && !entry->acked)
        rg_resumable_sleep(c, UINT64_MAX);
    enum rg_status result = entry->fault ? RG_ERR_FAULT : RG_OK;
    if (failed && c->state == RG_RESUMABLE_OVER && !entry->acked)
        result = c->over;
    rg_retransmit_settle(c, entry);
    if (c->queued_bytes + c->leased_bytes > DRAIN_AT)
        make_way(c);
    if (c->ack_wanted && c->state == RG_RESUMABLE_UP && !c->sending)
        rg_resumable_say(c, RG_RESUMABLE_ACK);
    pthread_mutex_unlock(&c->lock);
    return result;
}

enum rg_status rg_resumable_send(struct rg_conn *conn, const struct rg_outgoing *message)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_retransmit_entry *entry;
    enum rg_status status = take_turn(c, message, &entry);
    if (status != RG_OK)
        return status;
    const struct iovec part = {entry->data, entry->msg_size};
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    pthread_mutex_unlock(&c->lock);
    status = rg_conn_send_to(link, message->tag, message->base, &part, 1, message->bulk, message->n_bulk);
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    if (status == RG_ERR_FAULT)
        entry->fault = true;
    else if (status != RG_OK)
        rg_resumable_break(c, epoch, status);
    rg_resumable_changed(c);
    return finish(c, entry, status);
}

/* --- bulk data by itself --- */

bool rg_resumable_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    if (msg_size > RG_MESSAGE_MAX - RG_RESUMABLE_HEADER - APART_ROOM || bulk_size < APART_MIN)
        return false;
    pthread_mutex_lock(&c->lock);
    if (!c->sends_apart && c->state == RG_RESUMABLE_UP)
        c->sends_apart = rg_conn_sends_apart(c->link, RG_MESSAGE_MAX - APART_ROOM, APART_MIN);
    const bool apart = c->sends_apart;
    pthread_mutex_unlock(&c->lock);
    return apart;
}

/*
 * If the link of now can do that as well, it gets the head. Else the head stays, with the right to send, until the bulk
 * data is there. If it fails, the tail will wait for the reconnector, who waits for the tail's bulk data.
 */
enum rg_status rg_resumable_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                      struct rg_bulk_ticket *out)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_retransmit_entry *entry;
    if (!rg_resumable_is_apart(conn, message->msg_size, message->bulk_size))
        return RG_ERR_INVALID;
    enum rg_status status = take_turn(c, message, &entry);
    if (status != RG_OK)
        return status;
    entry->awaits_bulk = true;
    *out = (struct rg_bulk_ticket){
        .number = entry->seq, .route = (uint64_t)(uintptr_t)entry, .size = message->bulk_size};
    const struct iovec part = {entry->data, entry->msg_size};
    struct rg_conn *link = c->link;
    entry->holds = !rg_conn_sends_apart(link, entry->msg_size, message->bulk_size);
    if (!entry->holds) {
        const uint64_t epoch = c->epoch;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_send_head(link, &part, 1, message->bulk_size, &entry->ticket);
        pthread_mutex_lock(&c->lock);
        c->sending = false;
        entry->epoch = status == RG_OK ? epoch : 0;
        if (status != RG_OK)
            rg_resumable_break(c, epoch, status);
        rg_resumable_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
    return RG_OK;
}

enum rg_status rg_resumable_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                      const struct iovec *bulk, int n_bulk)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_retransmit_entry *entry = (struct rg_retransmit_entry *)(uintptr_t)ticket->route;
    enum rg_status status = RG_ERR_LOST;
    pthread_mutex_lock(&c->lock);
    entry->bulk = bulk;
    entry->n_bulk = n_bulk;
    entry->ticket.tag = ticket->tag;
    entry->ticket.base = ticket->base;
    entry->lease = ticket->lease;
    entry->awaits_bulk = false;
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    if (c->state != RG_RESUMABLE_OVER && (entry->holds || (entry->epoch == epoch && link))) {
        const struct iovec part = {entry->data, entry->msg_size};
        c->tails++;
        pthread_mutex_unlock(&c->lock);
        status = entry->holds ? rg_conn_send_to(link, ticket->tag, ticket->base, &part, 1, bulk, n_bulk)
                              : rg_conn_send_tail(link, &entry->ticket, bulk, n_bulk);
        pthread_mutex_lock(&c->lock);
        c->tails--;
        if (status == RG_ERR_FAULT)
            entry->fault = true;
        else if (status != RG_OK)
            rg_resumable_break(c, epoch, status);
    }
    if (entry->holds)
        c->sending = false;
    if (c->waiting) /* the reconnector may have waited for the bulk data */
        pthread_cond_broadcast(&c->changed);
    return finish(c, entry, status);
}
