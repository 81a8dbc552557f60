/*
 * pools.h - what a program sees of its memory pools while blocks of them are ready that it has not asked for: high marks without
 * these, and pools that do not hold on to them afterwards.
 *
 * The driver's figures count what is ready; so, of a pool of which memory was made ready, the marks are kept here from then on. The
 * dispatcher alone.
 */
#ifndef RG_SERVER_PREALLOC_POOLS_H
#define RG_SERVER_PREALLOC_POOLS_H

#include "server/core/worker.h"

struct rg_prealloc;

/** The most that was in use of a pool, for one of which memory is or was made ready; false: for others. */
bool rg_prealloc_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high);
/**
 * Of the most that was reserved of a pool, takes out what was made ready only: `high` is what the driver says. With drivers that
 * reserve in other steps than of 32 MiB it is an estimate.
 */
void rg_prealloc_pool_reserved(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high);
/** The mark was reset. */
void rg_prealloc_pool_reset(struct rg_worker *worker, CUmemoryPool pool);

/** The pool that is meant by `pool`, or by NULL, as cuMemAllocAsync does; NULL: not known. */
CUmemoryPool rg_prealloc_pool_meant(CUmemoryPool pool);
/** From now on the marks of the pool are kept here; false: there is no memory for that. */
bool rg_prealloc_pool_keep(struct rg_worker *worker, CUmemoryPool pool);
/** The program may use more of the pool (or NULL) than ever before. */
void rg_prealloc_pool_note_use(struct rg_worker *worker, CUmemoryPool pool);
/** What was made ready of a pool (or NULL) goes back: it is not to hold on to it as to memory that the program has had. */
void rg_prealloc_pool_trim(struct rg_worker *worker, CUmemoryPool pool);
void rg_prealloc_pools_fini(struct rg_prealloc *prealloc);

#endif
