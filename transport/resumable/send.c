/*
 * send.c - sending over a connection that may change its link: the message is kept, then sent; the memory of
 * its bulk data is the caller's as long as the call is inside, and copied at the end unless the peer has
 * acknowledged it by then, or the caller has leased it (lease.c). If the link fails, the caller waits
 * until the reconnector has sent the message by another.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"

#include <string.h>

enum {
    DRAIN_AT = 16 << 20,   /* bytes kept from which a sender looks for acknowledgements … */
    DRAIN_AGAIN = 4 << 20, /* … and how many more when there were none */
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
        if (rg_resumable_is_read(c))
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
    c->drain_at = c->queued_bytes + c->leased_bytes + DRAIN_AGAIN;
}

/* Whether so much is not acknowledged that it is looked for: again when there is more of it, or too much. */
static bool is_much(struct rg_resumable *c)
{
    const size_t kept = c->queued_bytes + c->leased_bytes;
    if (kept <= DRAIN_AT)
        c->drain_at = DRAIN_AT;
    return kept > c->drain_at || c->queued_bytes > RG_RESUMABLE_UNACKNOWLEDGED_MAX;
}

/* Keeps a message and takes the right to send it; the lock is held afterwards, if that succeeds. */
static enum rg_status take_turn(struct rg_resumable *c, const struct rg_send *send,
                                struct rg_retransmit_entry **out)
{
    if (send->msg_size > RG_MESSAGE_MAX - RG_RESUMABLE_HEADER)
        return RG_ERR_INVALID;
    pthread_mutex_lock(&c->lock);
    struct rg_retransmit_entry *entry = rg_retransmit_create(c, send);
    if (!entry) {
        pthread_mutex_unlock(&c->lock);
        return RG_ERR_NO_MEMORY;
    }
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

/*
 * A message was given to the link, with that status; if it failed, waits for the reconnector to send it.
 * Gives up the lock.
 */
static enum rg_status finish(struct rg_resumable *c, struct rg_retransmit_entry *entry, enum rg_status status)
{
    const bool failed = status != RG_OK && status != RG_ERR_FAULT;
    while (failed && c->state != RG_RESUMABLE_UP && c->state != RG_RESUMABLE_OVER && !entry->acked)
        rg_resumable_sleep(c, UINT64_MAX);
    enum rg_status result = entry->fault ? RG_ERR_FAULT : RG_OK;
    if (failed && c->state == RG_RESUMABLE_OVER && !entry->acked)
        result = c->over;
    rg_retransmit_settle(c, entry);
    if (is_much(c))
        make_way(c);
    if (c->ack_wanted && c->state == RG_RESUMABLE_UP && !c->sending)
        rg_resumable_say(c, RG_RESUMABLE_ACK);
    pthread_mutex_unlock(&c->lock);
    return result;
}

enum rg_status rg_resumable_send(struct rg_conn *conn, struct rg_send *send)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_retransmit_entry *entry;
    RG_TRY(take_turn(c, send, &entry));
    const struct iovec part = {entry->data, entry->msg_size};
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    entry->send.msg = &part;
    entry->send.n_msg = 1;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = rg_conn_send(link, &entry->send);
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    const bool failed = status != RG_OK && status != RG_ERR_FAULT;
    if (status == RG_ERR_FAULT)
        entry->fault = true;
    else if (failed)
        rg_resumable_break(c, epoch, status);
    send->detached = entry->send.detached || (send->detachable && failed);
    if (!send->detached) {
        rg_resumable_wake(c);
        return finish(c, entry, status);
    }
    rg_resumable_changed(c);
    entry->epoch = failed ? 0 : epoch;
    send->entry = entry;
    pthread_mutex_unlock(&c->lock);
    return RG_OK;
}

enum rg_status rg_resumable_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_retransmit_entry *entry = send->entry;
    enum rg_status status = RG_ERR_LOST;
    pthread_mutex_lock(&c->lock);
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    if (c->state == RG_RESUMABLE_UP && entry->epoch == epoch) { /* else it is sent again as a whole */
        c->detached++;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_send_detached(link, &entry->send);
        pthread_mutex_lock(&c->lock);
        c->detached--;
        if (status == RG_ERR_FAULT)
            entry->fault = true;
        else if (status != RG_OK)
            rg_resumable_break(c, epoch, status);
        rg_resumable_wake(c);
    }
    return finish(c, entry, status);
}
