/*
 * lease.c - messages whose bulk data is not copied to be kept, because its owner leaves it where it is: until
 * it has been acknowledged, or the owner wants the memory back. See internal.h, struct rg_lease.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <poll.h>
#include <string.h>

enum {
    WAIT_NS = 30000,      /* an acknowledgement is waited for as long as this and … */
    COPIED_A_NS = 8,      /* … as copying takes, at so many bytes in a nanosecond */
    WAITS_MISSED_MAX = 6, /* where waiting was in vain, it is not tried again for 2, 4, … 64 times */
    COPIED_MAX =
        128 << 10, /* bytes that are copied in less time than it takes to ask for an acknowledgement */
};

bool rg_resumable_lease(struct rg_resumable *c, struct rg_retransmit_entry *entry)
{
    struct rg_lease *lease = entry->send.lease;
    if (lease != &rg_lease_until_reply && lease->conn && lease->conn != &c->head)
        return false;
    if (entry->send.n_bulk == 1) {
        entry->own = entry->send.bulk[0];
        entry->send.bulk = &entry->own;
    } else {
        const size_t size = (size_t)entry->send.n_bulk * sizeof *entry->send.bulk;
        entry->parts = rg_retransmit_take(c, entry, size);
        if (!entry->parts)
            return false;
        entry->send.bulk = memcpy(entry->parts->data, entry->send.bulk, size);
    }
    if (lease != &rg_lease_until_reply) {
        lease->conn = &c->head;
        lease->last = entry->seq;
    }
    c->leased_bytes += entry->send.bulk_size;
    entry->busy = false;
    return true;
}

/* Whether nothing needs the memory any more. */
static bool has_ended(const struct rg_resumable *c, const struct rg_lease *lease)
{
    if (c->replayed && c->replayed->send.lease == lease)
        return false;
    return c->state == RG_RESUMABLE_OVER || !c->queue || c->queue->seq > lease->last;
}

static struct rg_retransmit_entry *first_leased(const struct rg_resumable *c, const struct rg_lease *lease)
{
    struct rg_retransmit_entry *entry = c->queue;
    while (entry && (entry->send.lease != lease || entry->busy))
        entry = entry->next;
    return entry;
}

void rg_resumable_end_all(struct rg_resumable *c, const struct rg_lease *lease)
{
    struct rg_retransmit_entry *entry;
    while (c->state != RG_RESUMABLE_OVER && (entry = first_leased(c, lease))) {
        struct rg_retransmit_block *copy = NULL;
        entry->busy = true; /* so that it stays */
        c->leased_bytes -= entry->send.bulk_size;
        (void)rg_retransmit_copy(c, entry, &copy);
        while (entry->replaying)
            rg_resumable_sleep(c, UINT64_MAX);
        rg_retransmit_place(c, entry, copy);
    }
    while (c->replayed && c->replayed->send.lease == lease)
        rg_resumable_sleep(c, UINT64_MAX);
}

/* Sleeps until the link has something to read; nobody receives. */
static void await_input(struct rg_resumable *c, uint64_t until_ns)
{
    struct pollfd p = {.fd = rg_conn_fd(c->link), .events = POLLIN};
    const uint64_t now = rg_now_ns(), left = until_ns > now ? until_ns - now : 0;
    const struct timespec timeout = rg_timespec(left);
    c->receiving = true; /* the link stays, and nobody reads away what is waited for */
    pthread_mutex_unlock(&c->lock);
    (void)ppoll(&p, 1, &timeout, NULL);
    pthread_mutex_lock(&c->lock);
    c->receiving = false;
    rg_resumable_changed(c);
}

static size_t size_of(const struct rg_resumable *c, const struct rg_lease *lease)
{
    size_t size = 0;
    for (const struct rg_retransmit_entry *entry = c->queue; entry && entry->seq <= lease->last;
         entry = entry->next)
        size += entry->send.lease == lease ? entry->send.bulk_size : 0;
    return size;
}

/*
 * Asks for the acknowledgement of what is held, and waits for it, for no longer than to copy it takes: so both together
 * take at most twice as long as the better of them would.
 */
static void await_end(struct rg_resumable *c, const struct rg_lease *lease)
{
    if (size_of(c, lease) <= COPIED_MAX)
        return;
    rg_resumable_drain(c, 0);
    if (has_ended(c, lease) || c->state != RG_RESUMABLE_UP)
        return;
    if (c->waits_skipped) {
        c->waits_skipped--;
        return;
    }
    rg_resumable_acknowledge(c);
    const size_t size = size_of(c, lease);
    const uint64_t until = rg_now_ns() + WAIT_NS + size / COPIED_A_NS;
    while (!has_ended(c, lease) && c->state == RG_RESUMABLE_UP && rg_now_ns() < until) {
        if (rg_resumable_is_read(c)) {
            rg_resumable_sleep(c, until);
        } else if (c->has_ready || c->in_use || c->in_bulk) {
            break; /* what comes has to be taken first, perhaps by this thread */
        } else if (rg_conn_fd(c->link) >= 0) {
            await_input(c, until);
            rg_resumable_drain(c, 0);
        } else {
            rg_resumable_drain(c, 1);
        }
    }
    if (has_ended(c, lease))
        c->waits_missed = 0;
    else if (c->waits_missed < WAITS_MISSED_MAX)
        c->waits_missed++;
    c->waits_skipped = c->waits_missed ? 1u << c->waits_missed : 0;
}

void rg_resumable_end_lease(struct rg_conn *conn, struct rg_lease *lease)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    if (!has_ended(c, lease))
        await_end(c, lease);
    rg_resumable_end_all(c, lease);
    *lease = (struct rg_lease){0};
}

bool rg_resumable_lease_ended(struct rg_conn *conn, const struct rg_lease *lease)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    return has_ended(c, lease);
}
