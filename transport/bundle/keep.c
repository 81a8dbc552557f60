/*
 * keep.c - opens the rails of a bundle, each as soon as it can be had, and again when it was lost; and gives back the
 * connections of those that were.
 *
 * The pause before a try is a second, and twice as long after each that fails or does not hold for half a minute, up to a
 * minute. Nothing waits for any of this: the rails that there are carry everything meanwhile.
 *
 * Losses are told here, a moment later: if all ends by then, the rails were not lost.
 *
 * Thread: one of its own, from the first large transfer (on the side that does not open: from the first rail) to the end.
 */
#include "transport/bundle/inside.h"

#include "common/base/clock.h"

static const uint64_t first_pause_ns = 1000000000u, longest_pause_ns = 60000000000u, holds_ns = 30000000000u;

void rg_rails_schedule(struct lane *lane)
{
    const uint64_t now = rg_now_ns();
    if (lane->conn && lane->since_ns && now - lane->since_ns >= holds_ns)
        lane->pause_ns = 0;
    const uint64_t twice = 2 * lane->pause_ns;
    lane->pause_ns = twice < first_pause_ns     ? first_pause_ns
                     : twice < longest_pause_ns ? twice
                                                : longest_pause_ns;
    lane->retry_ns = now + lane->pause_ns;
}

/* A lane that is gone, whose connection can be given back; NULL: none. The lock is held. */
static struct lane *gone_lane(struct bundle *b)
{
    for (unsigned i = 0; i < b->options.lanes; i++)
        if (b->lanes[i].conn && rg_rails_vacant(&b->lanes[i]))
            return &b->lanes[i];
    return NULL;
}

/* The lane that is to be opened next; NULL: all are there, are still in use, or are the peer's to open. The lock is held. */
static struct lane *next_lane(struct bundle *b)
{
    struct lane *next = NULL;
    for (unsigned i = 0; b->options.open && i < b->options.lanes; i++) {
        struct lane *lane = &b->lanes[i];
        if (lane->dropped && rg_rails_vacant(lane) && (!next || lane->retry_ns < next->retry_ns))
            next = lane;
    }
    return next;
}

/* The lane whose loss is told next; NULL: there is none. The lock is held. */
static struct lane *untold_lane(struct bundle *b)
{
    struct lane *next = NULL;
    for (unsigned i = 0; i < b->options.lanes; i++) {
        struct lane *lane = &b->lanes[i];
        if (lane->loss.tell_ns && (!next || lane->loss.tell_ns < next->loss.tell_ns))
            next = lane;
    }
    return next;
}

static void try_lane(struct lane *lane)
{
    struct bundle *b = lane->bundle;
    const unsigned index = (unsigned)(lane - b->lanes);
    struct rg_conn *conn = b->options.open(b->options.user, index);
    const bool added = conn && rg_rails_add(b, conn, index) == RG_OK;
    if (conn && !added)
        rg_conn_destroy(conn);
    pthread_mutex_lock(&b->lock);
    if (!added)
        rg_rails_schedule(lane);
    pthread_mutex_unlock(&b->lock);
}

void *rg_rails_keep(void *bundle)
{
    struct bundle *b = bundle;
    pthread_mutex_lock(&b->lock);
    while (!b->ending && !b->interrupted) {
        struct lane *lane = gone_lane(b);
        if (lane) {
            pthread_mutex_unlock(&b->lock);
            rg_rails_retire(lane);
            pthread_mutex_lock(&b->lock);
            continue;
        }
        struct lane *untold = untold_lane(b);
        if (untold && untold->loss.tell_ns <= rg_now_ns()) {
            rg_rails_tell(untold);
            continue;
        }
        lane = next_lane(b);
        if (lane && lane->retry_ns <= rg_now_ns()) {
            pthread_mutex_unlock(&b->lock);
            try_lane(lane);
            pthread_mutex_lock(&b->lock);
            continue;
        }
        if (!b->opened) {
            b->opened = true;
            pthread_cond_broadcast(&b->changed);
        }
        uint64_t next_ns = lane ? lane->retry_ns : UINT64_MAX;
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
