/* transfers.c - see transfers.h. */
#include "server/peers/transfers.h"

#include "common/sync/scoped_lock.h"
#include "transport/transport.h"

#include <stdlib.h>

/* --- records ---------------------------------------------------------------------------------------------- */

/* What the peer has said of a transfer; NULL: nothing. The lock is held. */
static struct rg_peer_early *find_early(const struct rg_peer *peer, uint64_t transfer)
{
    struct rg_hash_link *at = rg_hash_table_first(&rg_peers_of(peer->worker)->early, transfer);
    while (at && ((struct rg_peer_early *)at)->peer != peer)
        at = rg_hash_table_next(at);
    return (struct rg_peer_early *)at;
}

static void drop_early(struct rg_peer_early *early)
{
    struct rg_peer *peer = early->peer;
    rg_hash_table_remove(&rg_peers_of(peer->worker)->early, &early->link);
    peer->n_early--;
    free(early);
}

/* Whether it can be said of a transfer of that kind and size. */
static bool fits(const struct rg_peer_early *early, const struct rg_deferred_item *item)
{
    const size_t most = item->kind == RG_DEFERRED_PEER_SEND ? item->total : 0;
    return early->demanded <= most && (!early->signalled || item->kind == RG_DEFERRED_PEER_WAIT);
}

/* Takes what was said of it. Who has said what cannot be has broken the protocol: its reader ends the connection. The lock is held. */
static void take_early(struct rg_deferred_item *item)
{
    struct rg_peer_early *early = find_early(item->peer, item->id);
    if (!early)
        return;
    if (fits(early, item)) {
        if (item->demanded < early->demanded)
            item->demanded = early->demanded;
        item->failed |= early->failed;
        item->answered |= early->signalled;
    } else {
        item->failed = true;
        rg_conn_interrupt(item->peer->conn);
    }
    drop_early(early);
}

bool rg_peer_bind(struct rg_deferred_item *item, unsigned number)
{
    struct rg_worker *worker = item->worker;
    RG_SCOPED_LOCK(rg_deferred_lock(worker));
    item->peer = rg_peer_find(worker, number);
    if (!item->peer)
        return false;
    take_early(item);
    rg_deferred_tell(item);
    return true;
}

void rg_peer_tell_failed(struct rg_worker *worker, unsigned number, uint64_t transfer)
{
    pthread_mutex_lock(rg_deferred_lock(worker));
    struct rg_peer *peer = rg_peer_find(worker, number);
    struct rg_peer_early *early = peer ? find_early(peer, transfer) : NULL;
    if (early)
        drop_early(early);
    pthread_mutex_unlock(rg_deferred_lock(worker));
    if (peer)
        (void)rg_peer_send(peer, &(struct rg_peer_message){.type = RG_PEER_FAIL, .transfer = transfer}, NULL,
                           0);
}

void rg_peer_report(struct rg_worker *worker, unsigned op)
{
    const struct rg_notice notice = {.type = RG_NOTICE_ERROR, .arg = {CUDA_ERROR_DEVICE_UNAVAILABLE, op}};
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

/* --- what the other worker says --------------------------------------------------------------------------- */

struct rg_peer_early *rg_peer_early(struct rg_peer *peer, uint64_t transfer)
{
    struct rg_peer_early *early = find_early(peer, transfer);
    if (early)
        return early;
    if (peer->n_early >= RG_PEER_EARLY_MAX || (early = calloc(1, sizeof *early)) == NULL)
        return NULL;
    early->peer = peer;
    rg_hash_table_add(&rg_peers_of(peer->worker)->early, &early->link, transfer);
    peer->n_early++;
    return early;
}

struct rg_deferred_item *rg_peer_item(struct rg_peer *peer, uint64_t transfer)
{
    struct rg_deferred_item *item = rg_deferred_find(peer->worker, transfer);
    return item && item->peer == peer ? item : NULL;
}

static bool take_fail(struct rg_peer *peer, const struct rg_peer_message *message)
{
    RG_SCOPED_LOCK(rg_deferred_lock(peer->worker));
    struct rg_deferred_item *item = rg_peer_item(peer, message->transfer);
    struct rg_peer_early *early = item ? NULL : rg_peer_early(peer, message->transfer);
    if (item) {
        rg_peer_fail(item);
    } else if (early) {
        early->failed = true;
    }
    return item || early;
}

/* The other side's stream has got to a signal. */
static bool take_signal(struct rg_peer *peer, const struct rg_peer_message *message)
{
    RG_SCOPED_LOCK(rg_deferred_lock(peer->worker));
    struct rg_deferred_item *item = rg_peer_item(peer, message->transfer);
    struct rg_peer_early *early = item ? NULL : rg_peer_early(peer, message->transfer);
    if (item && item->kind == RG_DEFERRED_PEER_WAIT) {
        item->answered = true;
        rg_deferred_tell(item);
        return true;
    }
    if (early)
        early->signalled = true;
    return early != NULL;
}

bool rg_peer_transfer_message(struct rg_peer *peer, const struct rg_peer_message *message, size_t bulk_size)
{
    if (message->type == RG_PEER_DATA)
        return rg_peer_copy_data(peer, message, bulk_size);
    if (bulk_size)
        return false;
    return message->type == RG_PEER_ASK      ? rg_peer_copy_ask(peer, message)
           : message->type == RG_PEER_FAIL   ? take_fail(peer, message)
           : message->type == RG_PEER_SIGNAL ? take_signal(peer, message)
                                             : false;
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* What the peer has said, whose transfers will not be told of any more. */
static void drop_all_early(struct rg_peer *peer)
{
    struct rg_hash_table *table = &rg_peers_of(peer->worker)->early;
    for (struct rg_hash_link *at = rg_hash_table_after(table, NULL), *next; at && peer->n_early; at = next) {
        next = rg_hash_table_after(table, at);
        if (((struct rg_peer_early *)at)->peer == peer)
            drop_early((struct rg_peer_early *)at);
    }
}

void rg_peer_transfers_fail(struct rg_peer *peer)
{
    struct rg_deferred *deferred = rg_deferred_of(peer->worker);
    drop_all_early(peer);
    for (struct rg_hash_link *at = NULL; (at = rg_hash_table_after(&deferred->items, at));) {
        struct rg_deferred_item *item = (struct rg_deferred_item *)at;
        if (item->peer != peer)
            continue;
        rg_peer_fail(item);
    }
}

static void free_early(struct rg_hash_link *link)
{
    free(link);
}

void rg_peer_transfers_end(struct rg_worker *worker)
{
    rg_hash_table_clear(&rg_peers_of(worker)->early, free_early);
}
