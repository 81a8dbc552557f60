/*
 * transfers.h - what copies (copy.c) and waits (fence.c) between servers share: each half is an item of server/transfer/deferred.h
 * that is bound to a connection, and what the other worker says of one before the client's record has come is kept for it.
 *
 * Lock: that of struct rg_deferred.
 */
#ifndef RG_SERVER_PEERS_TRANSFERS_H
#define RG_SERVER_PEERS_TRANSFERS_H

#include "server/peers/peers.h"
#include "server/transfer/deferred.h"

/* What the other worker said of a transfer before the client's record came. */
struct rg_peer_early {
    struct rg_hash_link link; /* by the transfer's number */
    struct rg_peer *peer;
    size_t demanded;
    bool failed, signalled;
};

/* --- for records: without the lock --- */

/** Makes the item known to its peer, with what that has said of it; false: there is no connection. */
bool rg_peer_bind(struct rg_deferred_item *item, unsigned number);
/** Tells the other side that this one will not do its part. */
void rg_peer_tell_failed(struct rg_worker *worker, unsigned number, uint64_t transfer);
/** The transfer has not come to be whole: the program hears of it as of any error of an asynchronous call. */
void rg_peer_report(struct rg_worker *worker, unsigned op);

/* --- with the lock --- */

/** Whether there is still something to wait for. */
static inline bool rg_peer_waits(const struct rg_deferred_item *item)
{
    return !item->failed && !item->gone && !rg_worker_over(item->worker);
}
/** The other side will not do its part: the stream goes on without, and what it copies is zeros. */
void rg_peer_fail(struct rg_deferred_item *item);
/** What the peer says of a transfer that the client has not told of yet; NULL: it has said something of too many of these. */
struct rg_peer_early *rg_peer_early(struct rg_peer *peer, uint64_t transfer);
/** The peer's item of that number; NULL: there is none (yet). */
struct rg_deferred_item *rg_peer_item(struct rg_peer *peer, uint64_t transfer);

/* --- for the reader of a connection (copy.c). False: it breaks the protocol, or its bulk data did not come. --- */

/** The destination has buffers for so much more; may come before the copy itself, and is kept then. */
bool rg_peer_copy_ask(struct rg_peer *peer, const struct rg_peer_message *message);
/** The next bytes of a copy to here, received into its buffer without a lock; none that were not asked for. */
bool rg_peer_copy_data(struct rg_peer *peer, const struct rg_peer_message *message, size_t bulk_size);

#endif
