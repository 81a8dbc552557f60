/*
 * reconnect.c - opens the rails of a multipath, each as soon as it can be had, and again when it was lost; and gives back the
 * connections of those that were.
 *
 * The pause before a try is a second, and twice as long after each that fails or does not hold for half a minute, up to a
 * minute. Nothing waits for any of this: the rails that there are carry everything meanwhile.
 *
 * Losses are told here, a moment later: if all ends by then, the rails were not lost.
 *
 * Thread: one of its own, from the first large transfer (on the side that does not open: from the first rail) to the end.
 */
#include "transport/multipath/internal.h"

#include "common/base/clock.h"

static const uint64_t first_pause_ns = 1000000000u, longest_pause_ns = 60000000000u, holds_ns = 30000000000u;

void rg_multirail_schedule(struct channel *channel)
{
    const uint64_t now = rg_now_ns();
    if (channel->conn && channel->since_ns && now - channel->since_ns >= holds_ns)
        channel->pause_ns = 0;
    const uint64_t twice = 2 * channel->pause_ns;
    channel->pause_ns = twice < first_pause_ns     ? first_pause_ns
                        : twice < longest_pause_ns ? twice
                                                   : longest_pause_ns;
    channel->retry_ns = now + channel->pause_ns;
}

/* A channel that is gone, whose connection can be given back; NULL: none. The lock is held. */
static struct channel *gone_channel(struct multipath *b)
{
    for (unsigned i = 0; i < b->options.channels; i++)
        if (b->channels[i].conn && rg_multirail_vacant(&b->channels[i]))
            return &b->channels[i];
    return NULL;
}

/* The channel that is to be opened next; NULL: all are there, are still in use, or are the peer's to open. The lock is held. */
static struct channel *next_channel(struct multipath *b)
{
    struct channel *next = NULL;
    for (unsigned i = 0; b->options.open && i < b->options.channels; i++) {
        struct channel *channel = &b->channels[i];
        if (channel->dropped && rg_multirail_vacant(channel) && (!next || channel->retry_ns < next->retry_ns))
            next = channel;
    }
    return next;
}

/* The channel whose loss is told next; NULL: there is none. The lock is held. */
static struct channel *untold_channel(struct multipath *b)
{
    struct channel *next = NULL;
    for (unsigned i = 0; i < b->options.channels; i++) {
        struct channel *channel = &b->channels[i];
        if (channel->loss.tell_ns && (!next || channel->loss.tell_ns < next->loss.tell_ns))
            next = channel;
    }
    return next;
}

static void try_channel(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    const unsigned index = (unsigned)(channel - b->channels);
    struct rg_conn *conn = b->options.open(b->options.user, index);
    const bool added = conn && rg_multirail_add(b, conn, index) == RG_OK;
    if (conn && !added)
        rg_conn_destroy(conn);
    pthread_mutex_lock(&b->lock);
    if (!added)
        rg_multirail_schedule(channel);
    pthread_mutex_unlock(&b->lock);
}

void *rg_multirail_keep(void *multipath)
{
    struct multipath *b = multipath;
    pthread_mutex_lock(&b->lock);
    while (!b->ending && !b->interrupted) {
        struct channel *channel = gone_channel(b);
        if (channel) {
            pthread_mutex_unlock(&b->lock);
            rg_multirail_retire(channel);
            pthread_mutex_lock(&b->lock);
            continue;
        }
        struct channel *untold = untold_channel(b);
        if (untold && untold->loss.tell_ns <= rg_now_ns()) {
            rg_multirail_tell(untold);
            continue;
        }
        channel = next_channel(b);
        if (channel && channel->retry_ns <= rg_now_ns()) {
            pthread_mutex_unlock(&b->lock);
            try_channel(channel);
            pthread_mutex_lock(&b->lock);
            continue;
        }
        if (!b->opened) {
            b->opened = true;
            pthread_cond_broadcast(&b->changed);
        }
        uint64_t next_ns = channel ? channel->retry_ns : UINT64_MAX;
        if (untold && untold->loss.tell_ns < next_ns)
            next_ns = untold->loss.tell_ns;
        if (next_ns != UINT64_MAX) {
            const struct timespec until = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
            pthread_cond_timedwait(&b->keep, &b->lock, &until);
        } else {
            pthread_cond_wait(&b->keep, &b->lock);
        }
    }
    b->opened = true;
    b->opening = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}
