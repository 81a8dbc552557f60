/*
 * memory_pool.h - what this client knows of memory pools: which one an allocation comes from, and whether pools may hold memory that
 * they would have given back if their driver had seen all waits of the program. Any thread.
 */
#ifndef RG_CLIENT_API_MEMORY_POOL_H
#define RG_CLIENT_API_MEMORY_POOL_H

#include <cuda.h>

/** The pool that cuMemAllocAsync takes from, as the program has chosen it; NULL: the device's default. */
CUmemoryPool rg_pool_current(CUdevice device);
/** Memory of a pool is asked for. */
void rg_pools_used(void);
/** Memory of a pool has been freed. */
void rg_pools_freed(void);
/** The program has waited for a stream, an event or a context: pools give back what they need not hold. */
void rg_pools_waited(void);
/**
 * The program asks how much memory there is. What pools have ready for it is no part of that, and goes back; and pools have
 * given back what they do not hold on to if the program has waited, also where this client knew by itself that there was
 * nothing left to wait for.
 */
void rg_pools_settle(void);

#endif
