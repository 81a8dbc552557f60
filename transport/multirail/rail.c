/*
 * rail.c - channels over several networks: they come, are lost and come back.
 *
 * A rail delivers: what its sender was told is sent has arrived at the other end of it. So when one breaks,
 * its sender knows which runs of pieces have not, and sends those once more by another (send.c). A rail by
 * which sending fails is still received from: what has arrived by it does not come again (receive.c). Memory
 * that the peer may have written to by it is used again only when the rail's device can write there no more:
 * `closed`.
 *
 * Rails are numbered, on both sides alike. One that is lost is opened again by the side that opens
 * (reconnect.c), and takes the place of the lost one when nobody is inside that any more. A lost one's
 * connection is given back as soon as that is so: while it is held, its device cannot be removed.
 */
#include "transport/multirail/internal.h"

#include "common/base/clock.h"
#include "common/base/thread.h"

#include <assert.h>
#include <stdlib.h>

enum {
    VACANT_MS = 5000, /* how long a rail that comes back waits for the readers of what came before */
    REPORT_NS =
        500000000, /* after a loss: the end of a session is that of its rails, and these show it first */
};

unsigned rg_rails_living(const struct multirail *m)
{
    unsigned living = 0;
    for (unsigned i = 0; i < m->options.rails; i++)
        living += !m->rails[i].base.dropped;
    return living;
}

void rg_rail_drop(struct rail *rail, enum rg_status status, const char *doing)
{
    struct multirail *m = rg_multirail_of(rail);
    pthread_mutex_lock(&m->f.lock);
    const bool first = !rail->base.dropped, over = m->f.interrupted || m->f.ending;
    rail->base.dropped = true;
    const unsigned left = rg_rails_living(m);
    if (first) {
        rail->users++;
        m->lost += !over;
        if (!over && status != RG_ERR_CLOSED) {
            rail->loss.report_ns = rg_now_ns() + REPORT_NS;
            rail->loss.status = status;
            rail->loss.doing = doing;
            memcpy(rail->loss.peer, rail->base.conn->peer, sizeof rail->loss.peer);
        }
        rg_rail_schedule(rail);
        rg_striping_reset(m);
    }
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    if (!first)
        return;
    rg_debug("a rail to %s has ended; %u left", rg_conn_peer(rail->base.conn), left);
    rg_conn_reset(rail->base.conn);
    pthread_mutex_lock(&m->f.lock);
    rail->closed = true;
    rail->users--;
    rg_multirail_readvertise(m);
    pthread_cond_broadcast(&m->f.changed);
    pthread_cond_broadcast(&m->f.upkeep);
    pthread_mutex_unlock(&m->f.lock);
}

bool rg_rail_give_up(struct multirail *m, unsigned place)
{
    struct rail *rail = place < m->options.rails ? &m->rails[place] : NULL;
    pthread_mutex_lock(&m->f.lock);
    const bool goes = rail && !rail->base.dropped && rg_rails_living(m) > 1;
    if (goes)
        rail->users++;
    pthread_mutex_unlock(&m->f.lock);
    if (!goes)
        return false;
    rg_rail_drop(rail, RG_ERR_TIMEOUT, "sending, and nothing is taken there");
    pthread_mutex_lock(&m->f.lock);
    rail->users--;
    pthread_cond_broadcast(&m->f.changed);
    pthread_cond_broadcast(&m->f.upkeep);
    pthread_mutex_unlock(&m->f.lock);
    return true;
}

void rg_rail_report(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    if (!rail->loss.report_ns)
        return;
    const unsigned left = rg_rails_living(m);
    char peer[sizeof rail->loss.peer];
    memcpy(peer, rail->loss.peer, sizeof peer);
    const enum rg_status status = rail->loss.status;
    const char *doing = rail->loss.doing;
    rail->loss.report_ns = 0;
    pthread_mutex_unlock(&m->f.lock);
    rg_warn("a rail to %s is lost while %s (%s); %u left", peer, doing, rg_status_string(status), left);
    pthread_mutex_lock(&m->f.lock);
}

bool rg_rail_vacant(const struct rail *rail)
{
    return rail->base.dropped && rail->closed && rail->reader_ended && !rail->users && !rail->base.sending;
}

/* The rail that a rail is to be; NULL: there is none. The lock is held. */
static struct rail *place_for(struct multirail *m, unsigned index)
{
    for (unsigned i = 0; index == RG_MULTIRAIL_ANY && i < m->options.rails; i++)
        if (!m->rails[i].since_ns)
            index = i;
    return index < m->options.rails && !m->f.ending ? &m->rails[index] : NULL;
}

/* Waits until nobody is inside a rail that is gone; the lock is held. */
static enum rg_status wait_until_vacant(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    const uint64_t until = rg_now_ns() + VACANT_MS * 1000000ull;
    const struct timespec time = rg_timespec(until);
    int error = 0;
    while (!rg_rail_vacant(rail) && !m->f.ending && error == 0)
        error = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &time);
    return rg_rail_vacant(rail) ? RG_OK : RG_ERR_TIMEOUT;
}

void rg_rail_retire(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    struct rg_conn *conn = NULL;
    pthread_mutex_lock(&m->memory_lock);
    pthread_mutex_lock(&m->f.lock);
    if (rail->base.conn && rg_rail_vacant(rail)) {
        conn = rail->base.conn;
        if (rail->reader_runs)
            pthread_join(rail->reader, NULL); /* it has done all but return */
        rail->reader_runs = false;
        rg_fanout_add_statistics(&m->past, conn);
        for (unsigned i = 0; i < RG_PIECES_MAX; i++)
            if (m->inbox.runs[i].former == (unsigned)(rail - m->rails) + 1)
                m->inbox.runs[i].former =
                    0;               /* it may come once more by the one that takes this one's place */
        rg_multirail_readvertise(m); /* what was advertised by it */
        rail->base.conn = NULL;
    }
    pthread_mutex_unlock(&m->f.lock);
    pthread_mutex_unlock(&m->memory_lock);
    rg_conn_destroy(conn);
}

/* Puts a connection in its place. Both locks are held. */
static enum rg_status install(struct rail *rail, struct rg_conn *conn)
{
    struct multirail *m = rg_multirail_of(rail);
    if (m->f.ending || rail->base.conn || !rg_rail_vacant(rail))
        return RG_ERR_LIMIT;
    rail->base.conn = conn;
    rail->reader_ended = false; /* it looks at these */
    rail->base.dropped = rail->closed = false;
    const enum rg_status status = rg_thread_create(&rail->reader, "rg-rail", rg_rail_read, rail);
    rail->reader_runs = status == RG_OK;
    if (status != RG_OK) {
        rail->base.conn = NULL;
        rail->base.dropped = rail->closed = rail->reader_ended = true;
        return status;
    }
    rail->base.rate = rail->base.due = 0;
    rail->base.sent = rail->base.ns = 0;
    m->returned += rail->since_ns != 0;
    rail->since_ns = rg_now_ns();
    m->came = true;
    rg_striping_reset(m);
    rg_multirail_readvertise(m);
    pthread_cond_broadcast(&m->f.changed);
    return RG_OK;
}

enum rg_status rg_multirail_add(struct rg_conn *multirail, struct rg_conn *conn, unsigned index)
{
    struct multirail *m = (struct multirail *)multirail;
    pthread_mutex_lock(&m->f.lock);
    struct rail *rail = place_for(m, index);
    enum rg_status status = rail ? RG_OK : RG_ERR_LIMIT;
    if (rail && !rail->base.dropped) { /* the peer has lost it */
        pthread_mutex_unlock(&m->f.lock);
        rg_rail_drop(rail, RG_ERR_LOST, "idle");
        pthread_mutex_lock(&m->f.lock);
    }
    if (rail) {
        rg_rail_report(rail);
        status = wait_until_vacant(rail);
    }
    pthread_mutex_unlock(&m->f.lock);
    if (status != RG_OK)
        return status;
    rg_rail_retire(rail);
    char peer[160]; /* once it is installed, it may be lost and freed as soon as the lock is given up */
    static_assert(sizeof peer == sizeof conn->peer, "a connection's peer");
    memcpy(peer, conn->peer, sizeof peer);
    pthread_mutex_lock(&m->memory_lock);
    status = rg_multirail_prepare(m, conn);
    pthread_mutex_lock(&m->f.lock);
    const bool back = rail->since_ns != 0;
    if (status == RG_OK)
        status = install(rail, conn);
    if (status == RG_OK && m->f.interrupted)
        rg_conn_interrupt(conn);
    const unsigned now = rg_rails_living(m);
    pthread_mutex_unlock(&m->f.lock);
    pthread_mutex_unlock(&m->memory_lock);
    if (status == RG_OK && back)
        rg_warn("the rail to %s is back; %u now", peer, now);
    else if (status == RG_OK)
        rg_info("rail %u to %s: %s", (unsigned)(rail - m->rails), rg_conn_peer(m->f.first), peer);
    if (status == RG_OK)
        rg_rails_reconnect(m);
    return status;
}

void rg_rails_end(struct multirail *m)
{
    pthread_mutex_lock(&m->f.lock);
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].base.conn)
            rg_conn_interrupt(m->rails[i].base.conn); /* what was sent has arrived */
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].reader_runs)
            pthread_join(m->rails[i].reader, NULL);
    for (unsigned i = 0; i < RG_PIECES_MAX; i++)
        free(m->inbox.runs[i].stash);
}
