/*
 * prealloc.h - memory that is allocated before the client asks for it.
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
 * The dispatcher alone, except as noted.
 */
#ifndef RG_SERVER_PREALLOC_PREALLOC_H
#define RG_SERVER_PREALLOC_PREALLOC_H

#include "server/core/worker.h"

/** The most that was in use of a pool, for one of which memory is or was made ready; false: for others. */
bool rg_prealloc_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high);
/**
 * Of the most that was reserved of a pool, takes out what was made ready only: `high` is what the driver says. With drivers that
 * reserve in other steps than of 32 MiB it is an estimate.
 */
void rg_prealloc_pool_reserved(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high);
/** The mark was reset. */
void rg_prealloc_pool_reset(struct rg_worker *worker, CUmemoryPool pool);

#endif
