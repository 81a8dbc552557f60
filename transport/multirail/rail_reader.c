/*
 * rail_reader.c - the thread of a rail that receives: it takes the next run of pieces, waits until the receiver (receive.c) wants it,
 * and puts it in place; so the devices of all rails write at the same time, and whatever comes by whichever rail is put where it
 * belongs.
 *
 * Runs are told by message and number: what has come before is passed over. A run that comes again while the
 * reader of its first rail is still at it says that its sender has given that rail up, and so does the run in
 * words: such rails are dropped here too, and the new reader goes on only when the old one has left and the
 * old rail's device can write into the memory no more.
 *
 * A reader whose run is not wanted yet holds up what comes behind it, which may be the very run that is
 * waited for, sent again because its own rail has broken. So it does not wait for long while the receiver
 * does: it puts its run aside.
 *
 * A reader whose run is of a later message brings nothing more of this one, as senders finish one message before the
 * next.
 *
 * Nothing is believed: a run is of the message that the first connection has announced, of the size that
 * follows from it, and no other than those that have come share pieces with it.
 */
#include "transport/multirail/internal.h"

#include "common/base/clock.h"

#include <stdlib.h>

enum { IMPATIENCE_MS = 20 }; /* patience of a reader when a rail is gone */

struct timespec rg_multirail_in_ms(unsigned ms)
{
    const uint64_t until = rg_now_ns() + ms * 1000000ull;
    return rg_timespec(until);
}

unsigned rg_multirail_patience_ms(const struct multirail *m)
{
    return rg_rails_living(m) == m->options.rails ? RG_RAIL_PATIENCE_MS : IMPATIENCE_MS;
}

static enum rg_status discard(struct rail *rail, size_t size)
{
    return size ? rg_conn_recv_bulk(rail->base.conn, NULL, size) : RG_OK;
}

static bool is_over(const struct multirail *m)
{
    return m->f.interrupted || m->f.ending;
}

/* A run has come by another rail: its owner's is of no use to the sender, and has nothing more to bring. */
static void contest(struct multirail *m, struct run *run)
{
    struct rail *owner = &m->rails[run->owner - 1];
    run->contested = true;
    owner->users++;
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    rg_rail_drop(owner, RG_ERR_LOST, "receiving");
    rg_conn_interrupt(owner->base.conn);
    pthread_mutex_lock(&m->f.lock);
    owner->users--;
    pthread_cond_broadcast(&m->f.upkeep);
}

/* Whether a run of so many bytes may be one of the current message; the lock is held. */
static bool is_possible(const struct multirail *m, const struct rg_run *piece, size_t bytes)
{
    const unsigned pieces = (unsigned)((m->f.total + RG_PIECE - 1) / RG_PIECE), n = piece->more + 1u;
    if (piece->index >= pieces || n > pieces - piece->index)
        return false;
    const size_t begin = (size_t)piece->index * RG_PIECE, most = (size_t)n * RG_PIECE;
    if (bytes != (m->f.total - begin < most ? m->f.total - begin : most))
        return false;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        const struct run *known = &m->inbox.runs[i];
        if (known->pieces && i < piece->index + n && piece->index < i + known->pieces &&
            (i != piece->index || known->pieces != n))
            return false;
    }
    return true;
}

/*
 * Drops the rails that the sender has given up, and waits until they write no more. False: that cannot be.
 * The lock is held.
 */
static bool give_up(struct rail *own, uint8_t rails)
{
    struct multirail *m = rg_multirail_of(own);
    for (unsigned i = 0; i < RG_FANOUT_CHANNELS; i++) {
        struct rail *rail = &m->rails[i];
        if (!(rails >> i & 1))
            continue;
        if (rail == own || i >= m->options.rails)
            return false;
        pthread_mutex_unlock(&m->f.lock);
        rg_rail_drop(rail, RG_ERR_LOST, "receiving");
        pthread_mutex_lock(&m->f.lock);
        while (rail->base.dropped && !rail->closed && !is_over(m))
            pthread_cond_wait(&m->f.changed, &m->f.lock);
    }
    return true;
}

/*
 * Waits for the turn of a run, and makes it the rail's. RG_ERR_NOT_FOUND: it has come before; RG_ERR_CLOSED:
 * it is over. The lock is held.
 */
static enum rg_status claim(struct rail *rail, const struct rg_run *piece, size_t bytes)
{
    struct multirail *m = rg_multirail_of(rail);
    if (!give_up(rail, piece->given_up))
        return RG_ERR_PROTOCOL;
    for (;;) {
        if (is_over(m))
            return RG_ERR_CLOSED;
        if (piece->number < m->f.received_number)
            return RG_ERR_NOT_FOUND;
        if (piece->number > m->f.received_number) {
            if (rail->waits_for != piece->number) {
                rail->waits_for = piece->number;
                pthread_cond_broadcast(&m->f.changed); /* the receiver may have waited for this rail */
            }
            pthread_cond_wait(&m->f.changed, &m->f.lock);
            continue;
        }
        if (!is_possible(m, piece, bytes))
            return RG_ERR_PROTOCOL;
        struct run *run = &m->inbox.runs[piece->index];
        const unsigned own = (unsigned)(rail - m->rails) + 1;
        const size_t begin = (size_t)piece->index * RG_PIECE;
        if (run->owner == own || run->former == own)
            return RG_ERR_PROTOCOL; /* nobody sends the same by the same way again */
        /* All of it is there. It is not claimed: the receiver may go on to the next message at any time. */
        if (run->stash || (run->pieces && !run->owner && run->done == begin + bytes))
            return RG_ERR_NOT_FOUND;
        if (run->owner && !run->contested) {
            contest(m, run);
        } else if (run->owner ||
                   (run->former && run->done < begin + bytes && !m->rails[run->former - 1].closed)) {
            pthread_cond_wait(&m->f.changed, &m->f.lock);
        } else {
            if (!run->pieces)
                run->done = begin;
            run->pieces = piece->more + 1u;
            run->owner = own;
            run->contested = false;
            run->failed = RG_OK;
            pthread_cond_broadcast(&m->f.changed);
            return RG_OK;
        }
    }
}

/*
 * Sleeps until something changes, or for as long as a reader is patient. False: it was that. The lock is
 * held.
 */
static bool sleep_a_while(struct multirail *m)
{
    const struct timespec time = rg_multirail_in_ms(rg_multirail_patience_ms(m));
    return pthread_cond_timedwait(&m->f.changed, &m->f.lock, &time) == 0;
}

/*
 * Whether the owner of a run has to do with it no longer. The receiver may have taken it and be at a later
 * message.
 */
static bool is_done(const struct multirail *m, const struct run *run, uint64_t number, size_t end)
{
    return m->f.received_number != number || run->contested || run->failed != RG_OK || run->done >= end;
}

/* Waits until the receiver wants the next bytes of a run. False: it is to be put aside. The lock is held. */
static bool wait_for_wish(struct multirail *m, const struct run *run, uint64_t number, size_t end)
{
    const struct inbox *inbox = &m->inbox;
    while (run->taking ||
           (!is_over(m) && !is_done(m, run, number, end) && !(inbox->wanted && run->done < inbox->until))) {
        if (!inbox->wanted || run->taking)
            pthread_cond_wait(&m->f.changed, &m->f.lock);
        else if (!sleep_a_while(m) && inbox->wanted && !run->taking && run->done >= inbox->until &&
                 !is_done(m, run, number, end))
            return false;
    }
    return true;
}

/* Takes the rest of a run into memory of its own. The lock is held, and given up for that. */
static enum rg_status put_aside(struct rail *rail, struct run *run, size_t end)
{
    struct multirail *m = rg_multirail_of(rail);
    const size_t size = end - run->done;
    run->aside = true;
    pthread_mutex_unlock(&m->f.lock);
    unsigned char *stash = malloc(size);
    enum rg_status status = stash ? rg_conn_recv_bulk(rail->base.conn, stash, size) : RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&m->f.lock);
    run->aside = false;
    if (status == RG_OK && run->contested)
        status = RG_ERR_CLOSED;
    if (status != RG_OK) {
        free(stash);
        return status;
    }
    run->stash = stash;
    run->stash_from = run->done;
    return RG_OK;
}

/* Puts a run in its place, as the receiver asks for it. The lock is held, and given up for that. */
static enum rg_status put(struct rail *rail, struct run *run, uint64_t number, size_t begin, size_t end)
{
    struct multirail *m = rg_multirail_of(rail);
    struct inbox *inbox = &m->inbox;
    enum rg_status status = RG_OK;
    if (run->done > begin) { /* by another rail, which has broken since */
        const size_t before = run->done - begin;
        run->aside = true;
        pthread_mutex_unlock(&m->f.lock);
        status = discard(rail, before);
        pthread_mutex_lock(&m->f.lock);
        run->aside = false;
        pthread_cond_broadcast(&m->f.changed);
    }
    while (status == RG_OK && m->f.received_number == number && run->done < end) {
        if (!wait_for_wish(m, run, number, end))
            return put_aside(rail, run, end);
        if (m->f.received_number != number || run->done >= end) /* it lay in advertised memory */
            return RG_OK;
        if (run->failed != RG_OK)
            return run->failed;
        if (is_over(m) || run->contested)
            return RG_ERR_CLOSED;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        unsigned char *to = inbox->to ? inbox->to + (run->done - inbox->from) : NULL;
        inbox->busy++;
        pthread_mutex_unlock(&m->f.lock);
        status = rg_conn_recv_bulk(rail->base.conn, to, size);
        pthread_mutex_lock(&m->f.lock);
        inbox->busy--;
        if (status == RG_OK || status == RG_ERR_FAULT) {
            inbox->fault |= status == RG_ERR_FAULT;
            inbox->got += size;
            run->done += size;
            status = RG_OK;
        }
        pthread_cond_broadcast(&m->f.changed);
    }
    return status;
}

/* One run. RG_ERR_PROTOCOL: the peer has sent something else. */
static enum rg_status take_run(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    struct rg_message message;
    struct rg_run piece;
    RG_TRY(rg_conn_recv(rail->base.conn, -1, &message));
    if (message.size != sizeof piece)
        return RG_ERR_PROTOCOL;
    memcpy(&piece, message.data, sizeof piece);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.index >= RG_PIECES_MAX || !message.bulk_size)
        return RG_ERR_PROTOCOL;
    const size_t begin = (size_t)piece.index * RG_PIECE;
    pthread_mutex_lock(&m->f.lock);
    enum rg_status status = claim(rail, &piece, message.bulk_size);
    if (status == RG_OK) {
        struct run *run = &m->inbox.runs[piece.index];
        status = put(rail, run, piece.number, begin, begin + message.bulk_size);
        if (m->f.received_number == piece.number) {
            run->former = run->owner;
            run->owner = 0;
        }
        pthread_cond_broadcast(&m->f.changed);
    }
    pthread_mutex_unlock(&m->f.lock);
    return status == RG_ERR_NOT_FOUND ? discard(rail, message.bulk_size) : status;
}

void *rg_rail_read(void *arg)
{
    struct rail *rail = arg;
    struct multirail *m = rg_multirail_of(rail);
    enum rg_status status;
    while ((status = take_run(rail)) == RG_OK)
        ;
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_error("%s sent bulk data that is not what was due", rg_conn_peer(rail->base.conn));
        pthread_mutex_lock(&m->f.lock);
        m->inbox.violated = true;
        pthread_mutex_unlock(&m->f.lock);
        rg_fanout_interrupt(&m->f);
    }
    rg_rail_drop(rail, status, "receiving");
    pthread_mutex_lock(&m->f.lock);
    rail->reader_ended = true;
    rg_multirail_readvertise(m);
    pthread_cond_broadcast(&m->f.changed);
    pthread_cond_broadcast(&m->f.upkeep);
    pthread_mutex_unlock(&m->f.lock);
    return NULL;
}
