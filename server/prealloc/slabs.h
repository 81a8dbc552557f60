/*
 * slabs.h - memory that is allocated before the client asks for it.
 *
 * A slab stands for allocations of one kind that the client makes again and again. The worker keeps a few
 * blocks ready for it, each one an allocation of the driver's like any other, and tells their addresses
 * (RG_NOTICE_PREALLOC); the client gives one to the program and says so (rgMemTake), whereupon the next one
 * is made. So nothing about the memory differs from what the program would have got by asking: its address,
 * its alignment, what its handles and attributes say, how it is freed.
 *
 * What is ready is not in use: cuMemGetInfo counts it as free, and a pool's high mark leaves it out. It is
 * never more than a part of what is free on the device; the client gives it back (rgMemReturn) when an
 * allocation fails, and when it was not needed for a while. Nothing can be taken back from the client, whose
 * record that it has taken a block may be on its way; but it can be asked to: where a record runs out of
 * memory whose result nobody waits for, or that cannot be tried again from there, the dispatcher asks
 * (RG_NOTICE_RECLAIM), waits for what is still with the client, and tries again. Meanwhile another thread
 * reads, and the client answers by itself, whatever its program does.
 *
 * Internal to prealloc/: the dispatcher's, but for what has a lock.
 */
#ifndef RG_SERVER_PREALLOC_SLABS_H
#define RG_SERVER_PREALLOC_SLABS_H

#include "proto/prealloc.h"
#include "server/modules.h"
#include "server/prealloc/deferred_free.h"
#include "server/prealloc/reclaim.h"

struct rg_slab {
    struct rg_slab *next;
    uint64_t id;
    uint64_t context;
    CUdevice device;
    CUmemoryPool pool; /* of stream-ordered memory */
    uint32_t kind, element;
    size_t size, height;
    uint64_t bytes; /* of a block, in whole pages */
    unsigned n;
    CUdeviceptr blocks[RG_PREALLOC_MAX];
};

/* The dispatcher's, but for what has a lock. */
struct rg_prealloc {
    pthread_mutex_t lock; /* of `reclaim` */
    struct rg_slab *slabs;
    unsigned n_slabs;
    struct rg_prealloc_pool *pools;
    struct rg_reclaim reclaim;
    struct rg_deferred_frees frees;
};

static inline struct rg_prealloc *rg_prealloc_of(const struct rg_worker *worker)
{
    return worker->state[RG_MODULE_PREALLOC];
}

/** The place of the slab with this number in the list; the place at its end: there is none. */
struct rg_slab **rg_slab_find(struct rg_worker *worker, uint64_t id);
/** Takes a block out of a slab; false: the slab is NULL, or has it not. */
bool rg_slab_take(struct rg_slab *slab, CUdeviceptr address);
/**
 * Frees a block that nobody has used. The program has not asked for that, and must not be held up by it:
 * cuMemFree may wait for all that the device has to do, except of memory of pools; then another thread calls
 * it.
 */
void rg_slab_free_block(struct rg_worker *worker, const struct rg_slab *slab, CUdeviceptr address);

#endif
