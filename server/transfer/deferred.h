/*
 * deferred.h - what happens when a stream gets there, with the client's part in it, or another server's: what its
 * kinds share.
 *
 *   host call      the stream waits until the client has run its function (host_call.c)
 *   rendezvous     a copy to the device that reads the client's memory in stream order (rendezvous.c)
 *   deferred read  a copy to the client's memory that has left before the stream goes on (deferred_read.c)
 *   peer           halves of copies and waits between servers (server/peers/)
 *
 * Each is an item: a number of host functions put between the copies of the stream, which run on a thread of
 * the driver and send notices. For what the client or another server has to do, the stream itself waits by the
 * item's word (stream_word.h); host functions wait for nothing but the connection: until a buffer has been
 * sent. The buffers belong to the stream and are used by one transfer after another, which the stream's own
 * order makes safe. When the session ends all of them return at once, and every wait is over.
 *
 * Failures: an answer that fits nothing ends the session. If the context fails, the driver does not call host
 * functions any more; what waits for them here is freed with the worker, and touches no buffer any more once
 * the context ends: what is under way then goes nowhere.
 *
 * Lock: that of struct rg_deferred, then gpudirect's.
 */
#ifndef RG_SERVER_TRANSFER_DEFERRED_H
#define RG_SERVER_TRANSFER_DEFERRED_H

#include "common/base/hash_table.h"
#include "common/base/limits.h"
#include "common/base/tuning.h"
#include "server/modules.h"
#include "server/transfer/device_region.h"
#include "server/transfer/staging.h"
#include "server/transfer/stream_word.h"

enum rg_deferred_kind {
    RG_DEFERRED_HOST_CALL,
    RG_DEFERRED_RENDEZVOUS,
    RG_DEFERRED_READ,
    RG_DEFERRED_PEER_RECEIVE,
    RG_DEFERRED_PEER_SEND,
    RG_DEFERRED_PEER_SIGNAL,
    RG_DEFERRED_PEER_WAIT
};

/** One host function of a transfer. */
struct rg_deferred_step {
    struct rg_deferred_item *item;
    size_t index; /* of the chunk */
};

struct rg_peer;

struct rg_deferred_item {
    struct rg_hash_link link;           /* by the number */
    struct rg_deferred_item *next_send; /* deferred reads with chunks to be sent */
    struct rg_worker *worker;
    uint64_t id;
    enum rg_deferred_kind kind;
    const struct rg_worker_context *context; /* transfers: the stream's, whose buffers are used */
    struct rg_stream_word word;              /* how many of its steps may go on; of what only sends: none */
    pthread_cond_t changed;                  /* deferred reads: what was sent */
    /* guarded by the lock */
    bool due;      /* host calls: the client has been told */
    bool answered; /* host calls; PEER_WAIT: the signal has come */
    bool listed;   /* deferred reads: in the list of the sending thread */
    size_t total, chunk;
    size_t requested, received; /* rendezvous: bytes */
    size_t posted, sent;        /* deferred reads: chunks */
    unsigned at_work;           /* transfers: threads that use the buffers, without the lock */
    bool gone;                  /* transfers: the context has ended, and the buffers with it */
    bool advertised;            /* rendezvous: the client may write what it is asked for where that belongs */
    struct rg_peer *peer;       /* between servers: the other one; NULL: not yet */
    size_t demanded;            /* PEER_SEND: bytes that it has asked for */
    bool failed;                /* between servers: the other side will not do its part */
    size_t n_chunks;
    unsigned char *slots[RG_DEFERRED_SLOTS];
    /* of the slots, and of those that the next transfer uses; NULL: none */
    struct rg_lease *leases[RG_DEFERRED_SLOTS];
    /* deferred reads that are sent from where the data lies on the device, and where; NULL: others */
    struct rg_gpudirect_area *area;
    unsigned char *device;
    struct rg_deferred_step steps[];
};

/** What a stream keeps for its deferred transfers, one after another. The dispatcher's. */
struct rg_deferred_slots {
    struct rg_staging_buffer *rendezvous[RG_DEFERRED_SLOTS];
    struct rg_staging_buffer *read[RG_DEFERRED_SLOTS];
    size_t next_read; /* of those, the one whose turn it is */
};

struct rg_deferred {
    pthread_mutex_t lock;
    pthread_cond_t settled; /* nobody is at work on some item any more */
    struct rg_hash_table items;
    size_t bytes; /* of these */
};

static inline struct rg_deferred *rg_deferred_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_DEFERRED];
}

static inline pthread_mutex_t *rg_deferred_lock(struct rg_worker *worker)
{
    return &rg_deferred_of(worker)->lock;
}

/** The item of that number, or NULL; the lock is held. */
struct rg_deferred_item *rg_deferred_find(struct rg_worker *worker, uint64_t id);
/** Makes an item; NULL with request->result or a violation set. The dispatcher. */
struct rg_deferred_item *rg_deferred_create(struct rg_request *request, enum rg_deferred_kind kind,
                                            uint64_t id, size_t n_chunks);
/**
 * Makes the item of a transfer and the buffers that it needs, as far as it needs any; what is ready and not
 * used is given up for it, if there is no other memory. If it fails, the client is to be told by a notice.
 * The dispatcher.
 */
CUresult rg_deferred_begin(struct rg_request *request, const struct rg_device_region *region, uint64_t id,
                           enum rg_deferred_kind kind, CUstream stream, struct rg_deferred_item **out);
/** Ends an item of which the driver knows nothing. */
void rg_deferred_cancel(struct rg_deferred_item *item);
/** The same when its last host function is done; the lock is held. */
void rg_deferred_destroy(struct rg_deferred_item *item);

/** Tells the client something of a transfer (enum rg_notice_type). Any thread; a failure ends the session. */
void rg_deferred_notice(struct rg_worker *worker, unsigned type, uint64_t id, uint64_t arg0, uint64_t arg1,
                        uint64_t arg2);
/** Gives the item a word of the context, which is current, before its stream waits for that. The dispatcher. */
CUresult rg_deferred_take_word(struct rg_deferred_item *item, struct rg_worker_context *context);
/** Lets the stream go on as far as it can, after anything that it may wait for; the lock is held. */
void rg_deferred_tell(struct rg_deferred_item *item);
/** Whether the transfer's buffers may be used now, until rg_deferred_rest; the lock is held. */
bool rg_deferred_work(struct rg_deferred_item *item);
void rg_deferred_rest(struct rg_deferred_item *item);
/** Whether the client has nothing more to send for a rendezvous; the lock is held. */
bool rg_deferred_has_all(const struct rg_deferred_item *item);

/** Bytes of a chunk: all are alike but the last. */
static inline size_t rg_deferred_chunk_size(const struct rg_deferred_item *item, size_t index)
{
    return index + 1 < item->n_chunks ? item->chunk : item->total - index * item->chunk;
}

#endif
