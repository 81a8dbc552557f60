/*
 * credit.h - what data of copies to the device a session has in this process (proto/credit.h): the buffers that it lies in, in
 * the order in which they came, and telling the client when they are free again.
 *
 * A client that keeps to its room never makes the dispatcher wait here. One that does not (it may be older) waits, with
 * all its threads, until the device has taken what came first; so a session's memory is bounded either way.
 *
 * The dispatcher, except as noted.
 */
#ifndef RG_SERVER_TRANSFER_CREDIT_H
#define RG_SERVER_TRANSFER_CREDIT_H

#include "server/transfer/staging.h"

/**
 * A buffer for `size` of the `brought` bytes of bulk data that a record brings (others may have come to lie elsewhere); as
 * rg_staging_take. Give it back with rg_staging_give_after.
 */
CUresult rg_credit_take_buffer(struct rg_worker *worker, struct rg_worker_context *context, size_t brought,
                               size_t size, struct rg_staging_buffer **out);
/**
 * A record that brought `size` bytes has been executed; before, `taken` bytes of room had been. Where no buffer was taken,
 * the driver has the data, or it is dropped. Tells the client what is free again, if it wants to know and it is enough.
 */
void rg_credit_executed(struct rg_worker *worker, uint64_t taken, size_t size);
/** The client had no room for a copy: it is told whatever is free again. */
void rg_credit_report(struct rg_worker *worker);

/** The buffer serves for something else now, or ends. Any thread; the staging lock is held. */
void rg_credit_release(struct rg_worker *worker, struct rg_staging_buffer *buffer);

#endif
