/*
 * receive.c - bulk data from all rails at once.
 *
 * Each rail has a reader, a thread that receives the next run of pieces, waits until the receiver wants it, and puts it in
 * place; so the devices of all rails write at the same time, and whatever comes by whichever rail is put where it belongs.
 * What lies in memory that was advertised is taken by the receiver itself, in the order of the message; the run's reader stays
 * where it is meanwhile.
 *
 * Runs are told by message and number: what has come before is passed over. A run that comes again while the reader of its
 * first rail is still at it says that its sender has given that rail up, and so does the run in words: such rails are
 * dropped here too, and the new reader goes on only when the old one has left and the old rail's device can write into the
 * memory no more.
 *
 * A reader whose run is not wanted yet holds up what comes behind it, which may be the very run that is waited for, sent again
 * because its own rail has broken. So it does not wait for long while the receiver does: it puts its run aside.
 *
 * Nothing is believed: a run is of the message that the first connection has announced, of the size that follows from it,
 * and no other than those that have come share pieces with it.
 */
#include "transport/multipath/internal.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"

#include <stdlib.h>

enum {
    PATIENCE_MS = 500,     /* of a reader whose run is not what the receiver waits for … */
    IMPATIENCE_MS = 20,    /* … when a rail is gone */
    FIRST_RAIL_MS = 30000, /* how long a message may wait for the first rail to be added here */
};

/* --- readers ----------------------------------------------------------------------------------------------------- */

static enum rg_status discard(struct channel *channel, size_t size)
{
    return size ? rg_conn_recv_bulk(channel->conn, NULL, size) : RG_OK;
}

static bool is_over(const struct multipath *b)
{
    return b->interrupted || b->ending;
}

/* A run has come by another rail: its owner's is of no use to the sender, and has nothing more to bring. */
static void contest(struct multipath *b, struct run *run)
{
    struct channel *owner = &b->channels[run->owner - 1];
    run->contested = true;
    owner->users++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    rg_multirail_drop(owner, RG_ERR_LOST, "receiving");
    rg_conn_interrupt(owner->conn);
    pthread_mutex_lock(&b->lock);
    owner->users--;
    pthread_cond_broadcast(&b->keep);
}

/* Whether a run of so many bytes may be one of the current message; the lock is held. */
static bool is_possible(const struct multipath *b, const struct rg_run *piece, size_t bytes)
{
    const unsigned pieces = (unsigned)((b->total + RG_PIECE - 1) / RG_PIECE), n = piece->more + 1u;
    if (piece->index >= pieces || n > pieces - piece->index)
        return false;
    const size_t begin = (size_t)piece->index * RG_PIECE, most = (size_t)n * RG_PIECE;
    if (bytes != (b->total - begin < most ? b->total - begin : most))
        return false;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        const struct run *known = &b->inbox.runs[i];
        if (known->pieces && i < piece->index + n && piece->index < i + known->pieces &&
            (i != piece->index || known->pieces != n))
            return false;
    }
    return true;
}

/* Drops the rails that the sender has given up, and waits until they write no more. False: that cannot be. The lock is held. */
static bool give_up(struct channel *own, uint8_t rails)
{
    struct multipath *b = own->multipath;
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++) {
        struct channel *channel = &b->channels[i];
        if (!(rails >> i & 1))
            continue;
        if (channel == own || i >= b->options.channels)
            return false;
        pthread_mutex_unlock(&b->lock);
        rg_multirail_drop(channel, RG_ERR_LOST, "receiving");
        pthread_mutex_lock(&b->lock);
        while (channel->dropped && !channel->closed && !is_over(b))
            pthread_cond_wait(&b->changed, &b->lock);
    }
    return true;
}

/*
 * Waits for the turn of a run, and makes it the channel's. RG_ERR_NOT_FOUND: it has come before; RG_ERR_CLOSED: it is
 * over. The lock is held.
 */
static enum rg_status claim(struct channel *channel, const struct rg_run *piece, size_t bytes)
{
    struct multipath *b = channel->multipath;
    if (!give_up(channel, piece->given_up))
        return RG_ERR_PROTOCOL;
    for (;;) {
        if (is_over(b))
            return RG_ERR_CLOSED;
        if (piece->number < b->received_number)
            return RG_ERR_NOT_FOUND;
        if (piece->number > b->received_number) {
            pthread_cond_wait(&b->changed, &b->lock);
            continue;
        }
        if (!is_possible(b, piece, bytes))
            return RG_ERR_PROTOCOL;
        struct run *run = &b->inbox.runs[piece->index];
        const unsigned own = (unsigned)(channel - b->channels) + 1;
        const size_t begin = (size_t)piece->index * RG_PIECE;
        if (run->owner == own || run->former == own)
            return RG_ERR_PROTOCOL; /* nobody sends the same by the same way again */
        /* All of it is there. It is not claimed: the receiver may go on to the next message at any time. */
        if (run->stash || (run->pieces && !run->owner && run->done == begin + bytes))
            return RG_ERR_NOT_FOUND;
        if (run->owner && !run->contested) {
            contest(b, run);
        } else if (run->owner ||
                   (run->former && run->done < begin + bytes && !b->channels[run->former - 1].closed)) {
            pthread_cond_wait(&b->changed, &b->lock);
        } else {
            if (!run->pieces)
                run->done = begin;
            run->pieces = piece->more + 1u;
            run->owner = own;
            run->contested = false;
            run->failed = RG_OK;
            pthread_cond_broadcast(&b->changed);
            return RG_OK;
        }
    }
}

static struct timespec in_ms(unsigned ms)
{
    const uint64_t until = rg_now_ns() + ms * 1000000ull;
    return (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
}

/* The lock is held. */
static unsigned patience(const struct multipath *b)
{
    return rg_multirail_living(b) == b->options.channels ? PATIENCE_MS : IMPATIENCE_MS;
}

/* Sleeps until something changes, or for as long as a reader is patient. False: it was that. The lock is held. */
static bool sleep_a_while(struct multipath *b)
{
    const struct timespec time = in_ms(patience(b));
    return pthread_cond_timedwait(&b->changed, &b->lock, &time) == 0;
}

/* Whether the owner of a run has to do with it no longer. The receiver may have taken it and be at a later message. */
static bool is_done(const struct multipath *b, const struct run *run, uint64_t number, size_t end)
{
    return b->received_number != number || run->contested || run->failed != RG_OK || run->done >= end;
}

/* Waits until the receiver wants the next bytes of a run. False: it is to be put aside. The lock is held. */
static bool wait_for_wish(struct multipath *b, const struct run *run, uint64_t number, size_t end)
{
    const struct inbox *inbox = &b->inbox;
    while (run->taking ||
           (!is_over(b) && !is_done(b, run, number, end) && !(inbox->wanted && run->done < inbox->until))) {
        if (!inbox->wanted || run->taking)
            pthread_cond_wait(&b->changed, &b->lock);
        else if (!sleep_a_while(b) && inbox->wanted && !run->taking && run->done >= inbox->until &&
                 !is_done(b, run, number, end))
            return false;
    }
    return true;
}

/* Takes the rest of a run into memory of its own. The lock is held, and given up for that. */
static enum rg_status put_aside(struct channel *channel, struct run *run, size_t end)
{
    struct multipath *b = channel->multipath;
    const size_t size = end - run->done;
    run->aside = true;
    pthread_mutex_unlock(&b->lock);
    unsigned char *stash = malloc(size);
    enum rg_status status = stash ? rg_conn_recv_bulk(channel->conn, stash, size) : RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&b->lock);
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
static enum rg_status put(struct channel *channel, struct run *run, uint64_t number, size_t begin, size_t end)
{
    struct multipath *b = channel->multipath;
    struct inbox *inbox = &b->inbox;
    enum rg_status status = RG_OK;
    if (run->done > begin) { /* by another rail, which has broken since */
        const size_t before = run->done - begin;
        run->aside = true;
        pthread_mutex_unlock(&b->lock);
        status = discard(channel, before);
        pthread_mutex_lock(&b->lock);
        run->aside = false;
        pthread_cond_broadcast(&b->changed);
    }
    while (status == RG_OK && b->received_number == number && run->done < end) {
        if (!wait_for_wish(b, run, number, end))
            return put_aside(channel, run, end);
        if (b->received_number != number || run->done >= end) /* it lay in advertised memory */
            return RG_OK;
        if (run->failed != RG_OK)
            return run->failed;
        if (is_over(b) || run->contested)
            return RG_ERR_CLOSED;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        unsigned char *to = inbox->to ? inbox->to + (run->done - inbox->from) : NULL;
        inbox->busy++;
        pthread_mutex_unlock(&b->lock);
        status = rg_conn_recv_bulk(channel->conn, to, size);
        pthread_mutex_lock(&b->lock);
        inbox->busy--;
        if (status == RG_OK || status == RG_ERR_FAULT) {
            inbox->fault |= status == RG_ERR_FAULT;
            inbox->got += size;
            run->done += size;
            status = RG_OK;
        }
        pthread_cond_broadcast(&b->changed);
    }
    return status;
}

/* One run. RG_ERR_PROTOCOL: the peer has sent something else. */
static enum rg_status take_run(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    struct rg_message message;
    struct rg_run piece;
    enum rg_status status = rg_conn_recv(channel->conn, -1, &message);
    if (status != RG_OK)
        return status;
    if (message.size != sizeof piece)
        return RG_ERR_PROTOCOL;
    memcpy(&piece, message.data, sizeof piece);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.index >= RG_PIECES_MAX || !message.bulk_size)
        return RG_ERR_PROTOCOL;
    const size_t begin = (size_t)piece.index * RG_PIECE;
    pthread_mutex_lock(&b->lock);
    status = claim(channel, &piece, message.bulk_size);
    if (status == RG_OK) {
        struct run *run = &b->inbox.runs[piece.index];
        status = put(channel, run, piece.number, begin, begin + message.bulk_size);
        if (b->received_number == piece.number) {
            run->former = run->owner;
            run->owner = 0;
        }
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return status == RG_ERR_NOT_FOUND ? discard(channel, message.bulk_size) : status;
}

void *rg_multirail_read(void *arg)
{
    struct channel *channel = arg;
    struct multipath *b = channel->multipath;
    enum rg_status status;
    while ((status = take_run(channel)) == RG_OK)
        ;
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_error("%s sent bulk data that is not what was due", rg_conn_peer(channel->conn));
        pthread_mutex_lock(&b->lock);
        b->inbox.violated = true;
        pthread_mutex_unlock(&b->lock);
        rg_multipath_interrupt(b);
    }
    rg_multirail_drop(channel, status, "receiving");
    pthread_mutex_lock(&b->lock);
    channel->reader_ended = true;
    rg_multirail_readvertise(b);
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --- the receiver ------------------------------------------------------------------------------------------------ */

static void free_stashes(struct multipath *b)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        free(b->inbox.runs[i].stash);
        b->inbox.runs[i].stash = NULL;
    }
}

/* What the receiver wants of runs that were put aside. The lock is held. */
static void unstash(struct multipath *b)
{
    struct inbox *inbox = &b->inbox;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &inbox->runs[i];
        const size_t begin = (size_t)i * RG_PIECE, most = run->pieces * (size_t)RG_PIECE;
        const size_t end = b->total - begin < most ? b->total : begin + most;
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

void rg_multirail_begin(struct multipath *b)
{
    free_stashes(b);
    memset(b->inbox.runs, 0, sizeof b->inbox.runs);
    pthread_cond_broadcast(&b->changed);
}

/* Whether waiting is of use; the lock is held. */
static enum rg_status state(const struct multipath *b, bool late)
{
    if (b->inbox.violated)
        return RG_ERR_PROTOCOL;
    if (b->interrupted)
        return RG_ERR_CLOSED;
    if (!b->came)
        return late ? RG_ERR_LOST : RG_OK;
    for (unsigned i = 0; i < b->options.channels; i++)
        if (!b->channels[i].reader_ended)
            return RG_OK;
    return RG_ERR_LOST;
}

enum rg_status rg_multirail_take(struct multipath *b, unsigned char *to, size_t size)
{
    struct inbox *inbox = &b->inbox;
    const struct timespec until = in_ms(FIRST_RAIL_MS);
    enum rg_status status = RG_OK;
    bool late = false;
    pthread_mutex_lock(&b->lock);
    inbox->to = to;
    inbox->from = b->taken;
    inbox->until = b->taken + size;
    inbox->got = 0;
    inbox->fault = false;
    inbox->wanted = true;
    pthread_cond_broadcast(&b->changed);
    unstash(b);
    while (inbox->got < size && (status = state(b, late)) == RG_OK) {
        if (b->came)
            pthread_cond_wait(&b->changed, &b->lock);
        else
            late = pthread_cond_timedwait(&b->changed, &b->lock, &until) != 0;
        unstash(b);
    }
    const bool complete = inbox->got == size;
    inbox->wanted = false;
    if (!complete && inbox->busy) { /* nobody may write to the caller's memory any more */
        pthread_mutex_unlock(&b->lock);
        rg_multipath_interrupt(b);
        pthread_mutex_lock(&b->lock);
        while (inbox->busy)
            pthread_cond_wait(&b->changed, &b->lock);
    }
    b->taken += size;
    const bool fault = inbox->fault;
    pthread_mutex_unlock(&b->lock);
    if (!complete)
        return status == RG_ERR_PROTOCOL ? status : RG_ERR_LOST;
    return fault ? RG_ERR_FAULT : RG_OK;
}

/* The run that byte `at` of the message is in; NULL: it has not come yet. The lock is held. */
static struct run *run_at(struct multipath *b, size_t at)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &b->inbox.runs[i];
        if (run->pieces && at / RG_PIECE >= i && at / RG_PIECE < i + run->pieces)
            return run;
    }
    return NULL;
}

static size_t end_of(const struct multipath *b, const struct run *run)
{
    const size_t end = ((size_t)(run - b->inbox.runs) + run->pieces) * RG_PIECE;
    return end < b->total ? end : b->total;
}

/* Whether a run's reader stands before it, with nothing more to happen until the receiver does something. */
static bool is_ready(const struct run *run)
{
    return run && run->owner && !run->contested && !run->aside && run->failed == RG_OK;
}

enum rg_status rg_multirail_take_advertised(struct multipath *b, size_t most, void **memory, size_t *size)
{
    struct run *run;
    bool late = false;
    pthread_mutex_lock(&b->lock);
    const struct timespec until = in_ms(patience(b));
    while (!is_ready(run = run_at(b, b->taken)) && !(run && run->stash) && !late && state(b, false) == RG_OK)
        late = pthread_cond_timedwait(&b->changed, &b->lock, &until) !=
               0; /* it may be behind one that its reader puts aside only while bytes are asked for */
    if (!is_ready(run)) {
        pthread_mutex_unlock(&b->lock);
        return RG_OK; /* rg_multirail_take finds out why, or has it */
    }
    struct channel *channel = &b->channels[run->owner - 1];
    const size_t left = end_of(b, run) - b->taken;
    run->taking = true;
    pthread_mutex_unlock(&b->lock);
    const enum rg_status status =
        rg_conn_take_advertised(channel->conn, left < most ? left : most, memory, size);
    pthread_mutex_lock(&b->lock);
    run->taking = false;
    run->failed = status;
    if (status == RG_OK && *size) {
        run->done += *size;
        b->taken += *size;
        rg_multirail_advertised_is_back(&channel->adverts, *memory);
    } else {
        *size = 0;
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return RG_OK;
}

/* Whether all runs of the message are there, each with its reader before it; the lock is held. */
static bool all_ready(struct multipath *b)
{
    for (size_t at = 0; at < b->total;) {
        const struct run *run = run_at(b, at);
        if (!is_ready(run))
            return false;
        at = end_of(b, run);
    }
    return true;
}

bool rg_multirail_writes_directly(struct multipath *b, const unsigned char *memory, size_t size)
{
    const struct timespec until = in_ms(PATIENCE_MS);
    bool good = true;
    pthread_mutex_lock(&b->lock);
    if (b->taken || size != b->total)
        good = false; /* what comes again would not be known to be placed */
    while (good && !all_ready(b) && state(b, false) == RG_OK)
        good = pthread_cond_timedwait(&b->changed, &b->lock, &until) == 0;
    for (size_t at = 0; good && at < size;) {
        const struct run *run = all_ready(b) ? run_at(b, at) : NULL;
        const size_t end = run ? end_of(b, run) : size;
        good = run && run->done == at &&
               rg_conn_writes_directly(b->channels[run->owner - 1].conn, memory + at, end - at);
        at = end;
    }
    pthread_mutex_unlock(&b->lock);
    return good;
}
