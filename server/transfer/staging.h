/*
 * staging.h - pinned memory between connection and GPU, and the order of synchronous copies.
 *
 * Each context has a pool of pinned buffers, whose sizes are powers of two. A buffer is taken, filled or read by work of a
 * stream, and given back with an event recorded behind that work; it is taken again once the event has come. Only the
 * buffers needed are ever made. How much of them data on its way to the device may fill is limited elsewhere (credit.h);
 * data that comes back has few at a time for each thread that waits.
 *
 * Failures: the driver's, as CUresult. Threads: any; the pools have one lock, not held while anything waits.
 */
#ifndef RG_SERVER_TRANSFER_STAGING_H
#define RG_SERVER_TRANSFER_STAGING_H

#include "server/core/worker.h"

#define RG_STAGING_SMALL RG_BULK_CREDIT_LEAST
#define RG_STAGING_LARGE RG_BULK_MAX
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
    bool kept;            /* taken by a stream for its deferred transfers, as long as that is there */
    struct rg_lease hold; /* what was sent from it may have to be sent again */
    /* credit.c: the bytes of room that its data takes, 0: it is not in the list */
    uint64_t credit;
    struct rg_staging_buffer *earlier, *later;
};

/**
 * A buffer of at least `size` bytes (at most RG_STAGING_LARGE). Never waits for the device, nor for the client; but what the
 * client may need again may be copied away first. The context is current.
 */
CUresult rg_staging_take(struct rg_worker *worker, struct rg_worker_context *context, size_t size,
                         struct rg_staging_buffer **out);
/** Gives a buffer back once the work now in `stream` is done. NULL is fine. */
void rg_staging_give_after(struct rg_worker *worker, struct rg_staging_buffer *buffer, CUstream stream);
/** Gives a buffer back that nothing uses any more. NULL is fine. */
void rg_staging_give(struct rg_worker *worker, struct rg_staging_buffer *buffer);
/**
 * Sends the first `size` bytes of a buffer as part of a transfer to the host (rg_worker_send_transfer). CUDA_ERROR_UNKNOWN: the session
 * is over.
 */
CUresult rg_staging_send(struct rg_worker *worker, struct rg_staging_buffer *buffer, uint64_t transfer,
                         size_t offset, size_t size, bool last);
/** Gives back what a stream kept for deferred transfers, after the work now in it. */
void rg_staging_give_slots(struct rg_worker *worker, struct rg_worker_stream *stream);
/** Frees buffers of a large pool that nothing uses; the context is current and idle, or the driver would wait for it. */
void rg_staging_shrink(struct rg_worker *worker, struct rg_worker_context *context);
/**
 * Frees the context's buffers; it is current and idle. Waits for threads that still send from some, of calls that wait; what
 * deferred transfers use is not in use any more (rg_deferred_drop_context).
 */
void rg_staging_drop(struct rg_worker *worker, struct rg_worker_context *context);

/**
 * A synchronous copy was put into `stream`, of that context: what any stream of the context does from now on comes after it.
 */
void rg_staging_synchronous(struct rg_request *request, struct rg_worker_context *context, CUstream stream);
/** Orders a stream that is about to be used after synchronous copies that it does not come after by itself. */
void rg_staging_order(struct rg_worker *worker, struct rg_worker_stream *stream);

/**
 * Copies packed bytes [offset, offset + size) between `host` (which holds just these) and rows of `width` bytes,
 * `pitch` apart, from `device` on: whole rows as a 2D copy, parts of rows linearly.
 */
CUresult rg_region_copy_rows(bool to_device, CUdeviceptr device, size_t pitch, size_t width, void *host,
                             size_t offset, size_t size, CUstream stream);

/** Puts the copy of packed bytes [offset, offset + size), which lie at `host`, into the stream. */
typedef CUresult (*rg_staging_copy)(const void *what, void *host, size_t offset, size_t size,
                                    CUstream stream);
/**
 * Takes `size` bytes of the request's bulk data to where the device can copy them from, and puts the copies of `what` into the
 * stream, piece by piece as they arrive. The context is current.
 */
CUresult rg_staging_arrive(struct rg_request *request, struct rg_worker_context *context, size_t size,
                           CUstream stream, rg_staging_copy copy, const void *what);

#endif
