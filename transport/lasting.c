/*
 * lasting.c - a connection that may change its carrier: what it is in, its making and destruction. See lasting.h, lasting_inside.h.
 */
#include "transport/lasting_inside.h"

#include "common/base/clock.h"
#include "common/base/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_NS = 2000000000 }; /* a loss so soon after the last */

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

void rg_lasting_break(struct rg_lasting *c, uint64_t epoch, enum rg_status status)
{
    if (epoch != c->epoch || (c->state != RG_LASTING_UP && c->state != RG_LASTING_REPLAYING))
        return;
    const bool ended = status == RG_ERR_CLOSED || rg_lasting_heard_lately(c->carrier);
    const bool shows = rg_lasting_shows_end(c->carrier); /* or the mender finds out whether it has ended */
    if ((ended || !shows) && !c->peer_leaves)
        rg_lasting_look_for_last_words(c);
    const bool meant = ended && c->peer_leaves;
    if (c->final || meant) {
        rg_lasting_end(c, meant ? RG_ERR_CLOSED : status);
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
    /* Who is inside comes out by itself where the connection has ended, and who reads may find the peer's word before; the
     * mender makes sure of it. */
    const bool reads_on = ended && shows && c->options.reads;
    if (!reads_on && (!c->receiving || (!ended && shows)))
        rg_conn_interrupt(c->carrier);
    rg_lasting_changed(c);
}

/* --- words of its own -------------------------------------------------------------------------------------------- */

struct rg_lasting_header rg_lasting_header_of(struct rg_lasting *c, enum rg_lasting_kind kind)
{
    c->told = c->received;
    c->untold_bytes = 0;
    c->ack_wanted = false;
    return (struct rg_lasting_header){.kind = kind, .received = c->received};
}

void rg_lasting_say(struct rg_lasting *c, enum rg_lasting_kind kind)
{
    struct rg_lasting_header header = rg_lasting_header_of(c, kind);
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

bool rg_lasting_has_room(const struct rg_conn *carrier)
{
    struct pollfd p = {.fd = rg_conn_fd(carrier), .events = POLLOUT};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
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

/* Goes into the carrier for something short, if there is one that is well; gives up the lock until leave(). NULL: there is none. */
static struct rg_conn *visit(struct rg_lasting *c)
{
    if (c->state != RG_LASTING_UP)
        return NULL;
    struct rg_conn *carrier = c->carrier;
    c->visitors++;
    pthread_mutex_unlock(&c->lock);
    return carrier;
}

/* The same for what must hold when it has been done: a carrier that has failed is gone then. */
static struct rg_conn *visit_last(struct rg_lasting *c)
{
    while (c->dropping || (c->state == RG_LASTING_BROKEN && c->carrier))
        rg_lasting_sleep(c, UINT64_MAX);
    struct rg_conn *carrier = c->carrier;
    if (!carrier)
        return NULL;
    c->visitors++;
    pthread_mutex_unlock(&c->lock);
    return carrier;
}

static void leave(struct rg_lasting *c)
{
    pthread_mutex_lock(&c->lock);
    c->visitors--;
    rg_lasting_changed(c);
}

static enum rg_status lasting_register(struct rg_conn *conn, void *base, size_t size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    enum rg_status status = RG_ERR_UNSUPPORTED;
    struct rg_conn *carrier;
    pthread_mutex_lock(&c->lock);
    if ((carrier = visit(c)) != NULL) {
        status = rg_conn_register(carrier, base, size);
        leave(c);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* What was registered with a carrier goes with it at the latest. What is held until told may lie in this memory. */
static void lasting_unregister(struct rg_conn *conn, void *base)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_conn *carrier;
    pthread_mutex_lock(&c->lock);
    rg_lasting_end_all(c, &rg_hold_until_told);
    if ((carrier = visit_last(c)) != NULL) {
        rg_conn_unregister(carrier, base);
        leave(c);
    }
    pthread_mutex_unlock(&c->lock);
}

/*
 * Loans are those of a carrier, and end with it: nothing is placed any more once it has been dropped, before the peer hears
 * of the next. What has been placed in part then comes again, by the next, to the same place.
 */
static enum rg_status lasting_lend(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                   size_t size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    enum rg_status status = RG_ERR_UNSUPPORTED;
    struct rg_conn *carrier;
    pthread_mutex_lock(&c->lock);
    if ((carrier = visit(c)) != NULL) {
        status = rg_conn_lend(carrier, tag, base, memory, size);
        leave(c);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

static void lasting_unlend(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    struct rg_conn *carrier;
    pthread_mutex_lock(&c->lock);
    if ((carrier = visit_last(c)) != NULL) {
        rg_conn_unlend(carrier, tag, memory);
        leave(c);
    }
    pthread_mutex_unlock(&c->lock);
}

static bool lasting_has_room(struct rg_conn *conn, size_t size)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    bool room = false;
    struct rg_conn *carrier;
    pthread_mutex_lock(&c->lock);
    if ((carrier = visit(c)) != NULL) {
        room = rg_conn_has_room(carrier, size);
        leave(c);
    }
    pthread_mutex_unlock(&c->lock);
    return room;
}

static void lasting_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct rg_lasting *c = (struct rg_lasting *)(uintptr_t)conn;
    pthread_mutex_lock(&c->lock);
    if (c->carrier) /* also when all is over: a session tells at its end */
        rg_conn_get_statistics(c->carrier, out);
    out->bulk_copied_sent += c->former.bulk_copied_sent;
    out->bulk_copied_received += c->former.bulk_copied_received;
    out->bulk_direct_sent += c->former.bulk_direct_sent;
    out->bulk_direct_received += c->former.bulk_direct_received;
    out->bulk_kept = c->bulk_kept;
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
    free(c->last_words);
    free(c);
}

static struct rg_transport_ops lasting_ops = {
    .name = "lasting",
    .send = rg_lasting_send,
    .is_apart = rg_lasting_is_apart,
    .send_head = rg_lasting_send_head,
    .send_tail = rg_lasting_send_tail,
    .end_hold = rg_lasting_end_hold,
    .hold_ended = rg_lasting_hold_ended,
    .recv = rg_lasting_recv,
    .recv_bulk = rg_lasting_recv_bulk,
    .interrupt = lasting_interrupt,
    .destroy = lasting_destroy,
    .set_read_ahead = lasting_set_read_ahead,
    .abandon = lasting_abandon,
    .register_memory = lasting_register,
    .unregister_memory = lasting_unregister,
    .lend = lasting_lend,
    .unlend = lasting_unlend,
    .take_lent = rg_lasting_take_lent,
    .has_room = lasting_has_room,
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
    /* the rest is what this does not pass on, or not from one carrier to the next */
    c->head.caps =
        rg_conn_caps(carrier) & (RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_ASKS | RG_CAP_LENDS);
    c->head.caps |= RG_CAP_KEEPS;
    c->head.piece_least = carrier->piece_least;
    c->head.rails = carrier->rails;
    memcpy(c->head.transport, carrier->transport, sizeof c->head.transport);
    memcpy(c->head.peer, carrier->peer, sizeof c->head.peer);
    c->options = *options;
    c->carrier = carrier;
    c->tether = tether;
    c->epoch = 1;
    c->kept_last = &c->kept;
    c->copy_all = rg_conn_fd(carrier) < 0;
    c->copy = malloc(c->copy_all ? RG_MESSAGE_MAX : RG_LASTING_COPIED_MAX);
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

struct rg_lasting *rg_lasting_of(struct rg_conn *conn)
{
    return conn && conn->ops == &lasting_ops ? (struct rg_lasting *)conn : NULL;
}

void rg_lasting_drop(struct rg_conn *conn)
{
    struct rg_lasting *c = rg_lasting_of(conn);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    rg_lasting_break(c, c->epoch, RG_ERR_LOST);
    if (c->state == RG_LASTING_BROKEN && c->carrier) { /* there is nothing more to be read from it */
        c->hurries = true;
        rg_conn_interrupt(c->carrier);
        rg_lasting_changed(c);
    }
    pthread_mutex_unlock(&c->lock);
}
