/*
 * lasting.c - sending and receiving over a connection that may change its carrier. See lasting.h, lasting_inside.h.
 *
 * Sending: the message is kept, then sent; the memory of its bulk data is the caller's as long as the call is inside,
 * and copied at the end unless the peer has acknowledged it by then. If the carrier fails, the caller waits until the
 * mender has sent the message by another. Receiving: a failure is waited out; bulk data that was under way is received
 * again, and what had been taken of it is passed over.
 */
#include "transport/lasting_inside.h"

#include "common/clock.h"
#include "common/thread.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    COPIED_MAX = 4096,       /* messages up to this are copied, so that they lie in nobody's way */
    APART_MIN = 128 << 10,   /* bulk data that may be sent by itself, if the carrier does that … */
    APART_ROOM = 1024,       /* … beside what it adds to a message */
    DRAIN_AT = 8 << 20,      /* bytes kept from which a sender looks for acknowledgements */
    DRAIN_MS = 10,           /* how long it waits for some, at RG_LASTING_KEPT_MAX … */
    DRAIN_TRIES = 200,       /* … and how often */
    AGAIN_NS = 2000000000,   /* a loss so soon after the last */
    HEARD_WITHIN_MS = 45000, /* more than the keepalive of a living peer takes (transport/tcp/socket.c) */
};

static void unlocked(struct rg_lasting *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* --- state --------------------------------------------------------------------------------------------------- */

void rg_lasting_sleep(struct rg_lasting *c, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    c->waiting++;
    if (until_ns == UINT64_MAX)
        pthread_cond_wait(&c->changed, &c->lock);
    else
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
    c->waiting--;
}

void rg_lasting_changed(struct rg_lasting *c)
{
    if (c->waiting)
        pthread_cond_broadcast(&c->changed);
    if (c->polling && (c->state != RG_LASTING_UP || c->ack_wanted || c->stopping))
        rg_waker_wake(&c->waker);
}

void rg_lasting_end(struct rg_lasting *c, enum rg_status status)
{
    if (c->state == RG_LASTING_OVER)
        return;
    c->state = RG_LASTING_OVER;
    c->over = status;
    if (c->carrier)
        rg_conn_interrupt(c->carrier);
    if (c->tether)
        rg_conn_interrupt(c->tether);
    rg_lasting_changed(c);
}

/* Whether the peer's machine has been heard of lately: then it ended the connection, and its process may be gone. */
static bool heard_lately(const struct rg_conn *conn)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    const int fd = conn ? rg_conn_fd(conn) : -1;
    if (fd < 0)
        return false;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return true; /* a unix socket: the kernel itself ended it */
    return info.tcpi_last_ack_recv < HEARD_WITHIN_MS;
}

void rg_lasting_break(struct rg_lasting *c, uint64_t epoch, enum rg_status status)
{
    if (epoch != c->epoch || (c->state != RG_LASTING_UP && c->state != RG_LASTING_REPLAYING))
        return;
    const bool ended = status == RG_ERR_CLOSED || heard_lately(c->carrier);
    if (c->final || (ended && c->peer_leaves)) {
        rg_lasting_end(c, status);
        return;
    }
    c->state = RG_LASTING_BROKEN;
    c->has_ready = false;
    /* A carrier that is lost at once and has carried nothing is no end of the last loss. */
    const uint64_t carried = c->received + (c->kept ? c->kept->seq : c->sent + 1);
    const uint64_t now = rg_now_ns();
    const bool again = carried == c->carried && c->loss.since_ns && now - c->renewed_ns < AGAIN_NS;
    const uint64_t since = again ? c->loss.since_ns : now;
    c->carried = carried;
    c->loss = (struct rg_lasting_loss){.status = status, .ended = ended, .since_ns = since};
    c->loss.until_ns = c->loss.since_ns + c->options.patience_ns;
    rg_conn_interrupt(c->carrier);
    rg_lasting_changed(c);
}

/* --- acknowledgements -------------------------------------------------------------------------------------------- */

static struct rg_lasting_header make_header(struct rg_lasting *c, enum rg_lasting_kind kind)
{
    c->told = c->received;
    c->untold_bytes = 0;
    c->ack_wanted = false;
    return (struct rg_lasting_header){.kind = kind, .received = c->received};
}

void rg_lasting_say(struct rg_lasting *c, enum rg_lasting_kind kind)
{
    struct rg_lasting_header header = make_header(c, kind);
    const struct iovec part = {&header, sizeof header};
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    c->sending = true;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = rg_conn_send(carrier, &part, 1, NULL, 0);
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    if (status != RG_OK)
        rg_lasting_break(c, epoch, status);
    rg_lasting_changed(c);
}

/* Whether a word of ours would be taken at once. */
static bool has_room(const struct rg_conn *carrier)
{
    struct pollfd p = {.fd = rg_conn_fd(carrier), .events = POLLOUT};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* A receiver must not wait for the peer to receive, or both may do so for ever: what cannot go at once is left to the
 * mender, or to the next message. */
static void acknowledge_if_due(struct rg_lasting *c)
{
    if (c->untold_bytes < RG_LASTING_ACK_BYTES && c->received - c->told < RG_LASTING_ACK_COUNT)
        return;
    if (c->state == RG_LASTING_UP && !c->sending && has_room(c->carrier)) {
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

/* --- sending ------------------------------------------------------------------------------------------------- */

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
    while (c->state != RG_LASTING_OVER && (c->state != RG_LASTING_UP || c->sending))
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
    const struct rg_lasting_header header = make_header(c, RG_LASTING_DATA);
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
    if (c->kept_bytes > DRAIN_AT)
        make_way(c);
    if (c->ack_wanted && c->state == RG_LASTING_UP && !c->sending)
        rg_lasting_say(c, RG_LASTING_ACK);
    pthread_mutex_unlock(&c->lock);
    return result;
}

static enum rg_status lasting_send(struct rg_conn *conn, const struct rg_outgoing *message)
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
    status = rg_conn_send(carrier, &part, 1, message->bulk, message->n_bulk);
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

static bool lasting_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size)
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
static enum rg_status lasting_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                        struct rg_bulk_ticket *out)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_lasting_kept *kept;
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

static enum rg_status lasting_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                        const struct iovec *bulk, int n_bulk)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_lasting_kept *kept = (struct rg_lasting_kept *)(uintptr_t)ticket->route;
    enum rg_status status = RG_ERR_LOST;
    pthread_mutex_lock(&c->lock);
    kept->bulk = bulk;
    kept->n_bulk = n_bulk;
    kept->promised = false;
    const uint64_t epoch = c->epoch;
    struct rg_conn *carrier = c->carrier;
    if (c->state != RG_LASTING_OVER && (kept->holds || (kept->epoch == epoch && carrier))) {
        const struct iovec part = {kept->data, kept->msg_size};
        c->tails++;
        pthread_mutex_unlock(&c->lock);
        status = kept->holds ? rg_conn_send(carrier, &part, 1, bulk, n_bulk)
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

/* --- receiving ------------------------------------------------------------------------------------------------- */

/* Hands a message out; the lock is held. */
static void deliver(struct rg_lasting *c, struct rg_message *message)
{
    if (c->copy_all || message->size <= COPIED_MAX) {
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
    c->in_use = false;
    struct rg_conn *retired = c->retired;
    c->retired = NULL;
    if (!retired)
        return;
    pthread_mutex_unlock(&c->lock);
    rg_conn_destroy(retired);
    pthread_mutex_lock(&c->lock);
}

static enum rg_status lasting_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    const uint64_t until = timeout_ms < 0 ? UINT64_MAX : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    pthread_mutex_lock(&c->lock);
    let_go(c);
    for (;;) {
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

static enum rg_status lasting_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
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

/* --- the rest ---------------------------------------------------------------------------------------------------- */

static void lasting_interrupt(struct rg_conn *conn)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    rg_lasting_end(c, RG_ERR_CLOSED);
    pthread_mutex_unlock(&c->lock);
}

static void lasting_set_read_ahead(struct rg_conn *conn)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    c->read_ahead = true;
    if (c->carrier)
        rg_conn_set_read_ahead(c->carrier);
    pthread_mutex_unlock(&c->lock);
}

/* In a child of a fork: no lock may be trusted. */
static void lasting_abandon(struct rg_conn *conn)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    if (c->carrier)
        rg_conn_abandon(c->carrier);
    if (c->tether)
        rg_conn_abandon(c->tether);
    rg_waker_fini(&c->waker);
}

static enum rg_status lasting_register(struct rg_conn *conn, void *base, size_t size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    enum rg_status status = RG_ERR_UNSUPPORTED;
    pthread_mutex_lock(&c->lock);
    if (c->state == RG_LASTING_UP) {
        struct rg_conn *carrier = c->carrier;
        c->registering++;
        pthread_mutex_unlock(&c->lock);
        status = rg_conn_register(carrier, base, size);
        pthread_mutex_lock(&c->lock);
        c->registering--;
        rg_lasting_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* What was registered with a carrier goes with it at the latest. */
static void lasting_unregister(struct rg_conn *conn, void *base)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    while (c->dropping || (c->state == RG_LASTING_BROKEN && c->carrier))
        rg_lasting_sleep(c, UINT64_MAX);
    if (c->carrier) {
        struct rg_conn *carrier = c->carrier;
        c->registering++;
        pthread_mutex_unlock(&c->lock);
        rg_conn_unregister(carrier, base);
        pthread_mutex_lock(&c->lock);
        c->registering--;
        rg_lasting_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
}

static void lasting_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct rg_lasting *c = (struct rg_lasting *)(uintptr_t)conn;
    pthread_mutex_lock(&c->lock);
    if (c->carrier && c->state == RG_LASTING_UP)
        rg_conn_get_statistics(c->carrier, out);
    out->bulk_copied_sent += c->former.bulk_copied_sent;
    out->bulk_copied_received += c->former.bulk_copied_received;
    out->bulk_direct_sent += c->former.bulk_direct_sent;
    out->bulk_direct_received += c->former.bulk_direct_received;
    pthread_mutex_unlock(&c->lock);
}

static void lasting_destroy(struct rg_conn *conn)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    const bool good = c->state == RG_LASTING_UP;
    c->stopping = true;
    if (good) /* what was sent is still delivered: the carrier is not interrupted */
        c->state = RG_LASTING_OVER;
    else
        rg_lasting_end(c, RG_ERR_CLOSED);
    rg_waker_wake(&c->waker);
    if (c->waiting)
        pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->mender, NULL);
    rg_conn_destroy(c->carrier);
    rg_conn_destroy(c->tether);
    rg_conn_destroy(c->retired);
    rg_lasting_kept_fini(c);
    rg_waker_fini(&c->waker);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->copy);
    free(c);
}

static struct rg_transport_ops lasting_ops = {
    .name = "lasting",
    .send = lasting_send,
    .is_apart = lasting_is_apart,
    .send_head = lasting_send_head,
    .send_tail = lasting_send_tail,
    .recv = lasting_recv,
    .recv_bulk = lasting_recv_bulk,
    .interrupt = lasting_interrupt,
    .destroy = lasting_destroy,
    .set_read_ahead = lasting_set_read_ahead,
    .abandon = lasting_abandon,
    .register_memory = lasting_register,
    .unregister_memory = lasting_unregister,
    .statistics = lasting_statistics,
};

static void complete_ops(void)
{
    rg_transport_complete(&lasting_ops, true);
}

static bool init_locks(struct rg_lasting *c)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&c->lock, NULL);
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return true;
}

struct rg_conn *rg_lasting_create(struct rg_conn *carrier, struct rg_conn *tether,
                                  const struct rg_lasting_options *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, complete_ops);
    struct rg_lasting *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->head.ops = &lasting_ops;
    c->head.caps = rg_conn_caps(carrier) & ~(unsigned)RG_CAP_FD;
    memcpy(c->head.transport, carrier->transport, sizeof c->head.transport);
    memcpy(c->head.peer, carrier->peer, sizeof c->head.peer);
    c->options = *options;
    c->carrier = carrier;
    c->tether = tether;
    c->epoch = 1;
    c->kept_last = &c->kept;
    c->copy_all = rg_conn_fd(carrier) < 0;
    c->copy = malloc(c->copy_all ? RG_MESSAGE_MAX : COPIED_MAX);
    if (c->copy && rg_waker_init(&c->waker) && init_locks(c)) {
        if (rg_thread_create(&c->mender, "rg-mender", rg_lasting_mend_main, c) == RG_OK)
            return &c->head;
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
    }
    rg_waker_fini(&c->waker);
    free(c->copy);
    free(c);
    return NULL;
}

static struct rg_lasting *lasting_of(struct rg_conn *conn)
{
    return conn && conn->ops == &lasting_ops ? (struct rg_lasting *)conn : NULL;
}

void rg_lasting_set_final(struct rg_conn *conn)
{
    struct rg_lasting *c = lasting_of(conn);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->final = true;
    if (c->state == RG_LASTING_BROKEN)
        rg_lasting_end(c, c->loss.status);
    pthread_mutex_unlock(&c->lock);
}

void rg_lasting_leave(struct rg_conn *conn)
{
    struct rg_lasting *c = lasting_of(conn);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    if (c->state == RG_LASTING_UP && !c->sending && (rg_conn_fd(c->carrier) < 0 || has_room(c->carrier)))
        rg_lasting_say(c, RG_LASTING_LEAVE);
    pthread_mutex_unlock(&c->lock);
}

void rg_lasting_drop(struct rg_conn *conn)
{
    struct rg_lasting *c = lasting_of(conn);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    rg_lasting_break(c, c->epoch, RG_ERR_LOST);
    pthread_mutex_unlock(&c->lock);
}
