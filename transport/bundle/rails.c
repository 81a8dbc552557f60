/*
 * rails.c - lanes over several networks: they come, are lost and come back.
 *
 * A rail delivers: what its sender was told is sent has arrived at the other end of it. So when one breaks, its sender knows
 * which runs of pieces have not, and sends those once more by another (rails_send.c). A rail by which sending fails is still
 * received from: what has arrived by it does not come again (rails_receive.c). Memory that the peer may have written to
 * by it is used again only when the rail's device can write there no more: `closed`.
 *
 * Rails are numbered, on both sides alike. One that is lost is opened again by the side that opens (keep.c), and takes the
 * place of the lost one when nobody is inside that any more. A lost one's connection is given back as soon as that is so:
 * while it is held, its device cannot be removed.
 */
#include "transport/bundle/inside.h"

#include "common/base/clock.h"
#include "common/base/thread.h"

#include <stdlib.h>

enum {
    VACANT_MS = 5000, /* how long a rail that comes back waits for the readers of what came before */
    TELL_NS =
        500000000, /* after a loss: the end of a session is that of its rails, and these show it first */
};

unsigned rg_rails_living(const struct bundle *b)
{
    unsigned living = 0;
    for (unsigned i = 0; i < b->options.lanes; i++)
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
    if (first) {
        lane->users++;
        b->lost += !over;
        if (!over && status != RG_ERR_CLOSED) {
            lane->loss.tell_ns = rg_now_ns() + TELL_NS;
            lane->loss.status = status;
            lane->loss.doing = doing;
            memcpy(lane->loss.peer, lane->conn->peer, sizeof lane->loss.peer);
        }
        rg_rails_schedule(lane);
        rg_stripe_look(b);
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (!first)
        return;
    rg_debug("a rail to %s has ended; %u left", rg_conn_peer(lane->conn), left);
    rg_conn_reset(lane->conn);
    pthread_mutex_lock(&b->lock);
    lane->closed = true;
    lane->users--;
    rg_rails_lend_again(b);
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
}

void rg_rails_tell(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    if (!lane->loss.tell_ns)
        return;
    const unsigned left = rg_rails_living(b);
    char peer[sizeof lane->loss.peer];
    memcpy(peer, lane->loss.peer, sizeof peer);
    const enum rg_status status = lane->loss.status;
    const char *doing = lane->loss.doing;
    lane->loss.tell_ns = 0;
    pthread_mutex_unlock(&b->lock);
    rg_warn("a rail to %s is lost while %s (%s); %u left", peer, doing, rg_status_string(status), left);
    pthread_mutex_lock(&b->lock);
}

bool rg_rails_vacant(const struct lane *lane)
{
    return lane->dropped && lane->closed && lane->reader_ended && !lane->users && !lane->job;
}

/* The lane that a rail is to be; NULL: there is none. The lock is held. */
static struct lane *place_for(struct bundle *b, unsigned index)
{
    for (unsigned i = 0; index == RG_BUNDLE_ANY && i < b->options.lanes; i++)
        if (!b->lanes[i].since_ns)
            index = i;
    return index < b->options.lanes && !b->ending ? &b->lanes[index] : NULL;
}

/* Waits until nobody is inside a lane that is gone; the lock is held. */
static enum rg_status wait_until_vacant(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    const uint64_t until = rg_now_ns() + VACANT_MS * 1000000ull;
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int error = 0;
    while (!rg_rails_vacant(lane) && !b->ending && error == 0)
        error = pthread_cond_timedwait(&b->changed, &b->lock, &time);
    return rg_rails_vacant(lane) ? RG_OK : RG_ERR_TIMEOUT;
}

void rg_rails_retire(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    struct rg_conn *conn = NULL;
    pthread_mutex_lock(&b->memory_lock);
    pthread_mutex_lock(&b->lock);
    if (lane->conn && rg_rails_vacant(lane)) {
        conn = lane->conn;
        if (lane->reader_runs)
            pthread_join(lane->reader, NULL); /* it has done all but return */
        lane->reader_runs = false;
        struct rg_conn_statistics statistics;
        rg_conn_get_statistics(conn, &statistics);
        b->past.bulk_copied_sent += statistics.bulk_copied_sent;
        b->past.bulk_copied_received += statistics.bulk_copied_received;
        b->past.bulk_direct_sent += statistics.bulk_direct_sent;
        b->past.bulk_direct_received += statistics.bulk_direct_received;
        for (unsigned i = 0; i < RG_PIECES_MAX; i++)
            if (b->inbox.runs[i].former == (unsigned)(lane - b->lanes) + 1)
                b->inbox.runs[i].former =
                    0;          /* it may come once more by the one that takes this one's place */
        rg_rails_lend_again(b); /* what was lent by it */
        lane->conn = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_unlock(&b->memory_lock);
    rg_conn_destroy(conn);
}

/* Puts a connection in its place. Both locks are held. */
static enum rg_status install(struct lane *lane, struct rg_conn *conn)
{
    struct bundle *b = lane->bundle;
    if (b->ending || lane->conn || !rg_rails_vacant(lane))
        return RG_ERR_LIMIT;
    lane->conn = conn;
    lane->reader_ended = false; /* it looks at these */
    lane->dropped = lane->closed = false;
    const enum rg_status status = rg_thread_create(&lane->reader, "rg-rail", rg_rails_read, lane);
    lane->reader_runs = status == RG_OK;
    if (status != RG_OK) {
        lane->conn = NULL;
        lane->dropped = lane->closed = lane->reader_ended = true;
        return status;
    }
    lane->rate = lane->due = 0;
    lane->sent = lane->ns = 0;
    b->returned += lane->since_ns != 0;
    lane->since_ns = rg_now_ns();
    b->came = true;
    rg_stripe_look(b);
    rg_rails_lend_again(b);
    pthread_cond_broadcast(&b->changed);
    return RG_OK;
}

enum rg_status rg_rails_add(struct bundle *b, struct rg_conn *conn, unsigned index)
{
    pthread_mutex_lock(&b->lock);
    struct lane *lane = place_for(b, index);
    enum rg_status status = lane ? RG_OK : RG_ERR_LIMIT;
    if (lane && !lane->dropped) { /* the peer has lost it */
        pthread_mutex_unlock(&b->lock);
        rg_rails_drop(lane, RG_ERR_LOST, "idle");
        pthread_mutex_lock(&b->lock);
    }
    if (lane) {
        rg_rails_tell(lane);
        status = wait_until_vacant(lane);
    }
    pthread_mutex_unlock(&b->lock);
    if (status != RG_OK)
        return status;
    rg_rails_retire(lane);
    pthread_mutex_lock(&b->memory_lock);
    status = rg_rails_prepare(b, conn);
    pthread_mutex_lock(&b->lock);
    const bool back = lane->since_ns != 0;
    if (status == RG_OK)
        status = install(lane, conn);
    const bool interrupted = b->interrupted;
    const unsigned now = rg_rails_living(b);
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_unlock(&b->memory_lock);
    if (status == RG_OK && back)
        rg_warn("the rail to %s is back; %u now", rg_conn_peer(conn), now);
    else if (status == RG_OK)
        rg_info("rail %u to %s: %s", (unsigned)(lane - b->lanes), rg_conn_peer(b->first), rg_conn_peer(conn));
    if (status == RG_OK && interrupted)
        rg_conn_interrupt(conn);
    if (status == RG_OK)
        rg_bundle_keep(b);
    return status;
}

void rg_rails_end(struct bundle *b)
{
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    for (unsigned i = 0; i < b->options.lanes; i++)
        if (b->lanes[i].conn)
            rg_conn_interrupt(b->lanes[i].conn); /* what was sent has arrived */
    for (unsigned i = 0; i < b->options.lanes; i++)
        if (b->lanes[i].reader_runs)
            pthread_join(b->lanes[i].reader, NULL);
    for (unsigned i = 0; i < RG_PIECES_MAX; i++)
        free(b->inbox.runs[i].stash);
    rg_rails_memory_end(b);
}
