/*
 * receive.c - receiving over a connection that may change its link: a failure is waited out; bulk data that
 * was under way is received again, and what had been taken of it is passed over.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"

#include <string.h>

enum {
    AWAITED_MIN = 64 << 10, /* bytes that cost more to copy than an acknowledgement costs */
    WORDS_UNSEEN = 8,       /* words that any socket takes, however few bytes it has room for */
};

static void unlocked(struct rg_resumable *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* --- acknowledgements --- */

/*
 * Whether a word of ours would be taken at once: surely, where the peer has received all that was sent but a few of
 * them; else the link is asked.
 */
static bool may_say(struct rg_resumable *c)
{
    if (!c->queue && !c->forgotten && c->words < WORDS_UNSEEN && rg_conn_fd(c->link) >= 0)
        return true;
    if (!rg_resumable_is_writable(c->link))
        return false;
    c->words = 0;
    return true;
}

/*
 * A receiver must not wait for the peer to receive, or both may do so for ever: what cannot go at once is
 * left to who is sending, to the reconnector, or to the next message.
 */
void rg_resumable_acknowledge(struct rg_resumable *c)
{
    if (c->state == RG_RESUMABLE_UP && !c->sending && may_say(c)) {
        rg_resumable_say(c, RG_RESUMABLE_ACK);
        return;
    }
    c->ack_wanted = true;
    rg_resumable_changed(c);
}

static void count_received(struct rg_resumable *c)
{
    c->received++;
    c->unacknowledged_bytes += c->msg_size + c->bulk_size;
    if (c->unacknowledged_bytes >= RG_RESUMABLE_ACK_BYTES ||
        c->received - c->acknowledged >= RG_RESUMABLE_ACK_COUNT)
        rg_resumable_acknowledge(c);
}

/* Looks at what the link received. RG_ERR_NOT_FOUND: it is not for the user. */
static enum rg_status look_at(struct rg_resumable *c, struct rg_message *message)
{
    struct rg_resumable_header header;
    if (message->size < sizeof header)
        return RG_ERR_PROTOCOL;
    memcpy(&header, message->data, sizeof header);
    if (header.reserved || !rg_retransmit_acknowledge(c, header.received))
        return RG_ERR_PROTOCOL;
    if (header.kind == RG_RESUMABLE_DATA) {
        message->data = (const unsigned char *)message->data + sizeof header;
        message->size -= sizeof header;
        return RG_OK;
    }
    if (message->size != sizeof header || message->bulk_size ||
        (header.kind != RG_RESUMABLE_ACK && header.kind != RG_RESUMABLE_GOAWAY))
        return RG_ERR_PROTOCOL;
    if (header.kind == RG_RESUMABLE_GOAWAY)
        c->peer_says_goaway = true;
    else
        c->asked = c->unacknowledged_bytes >= AWAITED_MIN;
    return RG_ERR_NOT_FOUND;
}

/* The link has returned `status` and perhaps a message. RG_ERR_NOT_FOUND: one that is not for the user. */
static enum rg_status received(struct rg_resumable *c, uint64_t epoch, enum rg_status status,
                               struct rg_message *message)
{
    const bool failed = status != RG_OK && status != RG_ERR_TIMEOUT;
    if (status == RG_OK)
        status = look_at(c, message);
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT)
        rg_resumable_end(c, status);
    else if (failed)
        rg_resumable_break(c, epoch, status);
    rg_resumable_changed(c);
    if (c->asked) {
        c->asked = false;
        rg_resumable_acknowledge(c);
    }
    return status;
}

/* One message from the link, the lock given up meanwhile. As `received`. */
static enum rg_status receive(struct rg_resumable *c, int timeout_ms, struct rg_message *message)
{
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    c->receiving = true;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = rg_conn_recv(link, timeout_ms, message);
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    return received(c, epoch, status, message);
}

/* --- readers, and signal handlers that interrupt them --- */

bool rg_resumable_rests(const struct rg_conn *conn)
{
    const struct rg_resumable *c = (const struct rg_resumable *)conn;
    const bool parked = c->parked && !c->receiving; /* the handler's call before this one */
    return c->awaited && (parked || !c->parked) && rg_conn_rests(c->awaited);
}

/* The reader sleeps in its link, and a handler that has interrupted it receives: it is as if it were not inside. */
static void park(struct rg_resumable *c)
{
    if (!c->awaited || c->parked)
        return;
    c->parked = true;
    c->receiving = false;
}

/* The reader has come out of a link that a handler has used meanwhile. False: the link is lost. */
static bool unpark(struct rg_resumable *c)
{
    struct rg_conn *lost = c->parked_link;
    c->parked = false;
    c->parked_link = NULL;
    if (!lost)
        return true;
    pthread_mutex_unlock(&c->lock);
    rg_conn_destroy(lost);
    pthread_mutex_lock(&c->lock);
    return false;
}

/*
 * As `receive`, for the reader, or a handler that has interrupted it. RG_ERR_TIMEOUT also where what was waited for may have
 * been received by such a handler.
 */
static enum rg_status read_message(struct rg_resumable *c, int timeout_ms, struct rg_message *message)
{
    if (c->awaited)
        return receive(c, timeout_ms, message);
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    c->awaited = link;
    c->receiving = true;
    pthread_mutex_unlock(&c->lock);
    const enum rg_status status = rg_conn_recv(link, timeout_ms, message);
    pthread_mutex_lock(&c->lock);
    c->awaited = NULL;
    const bool parked = c->parked;
    if (parked && !unpark(c))
        return RG_ERR_TIMEOUT;
    c->receiving = false;
    const enum rg_status result = received(c, epoch, status, message);
    return parked && status != RG_OK ? RG_ERR_TIMEOUT : result;
}

void rg_resumable_drain(struct rg_resumable *c, int timeout_ms)
{
    while (c->state == RG_RESUMABLE_UP && !rg_resumable_is_read(c) && !c->has_ready && !c->in_use &&
           !c->in_bulk) {
        enum rg_status status = receive(c, timeout_ms, &c->ready);
        c->has_ready = status == RG_OK && c->state == RG_RESUMABLE_UP;
        if (status != RG_ERR_NOT_FOUND)
            return;
        timeout_ms = 0;
    }
}

/* --- messages --- */

/* Hands a message out; the lock is held. */
static void deliver(struct rg_resumable *c, struct rg_message *message)
{
    if (c->copy_all || message->size <= RG_RESUMABLE_COPIED_MAX) {
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

/* The message last returned is done with: so is the link that it lay in. */
static void let_go(struct rg_resumable *c)
{
    if (c->in_use && c->state == RG_RESUMABLE_BROKEN)
        rg_resumable_changed(c); /* the reconnector may wait for it */
    c->in_use = false;
    struct rg_conn *former_link = c->former_link;
    c->former_link = NULL;
    if (!former_link)
        return;
    pthread_mutex_unlock(&c->lock);
    rg_conn_destroy(former_link);
    pthread_mutex_lock(&c->lock);
}

enum rg_status rg_resumable_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    const uint64_t until = timeout_ms < 0 ? UINT64_MAX : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    pthread_mutex_lock(&c->lock);
    park(c);
    let_go(c);
    for (;;) {
        if (c->state == RG_RESUMABLE_OVER && c->last_words_size) {
            *out = (struct rg_message){.data = c->last_words, .size = c->last_words_size};
            c->last_words_size = 0; /* once */
            return unlocked(c), RG_OK;
        }
        if (c->state == RG_RESUMABLE_OVER) {
            const enum rg_status over = c->over;
            return unlocked(c), over;
        }
        if (c->has_ready) {
            c->has_ready = false;
            *out = c->ready;
            deliver(c, out);
            rg_resumable_changed(c);
            return unlocked(c), RG_OK;
        }
        const uint64_t now = until == UINT64_MAX ? 0 : rg_now_ns();
        const bool late = timeout_ms != 0 && now >= until;
        if (c->state == RG_RESUMABLE_BROKEN || c->receiving) {
            if (timeout_ms == 0 || late)
                return unlocked(c), RG_ERR_TIMEOUT;
            rg_resumable_sleep(c, until);
            continue;
        }
        if (late)
            return unlocked(c), RG_ERR_TIMEOUT;
        const int left = until == UINT64_MAX ? -1 : timeout_ms == 0 ? 0 : (int)((until - now) / 1000000u) + 1;
        enum rg_status status = read_message(c, left, out);
        if (status == RG_OK) {
            deliver(c, out);
            return unlocked(c), status;
        }
        if (status == RG_ERR_TIMEOUT && timeout_ms <= 0)
            return unlocked(c), status;
    }
}

/* By a new link the message comes again: passes over what had been taken of it. */
static void pass_over(struct rg_resumable *c)
{
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    struct rg_message again;
    enum rg_status status = receive(c, -1, &again);
    if (status != RG_OK)
        return;
    if (again.size != c->msg_size || again.bulk_size != c->bulk_size) {
        rg_resumable_end(c, RG_ERR_PROTOCOL);
        return;
    }
    c->receiving = true;
    pthread_mutex_unlock(&c->lock);
    status = c->bulk_taken ? rg_conn_recv_bulk(link, NULL, c->bulk_taken) : RG_OK;
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    if (status == RG_OK)
        c->bulk_epoch = epoch;
    else
        rg_resumable_break(c, epoch, status);
    rg_resumable_changed(c);
}

enum rg_status rg_resumable_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        enum rg_status status;
        if (c->state == RG_RESUMABLE_OVER) {
            status = c->over == RG_ERR_CLOSED ? RG_ERR_CLOSED : RG_ERR_LOST;
            return unlocked(c), status;
        }
        if (c->state == RG_RESUMABLE_BROKEN) {
            rg_resumable_sleep(c, UINT64_MAX);
            continue;
        }
        if (c->bulk_epoch != c->epoch) {
            pass_over(c);
            continue;
        }
        const uint64_t epoch = c->epoch;
        struct rg_conn *link = c->link;
        c->receiving = true;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_recv_bulk(link, buffer, size);
        pthread_mutex_lock(&c->lock);
        c->receiving = false;
        if (status == RG_OK || status == RG_ERR_FAULT) {
            c->bulk_taken += size;
            c->in_bulk = c->bulk_taken < c->bulk_size;
            if (!c->in_bulk)
                count_received(c);
            rg_resumable_changed(c);
            return unlocked(c), status;
        }
        rg_resumable_break(c, epoch, status);
        rg_resumable_changed(c);
    }
}

/*
 * Where the link fails, nothing of the rest is in advertised memory: it comes by rg_resumable_recv_bulk,
 * which waits for the next.
 */
enum rg_status rg_resumable_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    *size = 0;
    pthread_mutex_lock(&c->lock);
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    if ((c->state == RG_RESUMABLE_UP || c->state == RG_RESUMABLE_REPLAYING) && c->bulk_epoch == epoch) {
        c->receiving = true;
        pthread_mutex_unlock(&c->lock);
        enum rg_status status = rg_conn_take_advertised(link, most, memory, size);
        pthread_mutex_lock(&c->lock);
        c->receiving = false;
        if (status == RG_OK && *size > 0) {
            c->bulk_taken += *size;
            c->in_bulk = c->bulk_taken < c->bulk_size;
            if (!c->in_bulk)
                count_received(c);
        } else if (status == RG_ERR_PROTOCOL) {
            rg_resumable_end(c, status);
        } else if (status != RG_OK) {
            rg_resumable_break(c, epoch, status);
        }
        rg_resumable_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
    return RG_OK;
}
