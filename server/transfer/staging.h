/*
 * staging.h - pinned memory between connection and GPU.
 *
 * Each context has a pool of pinned buffers, whose sizes are powers of two. A buffer is taken, filled or read
 * by work of a stream, and given back with an event recorded behind that work; it is taken again once the
 * event has come. Only the buffers needed are ever made.
 *
 * Data on its way to the device takes credit (proto/bulk_credit.h): buffers with such data are also in a list
 * of the session, in the order in which it came, so that credit.c can tell the client what is free again. A
 * client that keeps to its credit never makes the dispatcher wait here. One that does not (it may be older)
 * waits, with all its threads, until the device has taken what came first; so a session's memory is bounded
 * either way. Data that comes back has few buffers at a time for each thread that waits.
 *
 * Failures: the driver's, as CUresult. Threads: any; one lock, not held while anything waits.
 */
#ifndef RG_SERVER_TRANSFER_STAGING_H
#define RG_SERVER_TRANSFER_STAGING_H

#include "proto/bulk_credit.h"
#include "server/core/worker.h"

#define RG_STAGING_SMALL RG_BULK_CREDIT_LEAST
/* So much of a context's pool may wait for the client to have what was sent from it. */
#define RG_STAGING_HELD (16u << 20)
#define RG_STAGING_KEPT                                                                                      \
    (2 * RG_BULK_CREDIT) /* when a context's pool is larger, what nothing uses is freed at some time */

struct rg_staging_buffer {
    struct rg_staging_buffer *next; /* in the context's pool */
    void *memory;
    size_t size;
    CUevent ready;
    uint64_t given; /* order in which they were given back */
    bool taken, pending;
    bool kept;             /* taken by a stream for its deferred transfers, as long as that is there */
    struct rg_lease lease; /* what was sent from it may have to be sent again */
    uint64_t credit;       /* that its data takes; 0: it is not in the list */
    struct rg_staging_buffer *earlier, *later;
};

/**
 * A buffer of at least `size` bytes (at most RG_BULK_MAX). Never waits for the device, nor for the
 * client; but what the client may need again may be copied away first. The context is current.
 */
CUresult rg_staging_take(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                         struct rg_staging_buffer **out);
/** A buffer for up to RG_STAGING_SMALL bytes that take no credit; NULL: too many are in use, or there is no memory. */
struct rg_staging_buffer *rg_staging_take_few(struct rg_worker *worker, struct rg_worker_context *context);
/**
 * The same for `size` of the `brought` bytes of bulk data that a record brings (others may have come to lie
 * elsewhere), which take credit until the buffer is given back and the device is done. The dispatcher.
 */
CUresult rg_staging_take_credited(struct rg_worker *worker, struct rg_worker_context *context, size_t brought,
                                  size_t size, struct rg_staging_buffer **out);
/** Gives a buffer back once the work now in `stream` is done. NULL is fine. */
void rg_staging_give_after(struct rg_worker *worker, struct rg_staging_buffer *buffer, CUstream stream);
/** Gives a buffer back that nothing uses any more. NULL is fine. */
void rg_staging_give(struct rg_worker *worker, struct rg_staging_buffer *buffer);
/**
 * Sends the first `size` bytes of a buffer as part of a transfer to the host (rg_worker_send_transfer).
 * CUDA_ERROR_UNKNOWN: the session is over.
 */
CUresult rg_staging_send(struct rg_worker *worker, struct rg_staging_buffer *buffer, uint64_t transfer,
                         size_t offset, size_t size, bool last);

/** Bytes since the session began that records brought, and of them, what the device has taken. */
struct rg_staging_credit {
    uint64_t taken, freed;
};
/**
 * As it is known. If still `seen` is taken, a record has brought `passed` more that lie in no buffer: the
 * driver has them, or they are dropped. The dispatcher.
 */
struct rg_staging_credit rg_staging_credit(struct rg_worker *worker, uint64_t seen, uint64_t passed);
/** The same after a look at what is free again. */
struct rg_staging_credit rg_staging_credit_look(struct rg_worker *worker);

#endif
