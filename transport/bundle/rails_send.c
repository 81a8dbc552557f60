/*
 * rails_send.c - messages out by rails: each carries a run of pieces, which its device writes to where it belongs.
 *
 * Where the peer has lent memory, nobody asks it where that is. Either all runs of a message find room in what was lent for
 * anything, or all are asked for: the peer takes what was lent in the order of the message, without a copy. What goes out
 * again because its rail broke is asked for.
 */
#include "transport/bundle/inside.h"

uint64_t rg_rails_tag(struct bundle *b, const struct job *job, uint64_t tag)
{
    size_t bytes[RG_BUNDLE_LANES] = {0};
    if (tag)
        return tag;
    for (unsigned i = 0; i * (size_t)RG_PIECE < job->size; i++)
        bytes[rg_bundle_lane_of(job->route, i)] += rg_bundle_piece_size(job->size, i);
    bool room = true;
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < RG_BUNDLE_LANES && room; i++)
        room = !bytes[i] || (!b->lanes[i].dropped && rg_conn_has_room(b->lanes[i].conn, bytes[i]));
    pthread_mutex_unlock(&b->lock);
    return room ? 0 : RG_TAG_NOWHERE;
}

/* A run of pieces in one message. */
static enum rg_status send_run(struct lane *lane, const struct job *job, unsigned index, unsigned n,
                               bool again, uint8_t given_up)
{
    struct iovec parts[RG_BUNDLE_ROWS];
    const size_t offset = (size_t)index * RG_PIECE, left = job->size - offset;
    const size_t size = left < n * (size_t)RG_PIECE ? left : n * (size_t)RG_PIECE;
    const int n_parts = rg_bundle_slice(job, offset, size, parts);
    const bool tagged = job->tag && job->tag != RG_TAG_NOWHERE;
    struct rg_run head = {.kind = RG_MESSAGE_PIECE,
                          .version = RG_PROTOCOL_MAJOR,
                          .index = (uint16_t)index,
                          .given_up = given_up,
                          .more = (uint8_t)(n - 1),
                          .number = job->number};
    const struct iovec message = {&head, sizeof head};
    return rg_conn_send_to(lane->conn, again && !tagged ? RG_TAG_NOWHERE : job->tag,
                           tagged ? job->base + offset : 0, &message, 1, parts, n_parts);
}

/* Takes part in using a lane's connection; false: it is gone. */
static bool enter(struct lane *lane)
{
    pthread_mutex_lock(&lane->bundle->lock);
    const bool there = !lane->dropped;
    lane->users += there;
    pthread_mutex_unlock(&lane->bundle->lock);
    return there;
}

static void leave(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    pthread_mutex_lock(&b->lock);
    lane->users--;
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
}

uint32_t rg_rails_send(struct lane *lane, const struct job *job, uint32_t mask, bool again, uint8_t given_up,
                       size_t *bytes, bool *fault)
{
    if (!enter(lane))
        return mask;
    enum rg_status status = RG_OK;
    for (unsigned i = 0, n; i < RG_PIECES_MAX && status == RG_OK; i += n) {
        for (n = 0; i + n < RG_PIECES_MAX && (mask >> (i + n) & 1) &&
                    (n == 0 || rg_bundle_lane_of(job->route, i + n) == rg_bundle_lane_of(job->route, i));
             n++)
            ;
        if (!n) {
            n = 1;
            continue;
        }
        status = send_run(lane, job, i, n, again, given_up);
        if (status == RG_ERR_FAULT) {
            *fault = true;
            status = RG_OK;
        }
        for (unsigned k = i; k < i + n && status == RG_OK; k++) {
            mask &= ~(1u << k);
            *bytes += rg_bundle_piece_size(job->size, k);
        }
    }
    if (status != RG_OK)
        rg_rails_drop(lane, status, "sending");
    leave(lane);
    return mask;
}

void rg_rails_send_again(struct bundle *b, struct job *job)
{
    for (;;) {
        struct lane *best = NULL;
        uint8_t given_up = 0;
        pthread_mutex_lock(&b->lock);
        for (unsigned i = 0; i < b->options.lanes; i++) {
            if (!b->lanes[i].dropped && (!best || b->lanes[i].rate > best->rate))
                best = &b->lanes[i];
            if (b->lanes[i].dropped) /* one that is back was closed over there before */
                given_up |= (uint8_t)(1u << i) & job->given_up;
        }
        const uint32_t mask = job->undelivered;
        if (mask && !best)
            job->status = RG_ERR_LOST;
        pthread_mutex_unlock(&b->lock);
        if (!mask)
            return;
        if (!best) {
            rg_bundle_break(b, &b->lanes[0], RG_ERR_LOST, "sending; no rail is left");
            return;
        }
        size_t bytes = 0;
        bool fault = false;
        const uint32_t left = rg_rails_send(best, job, mask, true, given_up, &bytes, &fault);
        pthread_mutex_lock(&b->lock);
        job->undelivered = left;
        if (left)
            job->given_up |= (uint8_t)(1u << (best - b->lanes));
        if (fault && job->status == RG_OK)
            job->status = RG_ERR_FAULT;
        pthread_mutex_unlock(&b->lock);
    }
}
