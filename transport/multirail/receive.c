/*
 * receive.c - bulk data from all rails at once.
 *
 * Each rail has a reader, a thread that receives the next run of pieces, waits until the receiver wants it,
 * and puts it in place; so the devices of all rails write at the same time, and whatever comes by whichever
 * rail is put where it belongs. What lies in memory that was advertised is taken by the receiver itself, in
 * the order of the message; the run's reader stays where it is meanwhile.
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
 * next. Where all readers have ended or wait so, the receiver waits no longer than a rail takes to be added.
 *
 * Nothing is believed: a run is of the message that the first connection has announced, of the size that
 * follows from it, and no other than those that have come share pieces with it.
 */
#include "transport/multirail/internal.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"

#include <stdlib.h>

enum {
    PATIENCE_MS = 500,     /* of a reader whose run is not what the receiver waits for … */
    IMPATIENCE_MS = 20,    /* … when a rail is gone */
    FIRST_RAIL_MS = 30000, /* how long a message may wait for the first rail to be added here … */
    NEXT_RAIL_MS = 5000,   /* … and for one that comes back, where no other can bring the rest of it */
};

/* --- readers --- */

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

static struct timespec in_ms(unsigned ms)
{
    const uint64_t until = rg_now_ns() + ms * 1000000ull;
    return rg_timespec(until);
}

/* The lock is held. */
static unsigned patience(const struct multirail *m)
{
    return rg_rails_living(m) == m->options.rails ? PATIENCE_MS : IMPATIENCE_MS;
}

/*
 * Sleeps until something changes, or for as long as a reader is patient. False: it was that. The lock is
 * held.
 */
static bool sleep_a_while(struct multirail *m)
{
    const struct timespec time = in_ms(patience(m));
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

/* --- the receiver --- */

static void free_stashes(struct multirail *m)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        free(m->inbox.runs[i].stash);
        m->inbox.runs[i].stash = NULL;
    }
}

/* What the receiver wants of runs that were put aside. The lock is held. */
static void unstash(struct multirail *m)
{
    struct inbox *inbox = &m->inbox;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &inbox->runs[i];
        const size_t begin = (size_t)i * RG_PIECE, most = run->pieces * (size_t)RG_PIECE;
        const size_t end = m->f.total - begin < most ? m->f.total : begin + most;
        if (!run->stash || run->done >= end || run->done >= inbox->until)
            continue;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        if (inbox->to && !rg_safe_copy_to(inbox->to + (run->done - inbox->from),
                                          run->stash + (run->done - run->stash_from), size))
            inbox->fault = true;
        run->done += size;
        inbox->got += size;
    }
}

void rg_multirail_begin(struct rg_fanout *f)
{
    struct multirail *m = (struct multirail *)f;
    free_stashes(m);
    memset(m->inbox.runs, 0, sizeof m->inbox.runs);
    m->peer_stripes = true;
    pthread_cond_broadcast(&f->changed);
}

enum rg_status rg_multirail_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct multirail *m = (struct multirail *)conn;
    unsigned wanted;
    RG_TRY(rg_fanout_recv(&m->f, timeout_ms, out, &wanted));
    if (m->f.out_of_band) {
        rg_rails_want(m, wanted, 0);
        return RG_OK;
    }
    if (out->bulk_size >= RG_FANOUT_BULK_MIN)
        rg_rails_want(m, 0, out->bulk_size);
    if (m->peer_stripes && out->bulk_size >= RG_MULTIRAIL_MIN) {
        pthread_mutex_lock(&m->f.lock);
        m->peer_stripes = false;
        pthread_mutex_unlock(&m->f.lock);
    }
    return RG_OK;
}

/* Whether some reader may still bring what the message lacks; the lock is held. */
static bool may_come(const struct multirail *m)
{
    for (unsigned i = 0; i < m->options.rails; i++)
        if (!m->rails[i].reader_ended && m->rails[i].waits_for <= m->f.received_number)
            return true;
    return false;
}

/* Whether waiting is of use; `late`: nothing could come for as long as that may be. The lock is held. */
static enum rg_status state(const struct multirail *m, bool late)
{
    if (m->inbox.violated)
        return RG_ERR_PROTOCOL;
    if (m->f.interrupted)
        return RG_ERR_CLOSED;
    if (late)
        return RG_ERR_LOST;
    if (!m->came)
        return RG_OK;
    for (unsigned i = 0; i < m->options.rails; i++)
        if (!m->rails[i].reader_ended)
            return RG_OK;
    return RG_ERR_LOST;
}

/* The next `size` bytes of bulk data, from whichever rails. */
static enum rg_status take(struct multirail *m, unsigned char *to, size_t size)
{
    struct inbox *inbox = &m->inbox;
    struct timespec until = {0};
    enum rg_status status = RG_OK;
    bool hope = true, late = false;
    pthread_mutex_lock(&m->f.lock);
    inbox->to = to;
    inbox->from = m->f.taken;
    inbox->until = m->f.taken + size;
    inbox->got = 0;
    inbox->fault = false;
    inbox->wanted = true;
    pthread_cond_broadcast(&m->f.changed);
    unstash(m);
    while (inbox->got < size && (status = state(m, late)) == RG_OK) {
        const bool hoped = hope;
        hope = may_come(m);
        if (hoped && !hope)
            until = in_ms(m->came ? NEXT_RAIL_MS : FIRST_RAIL_MS);
        if (hope)
            pthread_cond_wait(&m->f.changed, &m->f.lock);
        else
            late = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) != 0 && !may_come(m);
        unstash(m);
    }
    const bool complete = inbox->got == size;
    inbox->wanted = false;
    if (!complete && inbox->busy) { /* nobody may write to the caller's memory any more */
        pthread_mutex_unlock(&m->f.lock);
        rg_fanout_interrupt(&m->f);
        pthread_mutex_lock(&m->f.lock);
        while (inbox->busy)
            pthread_cond_wait(&m->f.changed, &m->f.lock);
    }
    m->f.taken += size;
    const bool fault = inbox->fault;
    pthread_mutex_unlock(&m->f.lock);
    if (!complete)
        return status == RG_ERR_PROTOCOL ? status : RG_ERR_LOST;
    return fault ? RG_ERR_FAULT : RG_OK;
}

enum rg_status rg_multirail_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    if (m->f.recv_failed != RG_OK)
        return m->f.recv_failed;
    if (!m->f.out_of_band)
        return rg_conn_recv_bulk(m->f.first, buffer, size);
    const enum rg_status status = take(m, buffer, size);
    return status == RG_OK || status == RG_ERR_FAULT ? status : rg_fanout_fail(&m->f, NULL, status);
}

/* The run that byte `at` of the message is in; NULL: it has not come yet. The lock is held. */
static struct run *run_at(struct multirail *m, size_t at)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &m->inbox.runs[i];
        if (run->pieces && at / RG_PIECE >= i && at / RG_PIECE < i + run->pieces)
            return run;
    }
    return NULL;
}

static size_t end_of(const struct multirail *m, const struct run *run)
{
    const size_t end = ((size_t)(run - m->inbox.runs) + run->pieces) * RG_PIECE;
    return end < m->f.total ? end : m->f.total;
}

/* Whether a run's reader stands before it, with nothing more to happen until the receiver does something. */
static bool is_ready(const struct run *run)
{
    return run && run->owner && !run->contested && !run->aside && run->failed == RG_OK;
}

static enum rg_status take_advertised(struct multirail *m, size_t most, void **memory, size_t *size)
{
    struct run *run;
    bool late = false;
    pthread_mutex_lock(&m->f.lock);
    const struct timespec until = in_ms(patience(m));
    while (!is_ready(run = run_at(m, m->f.taken)) && !(run && run->stash) && !late &&
           state(m, false) == RG_OK)
        late = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) !=
               0; /* it may be behind one that its reader puts aside only while bytes are asked for */
    if (!is_ready(run)) {
        pthread_mutex_unlock(&m->f.lock);
        return RG_OK; /* rg_multirail_recv_bulk finds out why, or has it */
    }
    struct rail *rail = &m->rails[run->owner - 1];
    const size_t left = end_of(m, run) - m->f.taken;
    run->taking = true;
    pthread_mutex_unlock(&m->f.lock);
    const enum rg_status status =
        rg_conn_take_advertised(rail->base.conn, left < most ? left : most, memory, size);
    pthread_mutex_lock(&m->f.lock);
    run->taking = false;
    run->failed = status;
    if (status == RG_OK && *size) {
        run->done += *size;
        m->f.taken += *size;
        rg_multirail_advertised_is_back(&rail->adverts, *memory);
    } else {
        *size = 0;
    }
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    return RG_OK;
}

enum rg_status rg_multirail_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct multirail *m = (struct multirail *)conn;
    if (m->f.recv_failed != RG_OK)
        return m->f.recv_failed;
    if (m->f.out_of_band)
        return take_advertised(m, most, memory, size);
    const enum rg_status status = rg_conn_take_advertised(m->f.first, most, memory, size);
    if (*size) {
        pthread_mutex_lock(&m->f.lock);
        rg_multirail_advertised_is_back(&m->first_adverts, *memory);
        pthread_mutex_unlock(&m->f.lock);
    }
    return status;
}

/* Whether all runs of the message are there, each with its reader before it; the lock is held. */
static bool all_ready(struct multirail *m)
{
    for (size_t at = 0; at < m->f.total;) {
        const struct run *run = run_at(m, at);
        if (!is_ready(run))
            return false;
        at = end_of(m, run);
    }
    return true;
}

/* What comes out of band. */
static bool writes_directly(struct multirail *m, const unsigned char *memory, size_t size)
{
    const struct timespec until = in_ms(PATIENCE_MS);
    bool good = true;
    pthread_mutex_lock(&m->f.lock);
    if (m->f.taken || size != m->f.total)
        good = false; /* what comes again would not be known to be placed */
    while (good && !all_ready(m) && state(m, false) == RG_OK)
        good = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) == 0;
    for (size_t at = 0; good && at < size;) {
        const struct run *run = all_ready(m) ? run_at(m, at) : NULL;
        const size_t end = run ? end_of(m, run) : size;
        good = run && run->done == at &&
               rg_conn_writes_directly(m->rails[run->owner - 1].base.conn, memory + at, end - at);
        at = end;
    }
    pthread_mutex_unlock(&m->f.lock);
    return good;
}

bool rg_multirail_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    return m->f.out_of_band ? writes_directly(m, memory, size)
                            : rg_conn_writes_directly(m->f.first, memory, size);
}
