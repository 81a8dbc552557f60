/*
 * deferred_free.h - memory that the worker frees by itself: blocks that were ready and that the program does
 * not want.
 *
 * No call of the program's frees them, so none may wait for it: a driver's cuMemFree may wait until the
 * device has done all that it has been given. A thread does it, which holds nobody up; until then the blocks
 * count as memory that is held.
 *
 * Failures: where no thread can be had, the caller frees. Threads: any. Part of prealloc.c, which keeps the
 * queue.
 */
#ifndef RG_SERVER_PREALLOC_DEFERRED_FREE_H
#define RG_SERVER_PREALLOC_DEFERRED_FREE_H

#include "server/core/worker.h"

struct rg_deferred_frees {
    struct rg_worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_deferred_free *first, **last;
    uint64_t count; /* that were freed */
    pthread_t thread;
    bool runs;
};

/** `frees` is zeroed. The thread starts with what is first to be freed. */
void rg_deferred_free_init(struct rg_deferred_frees *frees, struct rg_worker *worker);
/** Frees `bytes` at `address`, which were made in this context, soon. */
void rg_deferred_free_add(struct rg_deferred_frees *frees, const struct rg_worker_context *context,
                          CUdevice device, CUdeviceptr address, uint64_t bytes);
/** How many have been freed so far. */
uint64_t rg_deferred_free_count(struct rg_deferred_frees *frees);
/** Bytes of the device that are to be freed. */
uint64_t rg_deferred_free_held(struct rg_deferred_frees *frees, CUdevice device);
/** Whether anything is to be freed. */
bool rg_deferred_free_any(struct rg_deferred_frees *frees);
/** Waits until all is freed; of a context alone, unless that is 0. False: there was nothing. */
bool rg_deferred_free_wait(struct rg_deferred_frees *frees, uint64_t context);
/** The session is over: nobody waits any more. */
void rg_deferred_free_wake(struct rg_deferred_frees *frees);
/** After the session's end, before contexts end: waits for what is just being freed. */
void rg_deferred_free_join(struct rg_deferred_frees *frees);
/** After the end of all other threads. */
void rg_deferred_free_fini(struct rg_deferred_frees *frees);

#endif
