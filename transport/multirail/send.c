/*
 * send.c - messages out by rails: each carries a run of pieces, which its device writes to where it belongs.
 *
 * Where the peer has advertised memory, nobody asks it where that is. Either all runs of a message find room
 * in what was advertised for anything, or all are asked for: the peer takes what was advertised in the order
 * of the message, without a copy. What goes out again because its rail broke is asked for.
 */
#include "transport/multirail/internal.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

enum { RUN_LEAST = 64 << 10 }; /* bytes; what is this small would be copied */

/* As many pieces for each rail as before, but side by side: what one carries is one message then. */
static uint64_t gather_runs(uint64_t route, uint64_t number, size_t size)
{
    unsigned count[RG_FANOUT_CHANNELS] = {0}, piece = 0;
    const unsigned pieces = (unsigned)((size + RG_PIECE - 1) / RG_PIECE), last = pieces - 1;
    uint64_t gathered = 0;
    for (unsigned i = 0; i < pieces; i++)
        count[rg_fanout_channel_of(route, i)]++;
    for (unsigned turn = 0; turn < RG_FANOUT_CHANNELS; turn++) {
        const unsigned rail = (unsigned)((number + turn) % RG_FANOUT_CHANNELS);
        while (count[rail]--)
            gathered |= (uint64_t)rail << (4 * piece++);
    }
    if (last && rg_fanout_piece_size(size, last) < RUN_LEAST) { /* too small for a message of its own */
        gathered &= ~((uint64_t)15 << (4 * last));
        gathered |= (uint64_t)rg_fanout_channel_of(gathered, last - 1) << (4 * last);
    }
    return gathered;
}

/*
 * Where the bulk data goes: the tag if the caller named one; else whether all of it finds memory that is
 * advertised.
 */
static uint64_t tag_of(struct multirail *m, const struct rg_send *send)
{
    size_t bytes[RG_FANOUT_CHANNELS] = {0};
    if (send->tag)
        return send->tag;
    for (unsigned i = 0; i * (size_t)RG_PIECE < send->bulk_size; i++)
        bytes[rg_fanout_channel_of(send->route, i)] += rg_fanout_piece_size(send->bulk_size, i);
    bool room = true;
    RG_SCOPED_LOCK(&m->f.lock);
    for (unsigned i = 0; i < m->options.rails && room; i++)
        room = !bytes[i] ||
               (!m->rails[i].base.dropped && rg_conn_has_advertised(m->rails[i].base.conn, bytes[i]));
    return room ? 0 : RG_TAG_NOWHERE;
}

/* A run of pieces in one message. */
static enum rg_status send_run(struct rail *rail, const struct rg_sending *sending, unsigned index,
                               unsigned n, bool again, uint8_t given_up)
{
    struct iovec parts[RG_FANOUT_ROWS];
    const size_t offset = (size_t)index * RG_PIECE, left = sending->send->bulk_size - offset;
    const size_t size = left < n * (size_t)RG_PIECE ? left : n * (size_t)RG_PIECE;
    const int n_parts = rg_fanout_slice(sending->send, offset, size, parts);
    const bool tagged = sending->tag && sending->tag != RG_TAG_NOWHERE;
    struct rg_run head = {.kind = RG_MESSAGE_PIECE,
                          .version = RG_PROTOCOL_MAJOR,
                          .index = (uint16_t)index,
                          .given_up = given_up,
                          .more = (uint8_t)(n - 1),
                          .number = sending->send->number};
    const struct iovec message = {&head, sizeof head};
    struct rg_send run = {.msg = &message,
                          .n_msg = 1,
                          .bulk = parts,
                          .n_bulk = n_parts,
                          .tag = again && !tagged ? RG_TAG_NOWHERE : sending->tag,
                          .base = tagged ? sending->send->base + offset : 0};
    return rg_conn_send(rail->base.conn, &run);
}

/* Takes part in using a rail's connection; false: it is gone. */
static bool enter(struct rail *rail)
{
    RG_SCOPED_LOCK(&rg_multirail_of(rail)->f.lock);
    const bool there = !rail->base.dropped;
    rail->users += there;
    return there;
}

static void leave(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    RG_SCOPED_LOCK(&m->f.lock);
    rail->users--;
    pthread_cond_broadcast(&m->f.changed);
    pthread_cond_broadcast(&m->f.upkeep);
}

/*
 * Sends those pieces of `mask` that a rail is to carry, `again` or not; returns the pieces that it has not
 * delivered.
 */
static uint32_t send_runs(struct rail *rail, const struct rg_sending *sending, uint32_t mask, bool again,
                          uint8_t given_up, size_t *bytes, bool *fault)
{
    if (!enter(rail))
        return mask;
    enum rg_status status = RG_OK;
    for (unsigned i = 0, n; i < RG_PIECES_MAX && status == RG_OK; i += n) {
        for (n = 0; i + n < RG_PIECES_MAX && (mask >> (i + n) & 1) &&
                    (n == 0 || rg_fanout_channel_of(sending->send->route, i + n) ==
                                   rg_fanout_channel_of(sending->send->route, i));
             n++)
            ;
        if (!n) {
            n = 1;
            continue;
        }
        status = send_run(rail, sending, i, n, again, given_up);
        if (status == RG_ERR_FAULT) {
            *fault = true;
            status = RG_OK;
        }
        for (unsigned k = i; k < i + n && status == RG_OK; k++) {
            mask &= ~(1u << k);
            *bytes += rg_fanout_piece_size(sending->send->bulk_size, k);
        }
    }
    if (status != RG_OK)
        rg_rail_drop(rail, status, "sending");
    leave(rail);
    return mask;
}

static enum rg_status send_part(struct rg_channel *channel, struct rg_sending *sending, size_t *bytes)
{
    uint32_t mask = 0;
    bool fault = false;
    for (unsigned i = 0; i * (size_t)RG_PIECE < sending->send->bulk_size; i++)
        mask |= (uint32_t)(rg_fanout_channel_of(sending->send->route, i) == channel->index) << i;
    const uint32_t undelivered = send_runs((struct rail *)channel, sending, mask, false, 0, bytes, &fault);
    if (undelivered) {
        pthread_mutex_lock(&channel->fanout->lock);
        sending->undelivered |= undelivered;
        sending->given_up |= (uint8_t)(1u << channel->index);
        pthread_mutex_unlock(&channel->fanout->lock);
    }
    return fault ? RG_ERR_FAULT : RG_OK;
}

const struct rg_fanout_kind rg_multirail_kind = {
    .least = RG_MULTIRAIL_MIN, .send_part = send_part, .arrange = gather_runs, .begin = rg_multirail_begin};

/* What dropped rails have not delivered goes by others, the fastest first. */
static void send_again(struct multirail *m, struct rg_sending *sending)
{
    for (;;) {
        struct rail *best = NULL;
        uint8_t given_up = 0;
        pthread_mutex_lock(&m->f.lock);
        for (unsigned i = 0; i < m->options.rails; i++) {
            if (!m->rails[i].base.dropped && (!best || m->rails[i].base.rate > best->base.rate))
                best = &m->rails[i];
            if (m->rails[i].base.dropped) /* one that is back was closed over there before */
                given_up |= (uint8_t)(1u << i) & sending->given_up;
        }
        const uint32_t mask = sending->undelivered;
        if (mask && !best)
            sending->status = RG_ERR_LOST;
        pthread_mutex_unlock(&m->f.lock);
        if (!mask)
            return;
        if (!best) {
            rg_fanout_break(&m->f, &m->rails[0].base, RG_ERR_LOST, "sending; no rail is left");
            return;
        }
        size_t bytes = 0;
        bool fault = false;
        const uint32_t left = send_runs(best, sending, mask, true, given_up, &bytes, &fault);
        pthread_mutex_lock(&m->f.lock);
        sending->undelivered = left;
        if (left)
            sending->given_up |= (uint8_t)(1u << (best - m->rails));
        if (fault && sending->status == RG_OK)
            sending->status = RG_ERR_FAULT;
        pthread_mutex_unlock(&m->f.lock);
    }
}

/* --- messages --- */

enum rg_status rg_multirail_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_sending sending = {.send = send};
    RG_TRY(rg_fanout_begin(&m->f, send));
    sending.tag = tag_of(m, send);
    const uint64_t since = rg_now_ns();
    rg_fanout_send_pieces(&m->f, &sending);
    send_again(m, &sending);
    const uint64_t ns = rg_now_ns() - since;
    if (sending.status == RG_OK)
        rg_striping_sent(m, send->bulk_size, ns, true);
    return rg_fanout_end(&m->f, &sending, ns);
}

/* By the first connection alone. */
static enum rg_status send_whole(struct multirail *m, struct rg_send *send)
{
    const bool large = send->bulk_size >= RG_MULTIRAIL_MIN;
    enum rg_status status = RG_OK;
    if (send->bulk_size >= RG_FANOUT_BULK_MIN)
        rg_rails_want(m, 0, send->bulk_size);
    const uint64_t since = rg_now_ns();
    if (large) {
        pthread_mutex_lock(&m->f.lock);
        status = m->f.send_failed;
        pthread_mutex_unlock(&m->f.lock);
    }
    if (status == RG_OK)
        status = rg_conn_send(m->f.first, send);
    if (large && status == RG_OK)
        rg_striping_sent(m, send->bulk_size, rg_now_ns() - since, false);
    return status;
}

enum rg_status rg_multirail_send(struct rg_conn *conn, struct rg_send *send)
{
    struct multirail *m = (struct multirail *)conn;
    if (!rg_fanout_fits(&m->f, send) || !atomic_load(&m->striping))
        return send_whole(m, send);
    const enum rg_status status = rg_fanout_send_head(&m->f, send);
    return status != RG_OK || send->detached ? status : rg_multirail_send_detached(conn, send);
}
