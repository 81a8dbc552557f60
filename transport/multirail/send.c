/*
 * send.c - messages out by rails: each carries a run of pieces, which its device writes to where it belongs.
 *
 * Where the peer has advertised memory, nobody asks it where that is. Either all runs of a message find room in what was advertised for
 * anything, or all are asked for: the peer takes what was advertised in the order of the message, without a copy. What goes out
 * again because its rail broke is asked for.
 */
#include "transport/multipath/internal.h"

uint64_t rg_multirail_tag(struct multipath *b, const struct job *job, uint64_t tag)
{
    size_t bytes[RG_MULTIPATH_CHANNELS] = {0};
    if (tag)
        return tag;
    for (unsigned i = 0; i * (size_t)RG_PIECE < job->size; i++)
        bytes[rg_multipath_channel_of(job->route, i)] += rg_multipath_piece_size(job->size, i);
    bool room = true;
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS && room; i++)
        room =
            !bytes[i] || (!b->channels[i].dropped && rg_conn_has_advertised(b->channels[i].conn, bytes[i]));
    pthread_mutex_unlock(&b->lock);
    return room ? 0 : RG_TAG_NOWHERE;
}

/* A run of pieces in one message. */
static enum rg_status send_run(struct channel *channel, const struct job *job, unsigned index, unsigned n,
                               bool again, uint8_t given_up)
{
    struct iovec parts[RG_MULTIPATH_ROWS];
    const size_t offset = (size_t)index * RG_PIECE, left = job->size - offset;
    const size_t size = left < n * (size_t)RG_PIECE ? left : n * (size_t)RG_PIECE;
    const int n_parts = rg_multipath_slice(job, offset, size, parts);
    const bool tagged = job->tag && job->tag != RG_TAG_NOWHERE;
    struct rg_run head = {.kind = RG_MESSAGE_PIECE,
                          .version = RG_PROTOCOL_MAJOR,
                          .index = (uint16_t)index,
                          .given_up = given_up,
                          .more = (uint8_t)(n - 1),
                          .number = job->number};
    const struct iovec message = {&head, sizeof head};
    struct rg_send run = {.msg = &message,
                          .n_msg = 1,
                          .bulk = parts,
                          .n_bulk = n_parts,
                          .tag = again && !tagged ? RG_TAG_NOWHERE : job->tag,
                          .base = tagged ? job->base + offset : 0};
    return rg_conn_send(channel->conn, &run);
}

/* Takes part in using a channel's connection; false: it is gone. */
static bool enter(struct channel *channel)
{
    pthread_mutex_lock(&channel->multipath->lock);
    const bool there = !channel->dropped;
    channel->users += there;
    pthread_mutex_unlock(&channel->multipath->lock);
    return there;
}

static void leave(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    pthread_mutex_lock(&b->lock);
    channel->users--;
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
}

uint32_t rg_multirail_send(struct channel *channel, const struct job *job, uint32_t mask, bool again,
                           uint8_t given_up, size_t *bytes, bool *fault)
{
    if (!enter(channel))
        return mask;
    enum rg_status status = RG_OK;
    for (unsigned i = 0, n; i < RG_PIECES_MAX && status == RG_OK; i += n) {
        for (n = 0;
             i + n < RG_PIECES_MAX && (mask >> (i + n) & 1) &&
             (n == 0 || rg_multipath_channel_of(job->route, i + n) == rg_multipath_channel_of(job->route, i));
             n++)
            ;
        if (!n) {
            n = 1;
            continue;
        }
        status = send_run(channel, job, i, n, again, given_up);
        if (status == RG_ERR_FAULT) {
            *fault = true;
            status = RG_OK;
        }
        for (unsigned k = i; k < i + n && status == RG_OK; k++) {
            mask &= ~(1u << k);
            *bytes += rg_multipath_piece_size(job->size, k);
        }
    }
    if (status != RG_OK)
        rg_multirail_drop(channel, status, "sending");
    leave(channel);
    return mask;
}

void rg_multirail_send_again(struct multipath *b, struct job *job)
{
    for (;;) {
        struct channel *best = NULL;
        uint8_t given_up = 0;
        pthread_mutex_lock(&b->lock);
        for (unsigned i = 0; i < b->options.channels; i++) {
            if (!b->channels[i].dropped && (!best || b->channels[i].rate > best->rate))
                best = &b->channels[i];
            if (b->channels[i].dropped) /* one that is back was closed over there before */
                given_up |= (uint8_t)(1u << i) & job->given_up;
        }
        const uint32_t mask = job->undelivered;
        if (mask && !best)
            job->status = RG_ERR_LOST;
        pthread_mutex_unlock(&b->lock);
        if (!mask)
            return;
        if (!best) {
            rg_multipath_break(b, &b->channels[0], RG_ERR_LOST, "sending; no rail is left");
            return;
        }
        size_t bytes = 0;
        bool fault = false;
        const uint32_t left = rg_multirail_send(best, job, mask, true, given_up, &bytes, &fault);
        pthread_mutex_lock(&b->lock);
        job->undelivered = left;
        if (left)
            job->given_up |= (uint8_t)(1u << (best - b->channels));
        if (fault && job->status == RG_OK)
            job->status = RG_ERR_FAULT;
        pthread_mutex_unlock(&b->lock);
    }
}
