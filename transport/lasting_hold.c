/*
 * lasting_hold.c - messages whose bulk data is not copied to be kept, because its owner leaves it where it is: until it has been
 * acknowledged, or the owner wants the memory back. See lasting_inside.h, struct rg_hold.
 */
#include "transport/lasting_inside.h"

#include "common/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum {
    WAIT_NS = 30000,      /* an acknowledgement is waited for as long as this and … */
    COPIED_A_NS = 8,      /* … as copying takes, at so many bytes in a nanosecond */
    WAITS_MISSED_MAX = 6, /* where waiting was in vain, it is not tried again for 2, 4, … 64 times */
};

bool rg_lasting_hold(struct rg_lasting *c, struct rg_lasting_kept *kept)
{
    struct rg_hold *hold = kept->hold;
    if (hold != &rg_hold_until_told && hold->conn && hold->conn != &c->head)
        return false;
    if (kept->n_bulk == 1) {
        kept->own = kept->bulk[0];
        kept->bulk = &kept->own;
    } else {
        const size_t size = (size_t)kept->n_bulk * sizeof *kept->bulk;
        kept->parts = rg_lasting_take(c, kept, size);
        if (!kept->parts)
            return false;
        kept->bulk = memcpy(kept->parts->data, kept->bulk, size);
    }
    if (hold != &rg_hold_until_told) {
        hold->conn = &c->head;
        hold->last = kept->seq;
    }
    c->held_bytes += kept->bulk_size;
    kept->busy = false;
    return true;
}

/* Whether nothing needs the memory any more. */
static bool has_ended(const struct rg_lasting *c, const struct rg_hold *hold)
{
    if (c->replayed && c->replayed->hold == hold)
        return false;
    return c->state == RG_LASTING_OVER || !c->kept || c->kept->seq > hold->last;
}

static struct rg_lasting_kept *first_held(const struct rg_lasting *c, const struct rg_hold *hold)
{
    struct rg_lasting_kept *kept = c->kept;
    while (kept && (kept->hold != hold || kept->busy))
        kept = kept->next;
    return kept;
}

void rg_lasting_end_all(struct rg_lasting *c, const struct rg_hold *hold)
{
    struct rg_lasting_kept *kept;
    while (c->state != RG_LASTING_OVER && (kept = first_held(c, hold))) {
        struct rg_lasting_block *copy = NULL;
        kept->busy = true; /* so that it stays */
        c->held_bytes -= kept->bulk_size;
        (void)rg_lasting_copy(c, kept, &copy);
        while (kept->replaying)
            rg_lasting_sleep(c, UINT64_MAX);
        rg_lasting_place(c, kept, copy);
    }
    while (c->replayed && c->replayed->hold == hold)
        rg_lasting_sleep(c, UINT64_MAX);
}

/* Sleeps until the carrier has something to read; nobody receives. */
static void await_input(struct rg_lasting *c, uint64_t until_ns)
{
    struct pollfd p = {.fd = rg_conn_fd(c->carrier), .events = POLLIN};
    const uint64_t now = rg_now_ns(), left = until_ns > now ? until_ns - now : 0;
    const struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    c->receiving = true; /* the carrier stays, and nobody reads away what is waited for */
    pthread_mutex_unlock(&c->lock);
    (void)ppoll(&p, 1, &timeout, NULL);
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    rg_lasting_changed(c);
}

/*
 * Waits for the acknowledgement of what is held, for no longer than to copy it takes: so both together take at most twice as
 * long as the better of them would.
 */
static void await_end(struct rg_lasting *c, const struct rg_hold *hold)
{
    rg_lasting_drain(c, 0);
    if (has_ended(c, hold) || c->state != RG_LASTING_UP)
        return;
    if (c->waits_skipped) {
        c->waits_skipped--;
        return;
    }
    size_t size = 0;
    for (const struct rg_lasting_kept *kept = c->kept; kept; kept = kept->next)
        size += kept->hold == hold ? kept->bulk_size : 0;
    const uint64_t until = rg_now_ns() + WAIT_NS + size / COPIED_A_NS;
    while (!has_ended(c, hold) && c->state == RG_LASTING_UP && rg_now_ns() < until) {
        if (c->receiving) {
            rg_lasting_sleep(c, until);
        } else if (c->has_ready || c->in_use || c->in_bulk) {
            break; /* what comes has to be taken first, perhaps by this thread */
        } else if (rg_conn_fd(c->carrier) >= 0) {
            await_input(c, until);
            rg_lasting_drain(c, 0);
        } else {
            rg_lasting_drain(c, 1);
        }
    }
    if (has_ended(c, hold))
        c->waits_missed = 0;
    else if (c->waits_missed < WAITS_MISSED_MAX)
        c->waits_missed++;
    c->waits_skipped = c->waits_missed ? 1u << c->waits_missed : 0;
}

void rg_lasting_end_hold(struct rg_conn *conn, struct rg_hold *hold)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    if (!has_ended(c, hold))
        await_end(c, hold);
    rg_lasting_end_all(c, hold);
    *hold = (struct rg_hold){0};
    pthread_mutex_unlock(&c->lock);
}

bool rg_lasting_hold_ended(struct rg_conn *conn, const struct rg_hold *hold)
{
    struct rg_lasting *c = (struct rg_lasting *)conn;
    pthread_mutex_lock(&c->lock);
    const bool ended = has_ended(c, hold);
    pthread_mutex_unlock(&c->lock);
    return ended;
}
