/*
 * receive.c - bulk data from all rails at once: the receiver, which says what it wants and waits until readers (rail_reader.c) have
 * put it in place.
 *
 * What lies in memory that was advertised is taken by the receiver itself, in the order of the message; the run's reader stays where
 * it is meanwhile. Where all readers have ended, or have a run of a later message, the receiver waits no longer than a rail takes to
 * be added.
 */
#include "transport/multirail/internal.h"

#include "common/base/safe_copy.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

enum {
    FIRST_RAIL_MS = 30000, /* how long a message may wait for the first rail to be added here … */
    NEXT_RAIL_MS = 5000,   /* … and for one that comes back, where no other can bring the rest of it */
};

static void free_stashes(struct multirail *m)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        free(m->inbox.runs[i].stash);
        m->inbox.runs[i].stash = NULL;
    }
}

/* What the receiver wants of runs that were put aside. The lock is held. */
static void unstash(struct multirail *m)
{
    struct inbox *inbox = &m->inbox;
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &inbox->runs[i];
        const size_t begin = (size_t)i * RG_PIECE, most = run->pieces * (size_t)RG_PIECE;
        const size_t end = m->f.total - begin < most ? m->f.total : begin + most;
        if (!run->stash || run->done >= end || run->done >= inbox->until)
            continue;
        const size_t size = (end < inbox->until ? end : inbox->until) - run->done;
        if (inbox->to && !rg_safe_copy_to(inbox->to + (run->done - inbox->from),
                                          run->stash + (run->done - run->stash_from), size))
            inbox->fault = true;
        run->done += size;
        inbox->got += size;
    }
}

void rg_multirail_begin(struct rg_fanout *f)
{
    struct multirail *m = (struct multirail *)f;
    free_stashes(m);
    memset(m->inbox.runs, 0, sizeof m->inbox.runs);
    m->peer_stripes = true;
    pthread_cond_broadcast(&f->changed);
}

enum rg_status rg_multirail_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct multirail *m = (struct multirail *)conn;
    unsigned wanted;
    RG_TRY(rg_fanout_recv(&m->f, timeout_ms, out, &wanted));
    if (m->f.out_of_band) {
        rg_rails_want(m, wanted, 0);
        return RG_OK;
    }
    if (out->bulk_size >= RG_FANOUT_BULK_MIN)
        rg_rails_want(m, 0, out->bulk_size);
    if (m->peer_stripes && out->bulk_size >= RG_MULTIRAIL_MIN) {
        pthread_mutex_lock(&m->f.lock);
        m->peer_stripes = false;
        pthread_mutex_unlock(&m->f.lock);
    }
    return RG_OK;
}

/* Whether some reader may still bring what the message lacks; the lock is held. */
static bool may_come(const struct multirail *m)
{
    for (unsigned i = 0; i < m->options.rails; i++)
        if (!m->rails[i].reader_ended && m->rails[i].waits_for <= m->f.received_number)
            return true;
    return false;
}

/* Whether waiting is of use; `late`: nothing could come for as long as that may be. The lock is held. */
static enum rg_status state(const struct multirail *m, bool late)
{
    if (m->inbox.violated)
        return RG_ERR_PROTOCOL;
    if (m->f.interrupted)
        return RG_ERR_CLOSED;
    if (late)
        return RG_ERR_LOST;
    if (!m->came)
        return RG_OK;
    for (unsigned i = 0; i < m->options.rails; i++)
        if (!m->rails[i].reader_ended)
            return RG_OK;
    return RG_ERR_LOST;
}

/* The next `size` bytes of bulk data, from whichever rails. */
static enum rg_status take(struct multirail *m, unsigned char *to, size_t size)
{
    struct inbox *inbox = &m->inbox;
    struct timespec until = {0};
    enum rg_status status = RG_OK;
    bool hope = true, late = false;
    pthread_mutex_lock(&m->f.lock);
    inbox->to = to;
    inbox->from = m->f.taken;
    inbox->until = m->f.taken + size;
    inbox->got = 0;
    inbox->fault = false;
    inbox->wanted = true;
    pthread_cond_broadcast(&m->f.changed);
    unstash(m);
    while (inbox->got < size && (status = state(m, late)) == RG_OK) {
        const bool hoped = hope;
        hope = may_come(m);
        if (hoped && !hope)
            until = rg_multirail_in_ms(m->came ? NEXT_RAIL_MS : FIRST_RAIL_MS);
        if (hope)
            pthread_cond_wait(&m->f.changed, &m->f.lock);
        else
            late = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) != 0 && !may_come(m);
        unstash(m);
    }
    const bool complete = inbox->got == size;
    inbox->wanted = false;
    if (!complete && inbox->busy) { /* nobody may write to the caller's memory any more */
        pthread_mutex_unlock(&m->f.lock);
        rg_fanout_interrupt(&m->f);
        pthread_mutex_lock(&m->f.lock);
        while (inbox->busy)
            pthread_cond_wait(&m->f.changed, &m->f.lock);
    }
    m->f.taken += size;
    const bool fault = inbox->fault;
    pthread_mutex_unlock(&m->f.lock);
    if (!complete)
        return status == RG_ERR_PROTOCOL ? status : RG_ERR_LOST;
    return fault ? RG_ERR_FAULT : RG_OK;
}

enum rg_status rg_multirail_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    if (m->f.recv_failed != RG_OK)
        return m->f.recv_failed;
    if (!m->f.out_of_band)
        return rg_conn_recv_bulk(m->f.first, buffer, size);
    const enum rg_status status = take(m, buffer, size);
    return status == RG_OK || status == RG_ERR_FAULT ? status : rg_fanout_fail(&m->f, NULL, status);
}

/* The run that byte `at` of the message is in; NULL: it has not come yet. The lock is held. */
static struct run *run_at(struct multirail *m, size_t at)
{
    for (unsigned i = 0; i < RG_PIECES_MAX; i++) {
        struct run *run = &m->inbox.runs[i];
        if (run->pieces && at / RG_PIECE >= i && at / RG_PIECE < i + run->pieces)
            return run;
    }
    return NULL;
}

static size_t end_of(const struct multirail *m, const struct run *run)
{
    const size_t end = ((size_t)(run - m->inbox.runs) + run->pieces) * RG_PIECE;
    return end < m->f.total ? end : m->f.total;
}

/* Whether a run's reader stands before it, with nothing more to happen until the receiver does something. */
static bool is_ready(const struct run *run)
{
    return run && run->owner && !run->contested && !run->aside && run->failed == RG_OK;
}

static enum rg_status take_advertised(struct multirail *m, size_t most, void **memory, size_t *size)
{
    struct run *run;
    bool late = false;
    pthread_mutex_lock(&m->f.lock);
    const struct timespec until = rg_multirail_in_ms(rg_multirail_patience_ms(m));
    while (!is_ready(run = run_at(m, m->f.taken)) && !(run && run->stash) && !late &&
           state(m, false) == RG_OK)
        late = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) !=
               0; /* it may be behind one that its reader puts aside only while bytes are asked for */
    if (!is_ready(run)) {
        pthread_mutex_unlock(&m->f.lock);
        return RG_OK; /* rg_multirail_recv_bulk finds out why, or has it */
    }
    struct rail *rail = &m->rails[run->owner - 1];
    const size_t left = end_of(m, run) - m->f.taken;
    run->taking = true;
    pthread_mutex_unlock(&m->f.lock);
    const enum rg_status status =
        rg_conn_take_advertised(rail->base.conn, left < most ? left : most, memory, size);
    pthread_mutex_lock(&m->f.lock);
    run->taking = false;
    run->failed = status;
    if (status == RG_OK && *size) {
        run->done += *size;
        m->f.taken += *size;
        rg_multirail_advertised_is_back(&rail->adverts, *memory);
    } else {
        *size = 0;
    }
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    return RG_OK;
}

enum rg_status rg_multirail_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct multirail *m = (struct multirail *)conn;
    if (m->f.recv_failed != RG_OK)
        return m->f.recv_failed;
    if (m->f.out_of_band)
        return take_advertised(m, most, memory, size);
    const enum rg_status status = rg_conn_take_advertised(m->f.first, most, memory, size);
    if (*size) {
        pthread_mutex_lock(&m->f.lock);
        rg_multirail_advertised_is_back(&m->first_adverts, *memory);
        pthread_mutex_unlock(&m->f.lock);
    }
    return status;
}

/* Whether all runs of the message are there, each with its reader before it; the lock is held. */
static bool all_ready(struct multirail *m)
{
    for (size_t at = 0; at < m->f.total;) {
        const struct run *run = run_at(m, at);
        if (!is_ready(run))
            return false;
        at = end_of(m, run);
    }
    return true;
}

/* What comes out of band. */
static bool writes_directly(struct multirail *m, const unsigned char *memory, size_t size)
{
    const struct timespec until = rg_multirail_in_ms(RG_RAIL_PATIENCE_MS);
    bool good = true;
    RG_SCOPED_LOCK(&m->f.lock);
    if (m->f.taken || size != m->f.total)
        good = false; /* what comes again would not be known to be placed */
    while (good && !all_ready(m) && state(m, false) == RG_OK)
        good = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &until) == 0;
    for (size_t at = 0; good && at < size;) {
        const struct run *run = all_ready(m) ? run_at(m, at) : NULL;
        const size_t end = run ? end_of(m, run) : size;
        good = run && run->done == at &&
               rg_conn_writes_directly(m->rails[run->owner - 1].base.conn, memory + at, end - at);
        at = end;
    }
    return good;
}

bool rg_multirail_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    return m->f.out_of_band ? writes_directly(m, memory, size)
                            : rg_conn_writes_directly(m->f.first, memory, size);
}
