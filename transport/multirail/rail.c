/*
 * rail.c - channels over several networks: they come, are lost and come back.
 *
 * A rail delivers: what its sender was told is sent has arrived at the other end of it. So when one breaks, its sender knows
 * which runs of pieces have not, and sends those once more by another (send.c). A rail by which sending fails is still
 * received from: what has arrived by it does not come again (receive.c). Memory that the peer may have written to
 * by it is used again only when the rail's device can write there no more: `closed`.
 *
 * Rails are numbered, on both sides alike. One that is lost is opened again by the side that opens (reconnect.c), and takes the
 * place of the lost one when nobody is inside that any more. A lost one's connection is given back as soon as that is so:
 * while it is held, its device cannot be removed.
 */
#include "transport/multipath/internal.h"

#include "common/base/clock.h"
#include "common/base/thread.h"

#include <stdlib.h>

enum {
    VACANT_MS = 5000, /* how long a rail that comes back waits for the readers of what came before */
    TELL_NS =
        500000000, /* after a loss: the end of a session is that of its rails, and these show it first */
};

unsigned rg_multirail_living(const struct multipath *b)
{
    unsigned living = 0;
    for (unsigned i = 0; i < b->options.channels; i++)
        living += !b->channels[i].dropped;
    return living;
}

void rg_multirail_drop(struct channel *channel, enum rg_status status, const char *doing)
{
    struct multipath *b = channel->multipath;
    pthread_mutex_lock(&b->lock);
    const bool first = !channel->dropped, over = b->interrupted || b->ending;
    channel->dropped = true;
    const unsigned left = rg_multirail_living(b);
    if (first) {
        channel->users++;
        b->lost += !over;
        if (!over && status != RG_ERR_CLOSED) {
            channel->loss.tell_ns = rg_now_ns() + TELL_NS;
            channel->loss.status = status;
            channel->loss.doing = doing;
            memcpy(channel->loss.peer, channel->conn->peer, sizeof channel->loss.peer);
        }
        rg_multirail_schedule(channel);
        rg_striping_reset(b);
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (!first)
        return;
    rg_debug("a rail to %s has ended; %u left", rg_conn_peer(channel->conn), left);
    rg_conn_reset(channel->conn);
    pthread_mutex_lock(&b->lock);
    channel->closed = true;
    channel->users--;
    rg_multirail_readvertise(b);
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
}

void rg_multirail_tell(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    if (!channel->loss.tell_ns)
        return;
    const unsigned left = rg_multirail_living(b);
    char peer[sizeof channel->loss.peer];
    memcpy(peer, channel->loss.peer, sizeof peer);
    const enum rg_status status = channel->loss.status;
    const char *doing = channel->loss.doing;
    channel->loss.tell_ns = 0;
    pthread_mutex_unlock(&b->lock);
    rg_warn("a rail to %s is lost while %s (%s); %u left", peer, doing, rg_status_string(status), left);
    pthread_mutex_lock(&b->lock);
}

bool rg_multirail_vacant(const struct channel *channel)
{
    return channel->dropped && channel->closed && channel->reader_ended && !channel->users && !channel->job;
}

/* The channel that a rail is to be; NULL: there is none. The lock is held. */
static struct channel *place_for(struct multipath *b, unsigned index)
{
    for (unsigned i = 0; index == RG_MULTIPATH_ANY && i < b->options.channels; i++)
        if (!b->channels[i].since_ns)
            index = i;
    return index < b->options.channels && !b->ending ? &b->channels[index] : NULL;
}

/* Waits until nobody is inside a channel that is gone; the lock is held. */
static enum rg_status wait_until_vacant(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    const uint64_t until = rg_now_ns() + VACANT_MS * 1000000ull;
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int error = 0;
    while (!rg_multirail_vacant(channel) && !b->ending && error == 0)
        error = pthread_cond_timedwait(&b->changed, &b->lock, &time);
    return rg_multirail_vacant(channel) ? RG_OK : RG_ERR_TIMEOUT;
}

void rg_multirail_retire(struct channel *channel)
{
    struct multipath *b = channel->multipath;
    struct rg_conn *conn = NULL;
    pthread_mutex_lock(&b->memory_lock);
    pthread_mutex_lock(&b->lock);
    if (channel->conn && rg_multirail_vacant(channel)) {
        conn = channel->conn;
        if (channel->reader_runs)
            pthread_join(channel->reader, NULL); /* it has done all but return */
        channel->reader_runs = false;
        struct rg_conn_statistics statistics;
        rg_conn_get_statistics(conn, &statistics);
        b->past.bulk_copied_sent += statistics.bulk_copied_sent;
        b->past.bulk_copied_received += statistics.bulk_copied_received;
        b->past.bulk_direct_sent += statistics.bulk_direct_sent;
        b->past.bulk_direct_received += statistics.bulk_direct_received;
        for (unsigned i = 0; i < RG_PIECES_MAX; i++)
            if (b->inbox.runs[i].former == (unsigned)(channel - b->channels) + 1)
                b->inbox.runs[i].former =
                    0;               /* it may come once more by the one that takes this one's place */
        rg_multirail_readvertise(b); /* what was advertised by it */
        channel->conn = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_unlock(&b->memory_lock);
    rg_conn_destroy(conn);
}

/* Puts a connection in its place. Both locks are held. */
static enum rg_status install(struct channel *channel, struct rg_conn *conn)
{
    struct multipath *b = channel->multipath;
    if (b->ending || channel->conn || !rg_multirail_vacant(channel))
        return RG_ERR_LIMIT;
    channel->conn = conn;
    channel->reader_ended = false; /* it looks at these */
    channel->dropped = channel->closed = false;
    const enum rg_status status = rg_thread_create(&channel->reader, "rg-rail", rg_multirail_read, channel);
    channel->reader_runs = status == RG_OK;
    if (status != RG_OK) {
        channel->conn = NULL;
        channel->dropped = channel->closed = channel->reader_ended = true;
        return status;
    }
    channel->rate = channel->due = 0;
    channel->sent = channel->ns = 0;
    b->returned += channel->since_ns != 0;
    channel->since_ns = rg_now_ns();
    b->came = true;
    rg_striping_reset(b);
    rg_multirail_readvertise(b);
    pthread_cond_broadcast(&b->changed);
    return RG_OK;
}

enum rg_status rg_multirail_add(struct multipath *b, struct rg_conn *conn, unsigned index)
{
    pthread_mutex_lock(&b->lock);
    struct channel *channel = place_for(b, index);
    enum rg_status status = channel ? RG_OK : RG_ERR_LIMIT;
    if (channel && !channel->dropped) { /* the peer has lost it */
        pthread_mutex_unlock(&b->lock);
        rg_multirail_drop(channel, RG_ERR_LOST, "idle");
        pthread_mutex_lock(&b->lock);
    }
    if (channel) {
        rg_multirail_tell(channel);
        status = wait_until_vacant(channel);
    }
    pthread_mutex_unlock(&b->lock);
    if (status != RG_OK)
        return status;
    rg_multirail_retire(channel);
    pthread_mutex_lock(&b->memory_lock);
    status = rg_multirail_prepare(b, conn);
    pthread_mutex_lock(&b->lock);
    const bool back = channel->since_ns != 0;
    if (status == RG_OK)
        status = install(channel, conn);
    const bool interrupted = b->interrupted;
    const unsigned now = rg_multirail_living(b);
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_unlock(&b->memory_lock);
    if (status == RG_OK && back)
        rg_warn("the rail to %s is back; %u now", rg_conn_peer(conn), now);
    else if (status == RG_OK)
        rg_info("rail %u to %s: %s", (unsigned)(channel - b->channels), rg_conn_peer(b->first),
                rg_conn_peer(conn));
    if (status == RG_OK && interrupted)
        rg_conn_interrupt(conn);
    if (status == RG_OK)
        rg_multipath_keep(b);
    return status;
}

void rg_multirail_end(struct multipath *b)
{
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    for (unsigned i = 0; i < b->options.channels; i++)
        if (b->channels[i].conn)
            rg_conn_interrupt(b->channels[i].conn); /* what was sent has arrived */
    for (unsigned i = 0; i < b->options.channels; i++)
        if (b->channels[i].reader_runs)
            pthread_join(b->channels[i].reader, NULL);
    for (unsigned i = 0; i < RG_PIECES_MAX; i++)
        free(b->inbox.runs[i].stash);
    rg_multirail_memory_end(b);
}
