/*
 * rails.c - lanes over several networks: receiving from all at once, and going on without one.
 *
 * Each rail has a reader, a thread that receives the next run of pieces, waits until the receiver wants it, and puts it in
 * place; so the devices of all rails write at the same time, and whatever comes by whichever rail is put where it belongs.
 *
 * A rail delivers: what its sender was told is sent has arrived at this end of it. So when one breaks, its sender knows
 * which runs have not, and sends those once more by another. Here they are told by message and number: what has come
 * before is passed over. A run that comes again while the reader of its first rail is still at it says that its sender
 * has given that rail up: it is dropped here too, and the new reader goes on only when the old one has left and the old
 * rail's device can write into the memory no more. A rail by which sending fails is still received from: what has arrived
 * by it does not come again.
 *
 * A reader whose run is not wanted yet holds up what comes behind it, which may be the very run that is waited for, sent again
 * because its own rail has broken. So it does not wait for long while the receiver does: it puts its run aside.
 *
 * Nothing is believed: a run is of the message that the first connection has announced, of the size that follows from it,
 * and no other than those that have come share pieces with it.
 */
#include "transport/bundle/inside.h"

#include "common/clock.h"
#include "common/copy.h"
#include "common/thread.h"

#include <stdlib.h>

enum {
    PATIENCE_NS = 20000000, /* of a reader whose run is not what the receiver waits for */
    FIRST_RAIL_MS = 30000,  /* how long a message may wait for the first rail to be added here */
};

/* --- rails that come and go -------------------------------------------------------------------------------------- */

unsigned rg_rails_living(const struct bundle *b)
{
    unsigned living = 0;
    for (unsigned i = 0; i < atomic_load(&b->n_lanes); i++)
        living += !b->lanes[i].dropped;
    return living;
}

void rg_rails_drop(struct lane *lane, enum rg_status status, const char *doing)
{
    struct bundle *b = lane->bundle;
    pthread_mutex_lock(&b->lock);
    const bool first = !lane->dropped, over = b->interrupted || b->ending;
    lane->dropped = true;
    const unsigned left = rg_rails_living(b);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (!first)
        return;
    if (!over && status != RG_ERR_CLOSED)
        rg_warn("a rail to %s is lost while %s (%s); %u left", rg_conn_peer(lane->conn), doing,
                rg_status_string(status), left);
    else
        rg_debug("a rail to %s has ended; %u left", rg_conn_peer(lane->conn), left);
    rg_conn_reset(lane->conn);
    pthread_mutex_lock(&b->lock);
    lane->closed = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void *reader_main(void *arg);

enum rg_status rg_rails_add(struct bundle *b, struct rg_conn *conn)
{
    pthread_mutex_lock(&b->memory_lock);
    for (unsigned i = 0; i < b->n_memory; i++)
        (void)rg_conn_register(conn, b->memory[i].base, b->memory[i].size); /* else it is copied */
    pthread_mutex_lock(&b->lock);
    const unsigned n = atomic_load(&b->n_lanes);
    enum rg_status status = n < b->options.lanes && !b->ending ? RG_OK : RG_ERR_LIMIT;
    const bool interrupted = b->interrupted;
    struct lane *lane = &b->lanes[n < RG_BUNDLE_LANES ? n : 0];
    if (status == RG_OK) {
        lane->conn = conn;
        status = rg_thread_create(&lane->reader, "rg-rail", reader_main, lane);
        lane->reader_runs = status == RG_OK;
        if (status != RG_OK)
            lane->conn = NULL;
    }
    if (status == RG_OK) {
        atomic_store_explicit(&b->n_lanes, n + 1, memory_order_release);
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_unlock(&b->memory_lock);
    if (status == RG_OK)
        rg_info("rail %u to %s: %s", n, rg_conn_peer(b->first), rg_conn_peer(conn));
    if (status == RG_OK && interrupted)
        rg_conn_interrupt(conn);
    return status;
}

void rg_rails_end(struct bundle *b)
{
    const unsigned n = atomic_load(&b->n_lanes);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    for (unsigned i = 0; i < n; i++)
        rg_conn_interrupt(b->lanes[i].conn); /* what was sent has arrived */
    for (unsigned i = 0; i < n; i++)
        if (b->lanes[i].reader_runs)
            pthread_join(b->lanes[i].reader, NULL);
    for (unsigned i = 0; i < RG_PIECES_MAX; i++)
        free(b->inbox.runs[i].stash);
}

/* --- readers ----------------------------------------------------------------------------------------------------- */

static enum rg_status discard(struct lane *lane, size_t size)
{
    return size ? rg_conn_recv_bulk(lane->conn, NULL, size) : RG_OK;
}

static bool is_over(const struct bundle *b)
{
    return b->interrupted || b->ending;
}

/* A run has come by another rail: its owner's is of no use to the sender, and has nothing more to bring. */
static void contest(struct bundle *b, struct run *run)
{
    struct lane *owner = &b->lanes[run->owner - 1];
    run->contested = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    rg_rails_drop(owner, RG_ERR_LOST, "receiving");
    rg_conn_interrupt(owner->conn);
    pthread_mutex_lock(&b->lock);
}

/* Whether a run of so many bytes may be one of the current message; the lock is held. */
static bool is_possible(const struct bundle *b, const struct rg_piece *piece, size_t bytes)
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

/*
 * Waits for the turn of a run, and makes it the lane's. RG_ERR_NOT_FOUND: it has come before; RG_ERR_CLOSED: it is
 * over. The lock is held.
 */
static enum rg_status claim(struct lane *lane, const struct rg_piece *piece, size_t bytes)
{
    struct bundle *b = lane->bundle;
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
        const unsigned own = (unsigned)(lane - b->lanes) + 1;
        const size_t begin = (size_t)piece->index * RG_PIECE;
        if (run->owner == own || run->former == own)
            return RG_ERR_PROTOCOL; /* nobody sends the same by the same way again */
        /* All of it is there. It is not claimed: the receiver may go on to the next message at any time. */
        if (run->stash || (run->pieces && !run->owner && run->done == begin + bytes))
            return RG_ERR_NOT_FOUND;
        if (run->owner && !run->contested) {
            contest(b, run);
        } else if (run->owner ||
                   (run->former && run->done < begin + bytes && !b->lanes[run->former - 1].closed)) {
            pthread_cond_wait(&b->changed, &b->lock);
        } else {
            if (!run->pieces)
                run->done = begin;
            run->pieces = piece->more + 1u;
            run->owner = own;
            run->contested = false;
            return RG_OK;
        }
    }
}

/* Sleeps until something changes, or for as long as a reader is patient. False: it was that. The lock is held. */
static bool sleep_a_while(struct bundle *b)
{
    const uint64_t until = rg_now_ns() + PATIENCE_NS;
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    return pthread_cond_timedwait(&b->changed, &b->lock, &time) == 0;
}

/* Waits until the receiver wants the next bytes of a run. False: it is to be put aside. The lock is held. */
static bool wait_for_wish(struct bundle *b, const struct run *run)
{
    const struct inbox *inbox = &b->inbox;
    while (!is_over(b) && !run->contested && !(inbox->wanted && run->done < inbox->until)) {
        if (!inbox->wanted)
            pthread_cond_wait(&b->changed, &b->lock);
        else if (!sleep_a_while(b) && inbox->wanted && run->done >= inbox->until)
            return false;
    }
    return true;
}

/* Takes the rest of a run into memory of its own. The lock is held, and given up for that. */
static enum rg_status put_aside(struct lane *lane, struct run *run, size_t end)
{
    struct bundle *b = lane->bundle;
    const size_t size = end - run->done;
    pthread_mutex_unlock(&b->lock);
    unsigned char *stash = malloc(size);
    enum rg_status status = stash ? rg_conn_recv_bulk(lane->conn, stash, size) : RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&b->lock);
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
static enum rg_status put(struct lane *lane, struct run *run, size_t begin, size_t end)
{
    struct bundle *b = lane->bundle;
    struct inbox *inbox = &b->inbox;
    enum rg_status status = RG_OK;
    if (run->done > begin) { /* by another rail, which has broken since */
        const size_t before = run->done - begin;
        pthread_mutex_unlock(&b->lock);
        status = discard(lane, before);
        pthread_mutex_lock(&b->lock);
    }
    while (status == RG_OK && run->done < end) {
        if (!wait_for_wish(b, run))
            return put_aside(lane, run, end);
        if (is_over(b) || run->contested)
            return RG_ERR_CLOSED;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        unsigned char *to = inbox->to ? inbox->to + (run->done - inbox->from) : NULL;
        inbox->busy++;
        pthread_mutex_unlock(&b->lock);
        status = rg_conn_recv_bulk(lane->conn, to, size);
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
static enum rg_status take_run(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    struct rg_message message;
    struct rg_piece piece;
    enum rg_status status = rg_conn_recv(lane->conn, -1, &message);
    if (status != RG_OK)
        return status;
    if (message.size != sizeof piece)
        return RG_ERR_PROTOCOL;
    memcpy(&piece, message.data, sizeof piece);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.codec != RG_COMPRESS_NONE || piece.index >= RG_PIECES_MAX || !message.bulk_size)
        return RG_ERR_PROTOCOL;
    const size_t begin = (size_t)piece.index * RG_PIECE;
    pthread_mutex_lock(&b->lock);
    status = claim(lane, &piece, message.bulk_size);
    if (status == RG_OK) {
        struct run *run = &b->inbox.runs[piece.index];
        status = put(lane, run, begin, begin + message.bulk_size);
        run->former = run->owner;
        run->owner = 0;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return status == RG_ERR_NOT_FOUND ? discard(lane, message.bulk_size) : status;
}

static void *reader_main(void *arg)
{
    struct lane *lane = arg;
    struct bundle *b = lane->bundle;
    enum rg_status status;
    while ((status = take_run(lane)) == RG_OK)
        ;
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_error("%s sent bulk data that is not what was due", rg_conn_peer(lane->conn));
        pthread_mutex_lock(&b->lock);
        b->inbox.violated = true;
        pthread_mutex_unlock(&b->lock);
        rg_bundle_interrupt(b);
    }
    rg_rails_drop(lane, status, "receiving");
    pthread_mutex_lock(&b->lock);
    lane->reader_ended = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --- the receiver ------------------------------------------------------------------------------------------------ */

static void free_stashes(struct bundle *b)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        free(b->inbox.runs[i].stash);
        b->inbox.runs[i].stash = NULL;
    }
}

/* What the receiver wants of runs that were put aside. The lock is held. */
static void unstash(struct bundle *b)
{
    struct inbox *inbox = &b->inbox;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &inbox->runs[i];
        const size_t begin = (size_t)i * RG_PIECE, most = run->pieces * (size_t)RG_PIECE;
        const size_t end = b->total - begin < most ? b->total : begin + most;
        if (!run->stash || run->done >= end || run->done >= inbox->until)
            continue;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        if (inbox->to && !rg_copy_to(inbox->to + (run->done - inbox->from),
                                     run->stash + (run->done - run->stash_from), size))
            inbox->fault = true;
        run->done += size;
        inbox->got += size;
    }
}

void rg_rails_begin(struct bundle *b)
{
    free_stashes(b);
    memset(b->inbox.runs, 0, sizeof b->inbox.runs);
    pthread_cond_broadcast(&b->changed);
}

/* Whether waiting is of use; the lock is held. */
static enum rg_status state(const struct bundle *b, bool late)
{
    if (b->inbox.violated)
        return RG_ERR_PROTOCOL;
    if (b->interrupted)
        return RG_ERR_CLOSED;
    if (atomic_load(&b->n_lanes) == 0)
        return late ? RG_ERR_LOST : RG_OK;
    for (unsigned i = 0; i < atomic_load(&b->n_lanes); i++)
        if (!b->lanes[i].reader_ended)
            return RG_OK;
    return RG_ERR_LOST;
}

enum rg_status rg_rails_take(struct bundle *b, unsigned char *to, size_t size)
{
    struct inbox *inbox = &b->inbox;
    const uint64_t until_ns = rg_now_ns() + FIRST_RAIL_MS * 1000000ull;
    const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
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
        if (atomic_load(&b->n_lanes))
            pthread_cond_wait(&b->changed, &b->lock);
        else
            late = pthread_cond_timedwait(&b->changed, &b->lock, &until) != 0;
        unstash(b);
    }
    const bool complete = inbox->got == size;
    inbox->wanted = false;
    if (!complete && inbox->busy) { /* nobody may write to the caller's memory any more */
        pthread_mutex_unlock(&b->lock);
        rg_bundle_interrupt(b);
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

/* --- memory ------------------------------------------------------------------------------------------------------ */

enum rg_status rg_rails_register(struct bundle *b, void *base, size_t size)
{
    pthread_mutex_lock(&b->memory_lock);
    if (b->n_memory == b->memory_room) {
        const unsigned room = b->memory_room ? 2 * b->memory_room : 16;
        struct rg_bundle_memory *memory = realloc(b->memory, room * sizeof *memory);
        if (!memory) {
            pthread_mutex_unlock(&b->memory_lock);
            return RG_ERR_NO_MEMORY;
        }
        b->memory = memory;
        b->memory_room = room;
    }
    enum rg_status status = rg_conn_register(b->first, base, size);
    if (status == RG_OK) {
        b->memory[b->n_memory++] = (struct rg_bundle_memory){base, size};
        for (unsigned i = 0; i < atomic_load(&b->n_lanes); i++) {
            const enum rg_status at_lane = rg_conn_register(b->lanes[i].conn, base, size);
            status = at_lane == RG_ERR_NO_MEMORY ? at_lane : status; /* what has it uses it all the same */
        }
    }
    pthread_mutex_unlock(&b->memory_lock);
    return status;
}

void rg_rails_unregister(struct bundle *b, void *base)
{
    pthread_mutex_lock(&b->memory_lock);
    for (unsigned i = 0; i < b->n_memory; i++)
        if (b->memory[i].base == base) {
            b->memory[i] = b->memory[--b->n_memory];
            rg_conn_unregister(b->first, base);
            for (unsigned k = 0; k < atomic_load(&b->n_lanes); k++)
                rg_conn_unregister(b->lanes[k].conn, base);
            break;
        }
    pthread_mutex_unlock(&b->memory_lock);
}
