/*
 * count.h - what a worker counts for the accounts: launches, and bytes of the program's data that are moved.
 *
 * Into the session's slot, by one addition each that orders nothing; where there is no slot nothing is counted. The monitor reads
 * it now and then, and when the worker has ended, however. Any thread.
 */
#ifndef RG_SERVER_SHARES_WORKER_COUNT_H
#define RG_SERVER_SHARES_WORKER_COUNT_H

#include "server/shares/worker/share.h"

#include <cuda.h>

static inline void rg_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/** The driver has taken a launch: of a kernel, or of a graph that it launches whole. A session's are counted together. */
static inline CUresult rg_count_launch(CUresult result)
{
    if (result == CUDA_SUCCESS && rg_share.slot)
        rg_count(&rg_share.slot->usage.devices[0].launches, 1);
    return result;
}

/** Data of the program's has come for memory of a device's, or that devices see. */
static inline void rg_count_in(uint64_t bytes)
{
    if (rg_share.slot)
        rg_count(&rg_share.slot->usage.bytes_in, bytes);
}

/** Data has been read there for the program. */
static inline void rg_count_out(uint64_t bytes)
{
    if (rg_share.slot)
        rg_count(&rg_share.slot->usage.bytes_out, bytes);
}

#endif
