/*
 * memory.c - memory that is registered, and memory that is advertised to the peer. See internal.h.
 *
 * A registration is a link's and goes with it. Its owner is not told: the next link that can have any gets them again,
 * from the reconnector, one after the other and out of the way of what is sent; what is not registered yet travels by a
 * copy.
 *
 * An advert is a link's as well. Nothing is placed any more once the link has been dropped, which is before the peer
 * hears of the next; what has been placed in part then comes again, by the next, to the same place. Adverts with a tag
 * are not made again: the rest of their data is asked for. Those without a tag are, by their owner, who has to learn of
 * the change to do so. Since the next link knows the memory by then, who has not learned of it yet could advertise
 * a piece on it, would take that for lost with the others when it learns, and advertise it twice: two messages would
 * be written over each other. So the next link takes no advert without a tag before its owner has been told
 * (rg_conn_adverts_ended).
 */
#include "transport/resumable/internal.h"

#include "common/sync/scoped_lock.h"

#include <stdlib.h>

/* --- registered ------------------------------------------------------------------------------------------ */

/* Links of one-sided writes: others do no more with registered memory than with other. */
static bool registers(const struct rg_conn *link)
{
    return rg_conn_caps(link) & (RG_CAP_ASKS | RG_CAP_ADVERTISES);
}

static struct rg_registered **find(struct rg_resumable *c, const void *base)
{
    struct rg_registered **at = &c->registered;
    while (*at && (*at)->base != base)
        at = &(*at)->next;
    return at;
}

/* Sleeps while it is being registered. */
static void forget(struct rg_resumable *c, const void *base)
{
    struct rg_registered **at = find(c, base), *entry = *at;
    while (entry && entry->busy) {
        rg_resumable_sleep(c, UINT64_MAX);
        at = find(c, base);
        entry = *at;
    }
    if (entry)
        *at = entry->next;
    free(entry);
}

/*
 * Where there is no link just now, or one that registers nothing in a connection that began with one that does, the
 * memory is remembered for the next.
 */
enum rg_status rg_resumable_register(struct rg_conn *conn, void *base, size_t size)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    if (!registers(conn))
        return RG_ERR_UNSUPPORTED;
    struct rg_registered *entry = malloc(sizeof *entry);
    if (!entry)
        return RG_ERR_NO_MEMORY;
    *entry = (struct rg_registered){.base = base, .size = size, .busy = true};
    enum rg_status status = RG_OK;
    struct rg_conn *link;
    RG_SCOPED_LOCK(&c->lock);
    forget(c, base);
    entry->next = c->registered;
    c->registered = entry;
    if ((link = rg_resumable_visit(c)) != NULL) {
        entry->epoch = c->epoch; /* as long as this visits, the link stays */
        if (registers(link))
            status = rg_conn_register(link, base, size);
        rg_resumable_leave(c);
    }
    entry->busy = false;
    if (status != RG_OK)
        forget(c, base);
    rg_resumable_changed(c);
    return status;
}

/* What was registered with a link goes with it at the latest. What is held until told may lie in this memory. */
void rg_resumable_unregister(struct rg_conn *conn, void *base)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_conn *link;
    RG_SCOPED_LOCK(&c->lock);
    forget(c, base);
    rg_resumable_end_all(c, &rg_lease_until_reply);
    if ((link = rg_resumable_visit_last(c)) != NULL) {
        rg_conn_unregister(link, base);
        rg_resumable_leave(c);
    }
}

bool rg_registered_is_missing(const struct rg_resumable *c)
{
    return c->state == RG_RESUMABLE_UP && registers(c->link) && c->registered_epoch != c->epoch;
}

/* What this link does not have yet, and nobody is at; NULL: nothing. */
static struct rg_registered *next_missing(const struct rg_resumable *c)
{
    struct rg_registered *entry = c->registered;
    while (entry && (entry->busy || entry->epoch == c->epoch))
        entry = entry->next;
    return entry;
}

void rg_registered_renew_one(struct rg_resumable *c)
{
    struct rg_registered *entry = next_missing(c);
    if (!entry) {
        c->registered_epoch = c->epoch;
        return;
    }
    entry->busy = true;
    entry->epoch = c->epoch;
    struct rg_conn *link = rg_resumable_visit(c); /* there is one: something is missing on it */
    const enum rg_status status = rg_conn_register(link, entry->base, entry->size);
    rg_resumable_leave(c);
    entry->busy = false;
    if (status != RG_OK)
        rg_debug("%s: %zu bytes cannot be registered with the new link: %s", c->head.peer, entry->size,
                 rg_status_string(status));
    rg_resumable_changed(c);
}

void rg_registered_fini(struct rg_resumable *c)
{
    while (c->registered) {
        struct rg_registered *next = c->registered->next;
        free(c->registered);
        c->registered = next;
    }
}

/* --- advertised ------------------------------------------------------------------------------------------ */

enum rg_status rg_resumable_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                      size_t size)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    enum rg_status status = RG_ERR_UNSUPPORTED;
    struct rg_conn *link;
    RG_SCOPED_LOCK(&c->lock);
    if (!tag && c->adverts_epoch != c->epoch) {
        status = RG_ERR_TIMEOUT;
    } else if ((link = rg_resumable_visit(c)) != NULL) {
        status = rg_conn_advertise(link, tag, base, memory, size);
        rg_resumable_leave(c);
    }
    return status;
}

void rg_resumable_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    struct rg_conn *link;
    RG_SCOPED_LOCK(&c->lock);
    if ((link = rg_resumable_visit_last(c)) != NULL) {
        rg_conn_withdraw(link, tag, memory);
        rg_resumable_leave(c);
    }
}

bool rg_resumable_has_advertised(struct rg_conn *conn, size_t size)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    bool advertised = false;
    struct rg_conn *link;
    RG_SCOPED_LOCK(&c->lock);
    if ((link = rg_resumable_visit(c)) != NULL) {
        advertised = rg_conn_has_advertised(link, size);
        rg_resumable_leave(c);
    }
    return advertised;
}

bool rg_resumable_adverts_ended(struct rg_conn *conn)
{
    struct rg_resumable *c = (struct rg_resumable *)conn;
    RG_SCOPED_LOCK(&c->lock);
    const bool ended = c->adverts_epoch != c->epoch;
    c->adverts_epoch = c->epoch;
    return ended;
}
