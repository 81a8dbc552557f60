/*
 * lasting_mender.c - the thread that looks after a lasting connection's carrier.
 *
 * While all is well it sleeps in poll, to notice the end of a connection that nobody uses just now, and to send
 * acknowledgements that the receiver could not. When the carrier has failed it waits until nobody is inside, drops it,
 * gets a new one, and sends what the peer has not received. A failure meanwhile starts this over.
 */
#include "transport/lasting_inside.h"

#include "common/clock.h"
#include "proto/wire.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    BACKOFF_MS = 50, /* after the first attempt, doubled each time … */
    BACKOFF_MAX_MS = 2000,
    READ_ON_MS = 4000, /* less than who has ended a connection is waited for (server/handshake/resume.c) */
    ACK_AGAIN_MS = 20,
    TETHER_MS =
        300, /* the ends of carrier and tether, of which either may come first, are no further apart */
};

/* --- noticing ---------------------------------------------------------------------------------------------------- */

/* Whether the peer's last words lie ready: they are worth waiting for their reader; anything else comes again. */
static bool has_last_words(const struct rg_lasting *c)
{
    struct rg_message_header header = {0};
    if (c->has_ready && c->ready.size >= sizeof header)
        memcpy(&header, c->ready.data, sizeof header);
    return header.kind == RG_MESSAGE_CONTROL;
}

/* The carrier has ended, and nobody is inside; it may still hold what came before that. */
static void look_closer(struct rg_lasting *c)
{
    if (rg_lasting_shows_end(c->carrier))
        rg_lasting_drain(c, 0);
    if (!has_last_words(c))
        rg_lasting_break(c, c->epoch, RG_ERR_CLOSED);
}

/* Until when it is left to others to notice that the carrier has ended: to who receives, or comes back to it and reads what
 * came before. A carrier may never show it, if it is the tether that has. */
static uint64_t noticed_until(const struct rg_lasting *c)
{
    if (has_last_words(c))
        return UINT64_MAX;
    if (!c->receiving && !c->options.reads)
        return 0;
    return rg_lasting_shows_end(c->carrier) ? UINT64_MAX : c->hung_up_ns + TETHER_MS * 1000000ull;
}

/*
 * Sleeps until there is something to do. For an acknowledgement that cannot be sent now it looks again soon: a peer that only
 * sends takes none, and if this waited until it does, whoever sends here would wait too; if that is who receives, both sides
 * would for ever.
 */
static void watch(struct rg_lasting *c)
{
    const int longest_ms = c->ack_wanted ? ACK_AGAIN_MS : rg_waker_fd(&c->waker) < 0 ? 1000 : -1;
    const uint64_t epoch = c->epoch;
    const bool by_tether = !rg_lasting_shows_end(c->carrier) && c->tether;
    const int fd = rg_conn_fd(by_tether ? c->tether : c->carrier);
    struct pollfd fds[2] = {{.fd = fd, .events = POLLRDHUP},
                            {.fd = rg_waker_fd(&c->waker), .events = POLLIN}};
    c->polling = true;
    pthread_mutex_unlock(&c->lock);
    (void)poll(fds, 2, longest_ms);
    pthread_mutex_lock(&c->lock);
    c->polling = false;
    rg_waker_rest(&c->waker);
    if (fds[0].revents) {
        c->hung_up = epoch;
        c->hung_up_ns = rg_now_ns();
    }
}

/* --- mending ------------------------------------------------------------------------------------------------- */

static void add_statistics(struct rg_lasting *c, const struct rg_conn *carrier)
{
    struct rg_conn_statistics its;
    rg_conn_get_statistics(carrier, &its);
    c->former.bulk_copied_sent += its.bulk_copied_sent;
    c->former.bulk_copied_received += its.bulk_copied_received;
    c->former.bulk_direct_sent += its.bulk_direct_sent;
    c->former.bulk_direct_received += its.bulk_direct_received;
}

/* Whether the peer has ended the tether, or does so in a moment; and whether it said by it that its end is meant. */
static bool tether_ended(struct rg_conn *tether, bool *leaves)
{
    struct pollfd p = {.fd = rg_conn_fd(tether), .events = POLLRDHUP};
    struct rg_message message;
    if (poll(&p, 1, TETHER_MS) != 1)
        return false;
    *leaves = rg_conn_recv(tether, 0, &message) == RG_OK && rg_lasting_is_word(&message, RG_LASTING_LEAVE);
    return *leaves || rg_lasting_heard_lately(tether);
}

/* Waits until nobody is inside the failed carrier. Whoever stays, for more than a moment, is called out. */
static void await_nobody(struct rg_lasting *c)
{
    const uint64_t until = rg_now_ns() + TETHER_MS * 1000000ull;
    bool called = false;
    while (c->sending || c->receiving || c->tails || c->visitors) {
        if (!called && c->carrier && rg_now_ns() >= until) {
            rg_conn_interrupt(c->carrier);
            called = true;
        }
        rg_lasting_sleep(c, called ? UINT64_MAX : until);
    }
}

/* Waits until the message that was received last is done with, if what came behind it is to be looked at. */
static void await_reader(struct rg_lasting *c)
{
    const uint64_t until = rg_now_ns() + READ_ON_MS * 1000000ull;
    while (c->loss.ended && c->options.reads && rg_lasting_shows_end(c->carrier) && !c->peer_leaves &&
           !c->hurries && c->in_use && c->state == RG_LASTING_BROKEN && rg_now_ns() < until)
        rg_lasting_sleep(c, until);
}

/* Lets go of the failed carrier, once nobody is inside. Its queue pair is gone before the peer hears of us: nothing can be
 * written into our memory any more. */
static void drop_carrier(struct rg_lasting *c)
{
    await_nobody(c);
    if (!c->carrier)
        return;
    await_reader(c);
    struct rg_conn *carrier = c->carrier, *tether = c->tether;
    c->tether = NULL;
    const bool may_have_ended = c->loss.ended || !rg_lasting_shows_end(carrier);
    if (may_have_ended && !c->peer_leaves && c->state == RG_LASTING_BROKEN)
        rg_lasting_look_for_last_words(c); /* which whoever was receiving when it broke has left unread */
    if (c->loss.ended && c->peer_leaves)
        rg_lasting_end(c, RG_ERR_CLOSED);
    add_statistics(c, carrier);
    rg_conn_set_tether(carrier, NULL); /* it may be kept for what was received by it, the tether is not */
    rg_conn_reset(carrier); /* or the peer's mender, whom nobody interrupts, may stay in a send by it */
    if (c->in_use && c->in_use_from == c->epoch && !c->retired) {
        c->retired = carrier;
        carrier = NULL;
    }
    c->carrier = NULL; /* from now on nobody can get at it */
    c->dropping = true;
    pthread_mutex_unlock(&c->lock);
    if (c->options.dropped)
        c->options.dropped(c->options.user);
    bool leaves = false;
    const bool ended = tether && tether_ended(tether, &leaves);
    rg_conn_destroy(carrier);
    rg_conn_destroy(tether);
    pthread_mutex_lock(&c->lock);
    c->dropping = c->hurries = false;
    c->peer_leaves |= leaves;
    if (tether)
        c->loss.ended = ended;
    if (ended && c->peer_leaves) /* the carrier alone did not tell that this was an end */
        rg_lasting_end(c, RG_ERR_CLOSED);
    rg_lasting_changed(c);
}

/* What was sent and has not arrived, by the new carrier. Ends early if that fails too. */
static void replay(struct rg_lasting *c)
{
    const uint64_t epoch = c->epoch;
    struct rg_lasting_kept *next = c->kept;
    while (next && c->state == RG_LASTING_REPLAYING) {
        struct rg_lasting_kept *kept = next;
        kept->replaying = true; /* so that it stays */
        while (kept->promised && c->state == RG_LASTING_REPLAYING)
            rg_lasting_sleep(c, UINT64_MAX); /* its sender is about to say where the bulk data is */
        if (c->state != RG_LASTING_REPLAYING) {
            kept->replaying = false;
            rg_lasting_release(c, kept);
            break;
        }
        const struct rg_lasting_header header = {.kind = RG_LASTING_DATA, .received = c->received};
        c->told = c->received;
        c->untold_bytes = 0;
        memcpy(kept->data, &header, sizeof header);
        const struct iovec part = {kept->data, kept->msg_size};
        const struct iovec *bulk = kept->bulk;
        const int n_bulk = kept->n_bulk;
        struct rg_conn *carrier = c->carrier;
        c->on_wire = kept->seq;
        c->sending = true;
        c->replayed = kept;
        pthread_mutex_unlock(&c->lock);
        enum rg_status status = rg_conn_send(carrier, &part, 1, bulk, n_bulk);
        pthread_mutex_lock(&c->lock);
        kept->replaying = c->sending = false;
        c->replayed = NULL;
        next = kept->next;
        if (status == RG_ERR_FAULT &&
            !kept->busy) { /* held memory that is gone: nobody is there to be told */
            rg_error("%s: data that had to be sent again was not there any more", c->head.peer);
            rg_lasting_end(c, RG_ERR_LOST);
        } else if (status == RG_ERR_FAULT)
            kept->fault = true;
        else if (status != RG_OK)
            rg_lasting_break(c, epoch, status);
        rg_lasting_release(c, kept);
        if (c->waiting)
            pthread_cond_broadcast(&c->changed);
    }
}

/* Takes a new carrier into use, if what both sides have fits together. */
static enum rg_status install(struct rg_lasting *c, struct rg_conn *carrier, uint64_t peer_received)
{
    c->on_wire = c->sent;
    if (peer_received < c->forgotten) {
        snprintf(c->loss.why, sizeof c->loss.why, "more data was on its way than is kept for such a case");
        return RG_ERR_LIMIT;
    }
    const uint64_t first = c->kept ? c->kept->seq : c->sent + 1;
    if (peer_received > c->sent || peer_received + 1 < first) {
        snprintf(c->loss.why, sizeof c->loss.why, "the other side does not know what this one does");
        return RG_ERR_PROTOCOL;
    }
    (void)rg_lasting_acknowledge(c, peer_received);
    c->on_wire = peer_received;
    c->carrier = carrier;
    c->epoch++;
    c->renewed_ns = rg_now_ns();
    if (c->read_ahead)
        rg_conn_set_read_ahead(carrier);
    c->copy_all = c->copy_all && rg_conn_fd(carrier) < 0;
    c->state = RG_LASTING_REPLAYING;
    rg_lasting_changed(c);
    return RG_OK;
}

/* One attempt; the lock is given up meanwhile. */
static enum rg_status attempt(struct rg_lasting *c)
{
    struct rg_lasting_loss loss = c->loss;
    const uint64_t received = c->received;
    struct rg_conn *carrier = NULL;
    uint64_t peer_received = 0;
    pthread_mutex_unlock(&c->lock);
    enum rg_status status = c->options.renew(c->options.user, &loss, received, &carrier, &peer_received);
    pthread_mutex_lock(&c->lock);
    c->loss = loss;
    if (status == RG_OK && c->state == RG_LASTING_BROKEN)
        status = install(c, carrier, peer_received);
    else if (status == RG_OK)
        status = RG_ERR_CLOSED;
    if (status != RG_OK && carrier) {
        pthread_mutex_unlock(&c->lock);
        rg_conn_destroy(carrier);
        pthread_mutex_lock(&c->lock);
    }
    return status;
}

static void report(struct rg_lasting *c, enum rg_lasting_event event)
{
    const struct rg_lasting_loss loss = c->loss;
    pthread_mutex_unlock(&c->lock);
    c->options.report(c->options.user, event, &loss);
    pthread_mutex_lock(&c->lock);
}

/* A new carrier, or the end. */
static void renew(struct rg_lasting *c)
{
    unsigned pause_ms = BACKOFF_MS;
    bool reported = false;
    while (c->state == RG_LASTING_BROKEN) {
        enum rg_status status = attempt(c);
        if (status == RG_OK || c->state != RG_LASTING_BROKEN)
            return;
        const bool final = status == RG_ERR_REFUSED || status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT;
        const uint64_t now = rg_now_ns();
        if (final || now >= c->loss.until_ns) {
            report(c, RG_LASTING_GAVE_UP);
            rg_lasting_end(c, c->loss.status);
            return;
        }
        if (!reported)
            report(c, RG_LASTING_LOST);
        reported = true;
        uint64_t until = now + pause_ms * 1000000ull;
        if (until > c->loss.until_ns)
            until = c->loss.until_ns;
        while (c->state == RG_LASTING_BROKEN && rg_now_ns() < until)
            rg_lasting_sleep(c, until);
        pause_ms = pause_ms * 2 < BACKOFF_MAX_MS ? pause_ms * 2 : BACKOFF_MAX_MS;
    }
}

static void mend(struct rg_lasting *c)
{
    drop_carrier(c);
    renew(c);
    if (c->state != RG_LASTING_REPLAYING)
        return;
    replay(c);
    if (c->state != RG_LASTING_REPLAYING)
        return;
    c->state = RG_LASTING_UP;
    rg_lasting_changed(c);
    if (c->leaves && !c->sending) /* the word may have been lost with the former carrier */
        rg_lasting_say(c, RG_LASTING_LEAVE);
    report(c, RG_LASTING_RESUMED);
}

void *rg_lasting_mend_main(void *connection)
{
    struct rg_lasting *c = connection;
    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        if (c->state == RG_LASTING_BROKEN)
            mend(c);
        else if (c->state == RG_LASTING_OVER)
            rg_lasting_sleep(c, UINT64_MAX);
        else if (c->ack_wanted && !c->sending && rg_conn_has_credit(c->carrier))
            rg_lasting_say(c, RG_LASTING_ACK);
        else if (c->ack_wanted && c->sending)
            rg_lasting_sleep(c, UINT64_MAX); /* who sends takes it along */
        else if (c->hung_up == c->epoch && rg_now_ns() < noticed_until(c))
            rg_lasting_sleep(c, noticed_until(c));
        else if (c->hung_up == c->epoch)
            look_closer(c);
        else
            watch(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
