/*
 * resumable.c - a connection that may change its link: what it is in, its making and destruction. See
 * resumable.h, internal.h.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_NS = 2000000000 }; /* a loss so soon after the last */

/* --- state --- */

void rg_resumable_sleep(struct rg_resumable *c, uint64_t until_ns)
{
    struct timespec until = rg_timespec(until_ns);
    c->waiting++;
    if (until_ns == UINT64_MAX)
        pthread_cond_wait(&c->changed, &c->lock);
    else
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
    c->waiting--;
}

void rg_resumable_changed(struct rg_resumable *c)
{
    rg_resumable_wake(c);
    if (c->polling && (c->state != RG_RESUMABLE_UP || (c->ack_wanted && !c->sending) ||
                       c->stopping)) /* or who sends says it */
        rg_waker_wake(&c->waker);
}

void rg_resumable_end(struct rg_resumable *c, enum rg_status status)
{
    if (c->state == RG_RESUMABLE_OVER)
        return;
    c->state = RG_RESUMABLE_OVER;
    c->over = status;
    if (c->link)
        rg_conn_interrupt(c->link);
    if (c->control_conn)
        rg_conn_interrupt(c->control_conn);
    rg_resumable_changed(c);
}

void rg_resumable_break(struct rg_resumable *c, uint64_t epoch, enum rg_status status)
{
    if (epoch != c->epoch || (c->state != RG_RESUMABLE_UP && c->state != RG_RESUMABLE_REPLAYING))
        return;
    const bool ended = status == RG_ERR_CLOSED || rg_resumable_heard_lately(c->link);
    const bool shows =
        rg_resumable_shows_end(c->link); /* or the reconnector finds out whether it has ended */
    if ((ended || !shows) && !c->peer_says_goaway)
        rg_resumable_look_for_last_words(c);
    const bool meant = ended && c->peer_says_goaway;
    if (c->final || meant) {
        rg_resumable_end(c, meant ? RG_ERR_CLOSED : status);
        return;
    }
    c->state = RG_RESUMABLE_BROKEN;
    c->has_ready = false;
    /* A link that is lost at once and has carried nothing is no end of the last loss. */
    const uint64_t carried = c->received + (c->queue ? c->queue->seq : c->sent + 1);
    const uint64_t now = rg_now_ns();
    const bool again = carried == c->carried && c->loss.since_ns && now - c->renewed_ns < AGAIN_NS;
    const uint64_t since = again ? c->loss.since_ns : now;
    c->carried = carried;
    c->loss = (struct rg_resumable_loss){.status = status, .ended = ended, .since_ns = since};
    c->loss.until_ns = c->loss.since_ns + c->options.patience_ns;
    /*
     * Who is inside comes out by itself where the connection has ended, and who reads may find the peer's
     * word before; the reconnector makes sure of it.
     */
    const bool reads_on = ended && shows && c->options.reads;
    if (!reads_on && (!rg_resumable_is_read(c) || (!ended && shows)))
        rg_conn_interrupt(c->link);
    rg_resumable_changed(c);
}

/* --- words of its own --- */

struct rg_resumable_header rg_resumable_header_of(struct rg_resumable *c, enum rg_resumable_kind kind)
{
    c->acknowledged = c->received;
    c->unacknowledged_bytes = 0;
    c->ack_wanted = false;
    return (struct rg_resumable_header){.kind = kind, .received = c->received};
}

void rg_resumable_say(struct rg_resumable *c, enum rg_resumable_kind kind)
{
    struct rg_resumable_header header = rg_resumable_header_of(c, kind);
    const struct iovec part = {&header, sizeof header};
    const uint64_t epoch = c->epoch;
    struct rg_conn *link = c->link;
    c->words++;
    c->sending = true;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = rg_conn_send(link, &(struct rg_send){.msg = &part, .n_msg = 1});
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    if (status != RG_OK)
        rg_resumable_break(c, epoch, status);
    rg_resumable_changed(c);
}

bool rg_resumable_is_writable(const struct rg_conn *link)
{
    struct pollfd p = {.fd = rg_conn_fd(link), .events = POLLOUT};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* --- the rest --- */

static void resumable_interrupt(struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    rg_resumable_end(c, RG_ERR_CLOSED);
}

static void resumable_set_read_ahead(struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    c->read_ahead = true;
    if (c->link)
        rg_conn_set_read_ahead(c->link);
}

/* In a child of a fork: no lock may be trusted. */
static void resumable_abandon(struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    if (c->link)
        rg_conn_abandon(c->link);
    if (c->control_conn)
        rg_conn_abandon(c->control_conn);
    rg_waker_fini(&c->waker);
}

struct rg_conn *rg_resumable_visit(struct rg_resumable *c)
{
    if (c->state != RG_RESUMABLE_UP)
        return NULL;
    struct rg_conn *link = c->link;
    c->visitors++;
    pthread_mutex_unlock(&c->lock);
    return link;
}

struct rg_conn *rg_resumable_visit_last(struct rg_resumable *c)
{
    while (c->dropping || (c->state == RG_RESUMABLE_BROKEN && c->link))
        rg_resumable_sleep(c, UINT64_MAX);
    struct rg_conn *link = c->link;
    if (!link)
        return NULL;
    c->visitors++;
    pthread_mutex_unlock(&c->lock);
    return link;
}

void rg_resumable_leave(struct rg_resumable *c)
{
    pthread_mutex_lock(&c->lock);
    c->visitors--;
    rg_resumable_changed(c);
}

static bool resumable_backlog(const struct rg_conn *conn, size_t *unread, size_t *unsent)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&c->lock);
    return c->link && c->over == RG_OK && c->link->ops->backlog(c->link, unread, unsent);
}

/* While messages are sent again it is not: a peer that takes none is silent. */
static bool resumable_lost(const struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&c->lock);
    return c->state == RG_RESUMABLE_BROKEN;
}

static bool resumable_channel_progress(const struct rg_conn *conn, unsigned place,
                                       struct rg_conn_progress *out)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&c->lock);
    return c->link && c->over == RG_OK && rg_conn_channel_progress(c->link, place, out);
}

static bool resumable_give_up_channel(struct rg_conn *conn, unsigned place)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    return c->link && c->over == RG_OK && rg_conn_give_up_channel(c->link, place);
}

static void resumable_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&c->lock);
    if (c->link) /* also when all is over: a session tells at its end */
        rg_conn_get_statistics(c->link, out);
    rg_statistics_add(out, &c->former);
    out->bulk_kept = c->bulk_kept;
}

static void resumable_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    struct rg_resumable *c = (struct rg_resumable *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&c->lock);
    if (c->link)
        rg_conn_security(c->link, out);
}

static void resumable_destroy(struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    pthread_mutex_lock(&c->lock);
    const bool good = c->state == RG_RESUMABLE_UP;
    c->stopping = true;
    if (good) /* what was sent is still delivered: the link is not interrupted */
        c->state = RG_RESUMABLE_OVER;
    else
        rg_resumable_end(c, RG_ERR_CLOSED);
    rg_waker_wake(&c->waker);
    rg_resumable_wake(c);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->reconnector, NULL);
    rg_conn_destroy(c->link);
    rg_conn_destroy(c->control_conn);
    rg_conn_destroy(c->former_link);
    rg_conn_destroy(c->parked_link);
    rg_retransmit_fini(c);
    rg_registered_fini(c);
    rg_waker_fini(&c->waker);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->copy);
    free(c->last_words);
    free(c);
}

static struct rg_transport_ops resumable_ops = {
    .name = "resumable",
    .send = rg_resumable_send,
    .send_detached = rg_resumable_send_detached,
    .end_lease = rg_resumable_end_lease,
    .lease_ended = rg_resumable_lease_ended,
    .recv = rg_resumable_recv,
    .rests = rg_resumable_rests,
    .recv_bulk = rg_resumable_recv_bulk,
    .interrupt = resumable_interrupt,
    .destroy = resumable_destroy,
    .set_read_ahead = resumable_set_read_ahead,
    .abandon = resumable_abandon,
    .register_memory = rg_resumable_register,
    .unregister_memory = rg_resumable_unregister,
    .advertise = rg_resumable_advertise,
    .withdraw = rg_resumable_withdraw,
    .take_advertised = rg_resumable_take_advertised,
    .has_advertised = rg_resumable_has_advertised,
    .adverts_ended = rg_resumable_adverts_ended,
    .backlog = resumable_backlog,
    .lost = resumable_lost,
    .channel_progress = resumable_channel_progress,
    .give_up_channel = resumable_give_up_channel,
    .statistics = resumable_statistics,
    .security = resumable_security,
};

static void complete_ops(void)
{
    rg_transport_complete(&resumable_ops, true);
}

struct rg_conn *rg_resumable_create(struct rg_conn *link, struct rg_conn *control_conn,
                                    const struct rg_resumable_options *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, complete_ops);
    struct rg_resumable *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->head.ops = &resumable_ops;
    /* the rest is what this does not pass on, or not from one link to the next */
    c->head.caps = rg_conn_caps(link) &
                   (RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_ASKS | RG_CAP_ADVERTISES);
    c->head.caps |= RG_CAP_RETRANSMITS;
    c->head.piece_least = link->piece_least;
    c->head.rails = link->rails;
    memcpy(c->head.transport, link->transport, sizeof c->head.transport);
    memcpy(c->head.peer, link->peer, sizeof c->head.peer);
    c->options = *options;
    c->link = link;
    c->control_conn = control_conn;
    c->epoch = c->registered_epoch = c->adverts_epoch = 1;
    c->renewed_ns = rg_now_ns();
    c->queue_last = &c->queue;
    c->copy_all = rg_conn_fd(link) < 0;
    c->copy_size = c->copy_all ? RG_MESSAGE_MAX : RG_RESUMABLE_COPIED_MAX;
    c->copy = malloc(c->copy_size);
    if (c->copy && rg_waker_init(&c->waker)) {
        pthread_mutex_init(&c->lock, NULL);
        rg_cond_init(&c->changed);
        if (rg_thread_create(&c->reconnector, "rg-reconnector", rg_resumable_reconnect_main, c) == RG_OK)
            return &c->head;
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
    }
    rg_waker_fini(&c->waker);
    free(c->copy);
    free(c);
    return NULL;
}

struct rg_resumable *rg_resumable_of(struct rg_conn *conn)
{
    return conn && conn->ops == &resumable_ops ? (struct rg_resumable *)conn : NULL;
}

void rg_resumable_discard_control(struct rg_conn *control_conn)
{
    if (control_conn)
        rg_conn_reset(control_conn);
    rg_conn_destroy(control_conn);
}

void rg_resumable_set_control(struct rg_conn *conn, struct rg_conn *control_conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    struct rg_conn *unused = control_conn;
    if (c) {
        RG_SCOPED_LOCK(&c->lock);
        /* while there is no link, what comes next is not known; one without a descriptor has its own */
        if (c->state == RG_RESUMABLE_UP && rg_resumable_shows_end(c->link)) {
            unused = c->control_conn;
            c->control_conn = control_conn;
            c->control_ended_ns = 0;
            if (c->polling)
                rg_waker_wake(&c->waker);
        }
    }
    rg_resumable_discard_control(unused);
}

void rg_resumable_drop(struct rg_conn *conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    if (!c)
        return;
    RG_SCOPED_LOCK(&c->lock);
    rg_resumable_break(c, c->epoch, RG_ERR_LOST);
    if (c->state == RG_RESUMABLE_BROKEN && c->link) { /* there is nothing more to be read from it */
        c->hurries = true;
        rg_conn_interrupt(c->link);
        rg_resumable_changed(c);
    }
}
