/*
 * deferred_free.h - memory that the worker frees by itself: blocks that were ready and that the program does not want.
 *
 * No call of the program's frees them, so none may wait for it: a driver's cuMemFree may wait until the device has done
 * all that it has been given. A thread does it, which holds nobody up; until then the blocks count as memory that is held.
 *
 * Failures: where no thread can be had, the caller frees. Threads: any.
 */
#ifndef RG_SERVER_PREALLOC_DEFERRED_FREE_H
#define RG_SERVER_PREALLOC_DEFERRED_FREE_H

#include "server/core/worker.h"

void rg_deferred_free_init(struct rg_worker *worker);
/** Frees `bytes` at `address`, which were made in this context, soon. */
void rg_deferred_free_add(struct rg_worker *worker, const struct rg_worker_context *context, CUdevice device,
                          CUdeviceptr address, uint64_t bytes);
/** How many have been freed so far. */
uint64_t rg_deferred_free_count(struct rg_worker *worker);
/** Bytes of the device that are to be freed. */
uint64_t rg_deferred_free_held(struct rg_worker *worker, CUdevice device);
/** Whether anything is to be freed. */
bool rg_deferred_free_any(struct rg_worker *worker);
/** Waits until all is freed; of a context alone, unless that is 0. False: there was nothing. */
bool rg_deferred_free_wait(struct rg_worker *worker, uint64_t context);
/** The session is over: nobody waits any more. */
void rg_deferred_free_wake(struct rg_worker *worker);
/** After the session's end, before contexts end: waits for what is just being freed. */
void rg_deferred_free_join(struct rg_worker *worker);
/** After the end of all other threads. */
void rg_deferred_free_fini(struct rg_worker *worker);

#endif
