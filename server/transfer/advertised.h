/*
 * advertised.h - page-locked memory of the worker's that is advertised to the client (rg_conn_advertise): bulk data
 * for the device comes to lie there without being asked for, and the device copies from there.
 *
 * A ring of chunks, made with the first large copy of a session whose transport advertises. A chunk that has come
 * back with a message is advertised again once the copies from it are done; nobody waits for that: a message that
 * finds too few chunks asks for staging buffers (staging.h) instead. The memory belongs to the worker, not to
 * a context: contexts end while the client may still write there. Where the connection is replaced by another that
 * advertises, what had not come back is advertised again there.
 *
 * Threads: any; a lock of its own.
 */
#ifndef RG_SERVER_TRANSFER_ADVERTISED_H
#define RG_SERVER_TRANSFER_ADVERTISED_H

#include "server/core/worker.h"

#define RG_ADVERTISED_CHUNK       (512u << 10)
#define RG_ADVERTISED_CHUNKS      16
#define RG_ADVERTISED_RAIL_CHUNKS 8 /* more for each rail */

/**
 * Advertises what can be advertised now, on a connection that advertises; the first call makes the ring. `context` is
 * current.
 */
void rg_advertised_tend(struct rg_worker *worker, struct rg_worker_context *context);
/** As rg_request_take_advertised; what it gives is advertised again after rg_advertised_give_after. */
size_t rg_advertised_take(struct rg_request *request, size_t most, void **memory);
/** The bulk data at `memory`, which rg_advertised_take gave, is read by work that is now in `stream`. */
void rg_advertised_give_after(struct rg_worker *worker, struct rg_worker_context *context, void *memory,
                              CUstream stream);

#endif
