/*
 * reconnect.c - opens the rails of a multipath, each as soon as it can be had, and again when it was lost;
 * and gives back the connections of those that were.
 *
 * The pause before a try is a second, and twice as long after each that fails or does not hold for half a
 * minute, up to a minute. Nothing waits for any of this: the rails that there are carry everything meanwhile.
 *
 * Losses are told here, a moment later: if all ends by then, the rails were not lost.
 *
 * Thread: one of its own, from the first large transfer (on the side that does not open: from the first rail)
 * to the end.
 */
#include "transport/multirail/internal.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

static const struct rg_adaptive_range pause_ns = {
    .least = 1000000000u, .first = 1000000000u, .most = 60000000000u};
static const uint64_t holds_ns = 30000000000u;

void rg_rail_schedule(struct rail *rail)
{
    const uint64_t now = rg_now_ns();
    if (rail->base.conn && rail->since_ns && now - rail->since_ns >= holds_ns)
        rg_adaptive_reset(&rail->pause);
    rail->retry_ns = now + rg_adaptive_raise(&rail->pause, &pause_ns);
}

/* A rail that is gone, whose connection can be given back; NULL: none. The lock is held. */
static struct rail *gone_rail(struct multirail *m)
{
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].base.conn && rg_rail_vacant(&m->rails[i]))
            return &m->rails[i];
    return NULL;
}

/*
 * The rail that is to be opened next; NULL: all are there, are still in use, or are the peer's to open. The
 * lock is held.
 */
static struct rail *next_rail(struct multirail *m)
{
    struct rail *next = NULL;
    for (unsigned i = 0; m->options.open && i < m->options.rails; i++) {
        struct rail *rail = &m->rails[i];
        if (rail->base.dropped && rg_rail_vacant(rail) && (!next || rail->retry_ns < next->retry_ns))
            next = rail;
    }
    return next;
}

/* The rail whose loss is told next; NULL: there is none. The lock is held. */
static struct rail *unreported_rail(struct multirail *m)
{
    struct rail *next = NULL;
    for (unsigned i = 0; i < m->options.rails; i++) {
        struct rail *rail = &m->rails[i];
        if (rail->loss.report_ns && (!next || rail->loss.report_ns < next->loss.report_ns))
            next = rail;
    }
    return next;
}

static void try_rail(struct rail *rail)
{
    struct multirail *m = rg_multirail_of(rail);
    const unsigned index = (unsigned)(rail - m->rails);
    struct rg_conn *conn = m->options.open(m->options.user, index);
    const bool added = conn && rg_multirail_add(&m->f.head, conn, index) == RG_OK;
    if (conn && !added)
        rg_conn_destroy(conn);
    RG_SCOPED_LOCK(&m->f.lock);
    if (!added)
        rg_rail_schedule(rail);
}

static void *reconnect_main(void *arg)
{
    struct multirail *m = arg;
    pthread_mutex_lock(&m->f.lock);
    while (!m->f.ending && !m->f.interrupted) {
        struct rail *rail = gone_rail(m);
        if (rail) {
            pthread_mutex_unlock(&m->f.lock);
            rg_rail_retire(rail);
            pthread_mutex_lock(&m->f.lock);
            continue;
        }
        struct rail *unreported = unreported_rail(m);
        if (unreported && unreported->loss.report_ns <= rg_now_ns()) {
            rg_rail_report(unreported);
            continue;
        }
        rail = next_rail(m);
        if (rail && rail->retry_ns <= rg_now_ns()) {
            pthread_mutex_unlock(&m->f.lock);
            try_rail(rail);
            pthread_mutex_lock(&m->f.lock);
            continue;
        }
        if (!m->opened) {
            m->opened = true;
            pthread_cond_broadcast(&m->f.changed);
        }
        uint64_t next_ns = rail ? rail->retry_ns : UINT64_MAX;
        if (unreported && unreported->loss.report_ns < next_ns)
            next_ns = unreported->loss.report_ns;
        if (next_ns != UINT64_MAX) {
            const struct timespec until = rg_timespec(next_ns);
            pthread_cond_timedwait(&m->f.upkeep, &m->f.lock, &until);
        } else {
            pthread_cond_wait(&m->f.upkeep, &m->f.lock);
        }
    }
    m->opened = true;
    m->opening = false;
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    return NULL;
}

void rg_rails_reconnect(struct multirail *m)
{
    RG_SCOPED_LOCK(&m->f.lock);
    if (!m->opener_started && !m->f.interrupted && !m->f.ending)
        m->opening = m->opener_started = rg_thread_create(&m->opener, "rg-rails", reconnect_main, m) == RG_OK;
}

void rg_rails_want(struct multirail *m, unsigned rails, uint64_t bulk_on_first)
{
    pthread_mutex_lock(&m->f.lock);
    m->f.bulk_on_first += bulk_on_first;
    if (rails > m->options.rails || (!rails && m->f.bulk_on_first >= RG_FANOUT_BULK_ON_FIRST))
        rails = m->options.rails;
    if (rails > m->f.wanted)
        m->f.wanted = rails;
    const bool start = m->options.open && m->f.wanted && !m->opener_started;
    pthread_mutex_unlock(&m->f.lock);
    if (start)
        rg_rails_reconnect(m);
}
