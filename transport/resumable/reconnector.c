/*
 * reconnector.c - the thread that looks after a resumable connection's link.
 *
 * While all is well it sleeps in poll, to notice the end of a connection that nobody uses just now, and to
 * send acknowledgements that the receiver could not. When the link has failed it waits until nobody is
 * inside, drops it, gets a new one, and sends what the peer has not received. A failure meanwhile starts this
 * over.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"
#include "common/base/poll.h"
#include "common/sync/scoped_lock.h"
#include "proto/wire.h"

#include <stdio.h>
#include <string.h>

enum {
    BACKOFF_MS = 50, /* after the first attempt, doubled each time … */
    BACKOFF_MAX_MS = 2000,
    READ_ON_MS = 4000, /* less than who has ended a connection is waited for (server/handshake/resume.c) */
    ACK_AGAIN_MS = 20,
    CONTROL_MS =
        300, /* the ends of link and control connection, of which either may come first, are no further apart … */
    APART_MS = 3000, /* … on this machine; or so, if they are noticed late */
};

/* --- noticing --- */

/*
 * Whether the peer's last words lie ready: they are worth waiting for their reader; anything else comes
 * again.
 */
static bool has_last_words(const struct rg_resumable *c)
{
    struct rg_message_header header = {0};
    if (c->has_ready && c->ready.size >= sizeof header)
        memcpy(&header, c->ready.data, sizeof header);
    return header.kind == RG_MESSAGE_CONTROL;
}

/* The link has ended, and nobody is inside; it may still hold what came before that. */
static void look_closer(struct rg_resumable *c)
{
    if (rg_resumable_shows_end(c->link))
        rg_resumable_drain(c, 0);
    if (!has_last_words(c))
        rg_resumable_break(c, c->epoch, RG_ERR_CLOSED);
}

/*
 * Until when it is left to others to notice that the link has ended: to who receives, or comes back to it and
 * reads what came before. A link may never show it, if it is the control connection that has.
 */
static uint64_t noticed_until(const struct rg_resumable *c)
{
    if (has_last_words(c))
        return UINT64_MAX;
    if (!rg_resumable_is_read(c) && !c->options.reads)
        return 0;
    return rg_resumable_shows_end(c->link) ? UINT64_MAX : c->hung_up_ns + CONTROL_MS * 1000000ull;
}

/* For how long the link has still to be in use before that is told; -1: nobody wants to know, or knows. */
static int unsettled(const struct rg_resumable *c)
{
    if (!c->options.settled || c->settled == c->epoch || !rg_resumable_shows_end(c->link))
        return -1;
    const uint64_t until = c->renewed_ns + RG_RESUMABLE_SETTLED_MS * 1000000ull, now = rg_now_ns();
    return until > now ? (int)((until - now) / 1000000u) + 1 : 0;
}

static void tell_settled(struct rg_resumable *c)
{
    c->settled = c->epoch;
    pthread_mutex_unlock(&c->lock);
    c->options.settled(c->options.user);
    pthread_mutex_lock(&c->lock);
}

/*
 * Sleeps until there is something to do. For an acknowledgement that cannot be sent now it looks again soon:
 * a peer that only sends takes none, and if this waited until it does, whoever sends here would wait too; if
 * that is who receives, both sides would for ever.
 */
static void watch(struct rg_resumable *c)
{
    int longest_ms = c->ack_wanted ? ACK_AGAIN_MS : rg_waker_fd(&c->waker) < 0 ? 1000 : -1;
    const int unsettled_ms = unsettled(c);
    if (unsettled_ms >= 0 && (longest_ms < 0 || unsettled_ms < longest_ms))
        longest_ms = unsettled_ms;
    const uint64_t epoch = c->epoch;
    const struct rg_conn *control_conn = c->control_conn;
    const bool by_control = !rg_resumable_shows_end(c->link) && control_conn;
    const int fd = rg_conn_fd(by_control ? control_conn : c->link);
    const bool beside = control_conn && !by_control && !c->control_ended_ns;
    struct pollfd fds[3] = {{.fd = fd, .events = POLLRDHUP},
                            {.fd = rg_waker_fd(&c->waker), .events = POLLIN},
                            {.fd = beside ? rg_conn_fd(control_conn) : -1, .events = POLLRDHUP}};
    c->polling = true;
    pthread_mutex_unlock(&c->lock);
    (void)rg_poll(fds, 3, longest_ms);
    pthread_mutex_lock(&c->lock);
    c->polling = false;
    rg_waker_rest(&c->waker);
    if (fds[0].revents) {
        c->hung_up = epoch;
        c->hung_up_ns = rg_now_ns();
    }
    if (fds[2].revents && c->control_conn == control_conn)
        c->control_ended_ns = rg_now_ns();
}

/* --- mending --- */

/*
 * Whether the peer has ended the control connection, or does so in a moment; what that tells of it; and whether it said by
 * it that its end is meant.
 */
static bool control_ended(struct rg_conn *control_conn, enum rg_resumable_peer *peer, bool *says_goaway)
{
    struct pollfd p = {.fd = rg_conn_fd(control_conn), .events = POLLRDHUP};
    struct rg_message message;
    if (rg_poll(&p, 1, CONTROL_MS) != 1)
        return false;
    *peer = rg_resumable_peer(p.fd);
    *says_goaway = rg_conn_recv(control_conn, 0, &message) == RG_OK &&
                   rg_resumable_is_word(&message, RG_RESUMABLE_GOAWAY);
    return *says_goaway || rg_resumable_heard_lately(control_conn);
}

/* Waits until nobody is inside the failed link. Whoever stays, for more than a moment, is called out. */
static void await_nobody(struct rg_resumable *c)
{
    const uint64_t until = rg_now_ns() + CONTROL_MS * 1000000ull;
    bool called = false;
    while (c->sending || c->receiving || c->detached || c->visitors) {
        if (!called && c->link && rg_now_ns() >= until) {
            rg_conn_interrupt(c->link);
            called = true;
        }
        rg_resumable_sleep(c, called ? UINT64_MAX : until);
    }
}

/* Waits until the message that was received last is done with, if what came behind it is to be looked at. */
static void await_reader(struct rg_resumable *c)
{
    const uint64_t until = rg_now_ns() + READ_ON_MS * 1000000ull;
    while (c->loss.ended && c->options.reads && rg_resumable_shows_end(c->link) && !c->peer_says_goaway &&
           !c->hurries && c->in_use && c->state == RG_RESUMABLE_BROKEN && rg_now_ns() < until)
        rg_resumable_sleep(c, until);
}

/*
 * Whether the control connection beside a link that shows its end was closed well before that ended. The kernel of a
 * process that ends closes both at once: so something between has closed it, and it tells nothing.
 */
static bool control_tells_nothing(const struct rg_resumable *c)
{
    const uint64_t link_ended_ns = c->hung_up == c->epoch ? c->hung_up_ns : c->loss.since_ns;
    return c->control_ended_ns && c->control_ended_ns + APART_MS * 1000000ull < link_ended_ns &&
           rg_resumable_peer(rg_conn_fd(c->control_conn)) == RG_PEER_GONE;
}

/*
 * Lets go of the failed link, once nobody is inside. Its queue pair is gone before the peer hears of us:
 * nothing can be written into our memory any more.
 */
static void drop_link(struct rg_resumable *c)
{
    await_nobody(c);
    if (!c->link)
        return;
    await_reader(c);
    struct rg_conn *link = c->link, *control_conn = NULL;
    const bool shows = rg_resumable_shows_end(link);
    if (!shows || control_tells_nothing(c)) { /* else it stays, and goes on telling of the peer */
        control_conn = c->control_conn;
        c->control_conn = NULL;
        c->control_ended_ns = 0;
    }
    const bool may_have_ended = c->loss.ended || !shows;
    if (may_have_ended && !c->peer_says_goaway && c->state == RG_RESUMABLE_BROKEN)
        rg_resumable_look_for_last_words(c); /* which whoever was receiving when it broke has left unread */
    if (c->loss.ended && c->peer_says_goaway)
        rg_resumable_end(c, RG_ERR_CLOSED);
    struct rg_conn_statistics its;
    rg_conn_get_statistics(link, &its);
    rg_statistics_add(&c->former, &its);
    rg_conn_set_control(link,
                        NULL); /* it may be kept for what was received by it, the control connection is not */
    rg_conn_reset(link); /* or the peer's reconnector, whom nobody interrupts, may stay in a send by it */
    if (c->parked && c->awaited == link) {
        c->parked_link = link;
        link = NULL;
    } else if (c->in_use && c->in_use_from == c->epoch && !c->former_link) {
        c->former_link = link;
        link = NULL;
    }
    c->link = NULL; /* from now on nobody can get at it */
    c->dropping = true;
    pthread_mutex_unlock(&c->lock);
    if (c->options.dropped)
        c->options.dropped(c->options.user);
    bool says_goaway = false;
    const bool by_control = control_conn && !shows;
    enum rg_resumable_peer peer = by_control ? RG_PEER_LIVES : RG_PEER_UNKNOWN;
    const bool ended = by_control && control_ended(control_conn, &peer, &says_goaway);
    rg_conn_destroy(link);
    rg_resumable_discard_control(control_conn);
    pthread_mutex_lock(&c->lock);
    c->dropping = c->hurries = false;
    c->peer_says_goaway |= says_goaway;
    if (by_control)
        c->loss.ended = ended;
    c->loss.peer = peer;
    if (ended && c->peer_says_goaway) /* the link alone did not tell that this was an end */
        rg_resumable_end(c, RG_ERR_CLOSED);
    rg_resumable_changed(c);
}

/* What was sent and has not arrived, by the new link. Ends early if that fails too. */
static void replay(struct rg_resumable *c)
{
    const uint64_t epoch = c->epoch;
    struct rg_retransmit_entry *next = c->queue;
    while (next && c->state == RG_RESUMABLE_REPLAYING) {
        struct rg_retransmit_entry *entry = next;
        entry->replaying = true; /* so that it stays */
        const struct rg_resumable_header header = {.kind = RG_RESUMABLE_DATA, .received = c->received};
        c->acknowledged = c->received;
        c->unacknowledged_bytes = 0;
        memcpy(entry->data, &header, sizeof header);
        const struct iovec part = {entry->data, entry->msg_size};
        struct rg_send again = {
            .msg = &part, .n_msg = 1, .bulk = entry->send.bulk, .n_bulk = entry->send.n_bulk};
        struct rg_conn *link = c->link;
        c->on_wire = entry->seq;
        c->sending = true;
        c->replayed = entry;
        pthread_mutex_unlock(&c->lock);
        enum rg_status status = rg_conn_send(link, &again);
        pthread_mutex_lock(&c->lock);
        entry->replaying = c->sending = false;
        c->replayed = NULL;
        next = entry->next;
        if (status == RG_ERR_FAULT &&
            !entry->busy) { /* held memory that is gone: nobody is there to be told */
            rg_error("%s: data that had to be sent again was not there any more", c->head.peer);
            rg_resumable_end(c, RG_ERR_LOST);
        } else if (status == RG_ERR_FAULT)
            entry->fault = true;
        else if (status != RG_OK)
            rg_resumable_break(c, epoch, status);
        rg_retransmit_release(c, entry);
        rg_resumable_wake(c);
    }
}

/* Takes a new link into use, if what both sides have fits together. */
static enum rg_status install(struct rg_resumable *c, struct rg_conn *link, struct rg_conn *control_conn,
                              uint64_t peer_received)
{
    c->on_wire = c->sent;
    if (peer_received < c->forgotten) {
        snprintf(c->loss.why, sizeof c->loss.why, "more data was on its way than is kept for such a case");
        return RG_ERR_LIMIT;
    }
    if (rg_conn_fd(link) < 0 && c->copy_size < RG_MESSAGE_MAX)
        return RG_ERR_UNSUPPORTED; /* its messages would have to be copied */
    const uint64_t first = c->queue ? c->queue->seq : c->sent + 1;
    if (peer_received > c->sent || peer_received + 1 < first) {
        snprintf(c->loss.why, sizeof c->loss.why, "the other side does not know what this one does");
        return RG_ERR_PROTOCOL;
    }
    (void)rg_retransmit_acknowledge(c, peer_received);
    c->on_wire = peer_received;
    c->link = link;
    if (control_conn) {
        c->control_conn = control_conn;
        c->control_ended_ns = 0;
    }
    c->epoch++;
    c->renewed_ns = rg_now_ns();
    if (c->read_ahead)
        rg_conn_set_read_ahead(link);
    c->copy_all = rg_conn_fd(link) < 0;
    c->state = RG_RESUMABLE_REPLAYING;
    rg_resumable_changed(c);
    return RG_OK;
}

/* One attempt; the lock is given up meanwhile. */
static enum rg_status attempt(struct rg_resumable *c)
{
    struct rg_resumable_loss loss = c->loss;
    const uint64_t received = c->received;
    struct rg_conn *link = NULL, *control_conn = NULL, *earlier = c->control_conn;
    uint64_t peer_received = 0;
    loss.control_fd = earlier ? rg_conn_fd(earlier) : -1; /* nothing replaces it while there is no link */
    pthread_mutex_unlock(&c->lock);
    enum rg_status status =
        c->options.renew(c->options.user, &loss, received, &link, &control_conn, &peer_received);
    pthread_mutex_lock(&c->lock);
    c->loss = loss;
    if (status == RG_OK && c->state == RG_RESUMABLE_BROKEN)
        status = install(c, link, control_conn, peer_received);
    else if (status == RG_OK)
        status = RG_ERR_CLOSED;
    if (status == RG_OK && (!control_conn || !earlier))
        return status;
    pthread_mutex_unlock(&c->lock);
    if (status != RG_OK) {
        rg_conn_destroy(link);
        rg_resumable_discard_control(control_conn);
    } else {
        rg_resumable_discard_control(earlier);
    }
    pthread_mutex_lock(&c->lock);
    return status;
}

static void report(struct rg_resumable *c, enum rg_resumable_event event)
{
    const struct rg_resumable_loss loss = c->loss;
    pthread_mutex_unlock(&c->lock);
    c->options.report(c->options.user, event, &loss);
    pthread_mutex_lock(&c->lock);
}

/* A new link, or the end. */
static void renew(struct rg_resumable *c)
{
    unsigned pause_ms = BACKOFF_MS;
    bool reported = false;
    while (c->state == RG_RESUMABLE_BROKEN) {
        enum rg_status status = attempt(c);
        if (status == RG_OK || c->state != RG_RESUMABLE_BROKEN)
            return;
        const bool final = status == RG_ERR_REFUSED || status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT;
        const uint64_t now = rg_now_ns();
        if (final || now >= c->loss.until_ns) {
            report(c, RG_RESUMABLE_GAVE_UP);
            rg_resumable_end(c, c->loss.status);
            return;
        }
        if (!reported)
            report(c, RG_RESUMABLE_LOST);
        reported = true;
        uint64_t until = now + pause_ms * 1000000ull;
        if (until > c->loss.until_ns)
            until = c->loss.until_ns;
        while (c->state == RG_RESUMABLE_BROKEN && rg_now_ns() < until)
            rg_resumable_sleep(c, until);
        pause_ms = pause_ms * 2 < BACKOFF_MAX_MS ? pause_ms * 2 : BACKOFF_MAX_MS;
    }
}

static void mend(struct rg_resumable *c)
{
    drop_link(c);
    renew(c);
    if (c->state != RG_RESUMABLE_REPLAYING)
        return;
    replay(c);
    if (c->state != RG_RESUMABLE_REPLAYING)
        return;
    c->state = RG_RESUMABLE_UP;
    rg_resumable_changed(c);
    if (c->says_goaway && !c->sending) /* the word may have been lost with the former link */
        rg_resumable_say(c, RG_RESUMABLE_GOAWAY);
    report(c, RG_RESUMABLE_RESUMED);
}

void *rg_resumable_reconnect_main(void *connection)
{
    struct rg_resumable *c = connection;
    RG_SCOPED_LOCK(&c->lock);
    while (!c->stopping) {
        if (c->state == RG_RESUMABLE_BROKEN)
            mend(c);
        else if (c->state == RG_RESUMABLE_OVER)
            rg_resumable_sleep(c, UINT64_MAX);
        else if (c->ack_wanted && !c->sending && rg_conn_has_credit(c->link))
            rg_resumable_say(c, RG_RESUMABLE_ACK);
        else if (rg_registered_is_missing(c))
            rg_registered_renew_one(c);
        else if (c->hung_up == c->epoch && rg_now_ns() < noticed_until(c))
            rg_resumable_sleep(c, noticed_until(c));
        else if (c->hung_up == c->epoch)
            look_closer(c);
        else if (unsettled(c) == 0)
            tell_settled(c);
        else
            watch(c);
    }
    return NULL;
}
