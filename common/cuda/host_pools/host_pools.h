/*
 * host_pools.h - pools of stream-ordered memory that the host may access: page-locked memory, and managed memory.
 *
 * As graphs are, they are made of other calls, and compiled into the client and into the software device: a block is memory of
 * cuMemHostAlloc or cuMemAllocManaged. One that is freed waits in its pool for its stream to come to the free, which an event tells;
 * an allocation in that very stream has it at once. What is ready and beyond the release threshold is given back when somebody
 * allocates, frees, or asks.
 *
 * Blocks are of the context that was current when they were made, and gone when that ends: a number of the allocation tells
 * whether what is at a block's address is still the block. Errors are the API's; what a function does not say is that of the function
 * of the API with its name. Any thread.
 */
#ifndef RG_COMMON_CUDA_HOST_POOLS_HOST_POOLS_H
#define RG_COMMON_CUDA_HOST_POOLS_HOST_POOLS_H

#include "common/cuda/api.h"

#include <stdbool.h>
#include <stddef.h>

/** Whether memory of this location and type is of such pools, or would be if they were right. */
bool rg_host_pools_have(const CUmemLocation *location, CUmemAllocationType type);
/** Whether the handle is that of such a pool. */
bool rg_host_pool_is(CUmemoryPool pool);

CUresult rg_host_pool_create(CUmemoryPool *out, const CUmemPoolProps *properties);
CUresult rg_host_pool_destroy(CUmemoryPool pool);
/** The default pool of a location and type, which is made when first asked for; `current`: the one that is set instead, if any. */
CUresult rg_host_pool_of_location(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type,
                                  bool current);
CUresult rg_host_pool_set_current(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);
CUresult rg_host_pool_trim(CUmemoryPool pool, size_t keep);
CUresult rg_host_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult rg_host_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
CUresult rg_host_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);
CUresult rg_host_pool_get_access(CUmemAccess_flags *flags, CUmemoryPool pool, const CUmemLocation *location);

/** Allocates in the order of a stream that is known and does not capture, and whose context is current. */
CUresult rg_host_pool_allocate(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
/**
 * True: `address` is where a block begins, and *result what became of its free, in the order of `*stream`, whose context is current, or at
 * once (`stream` NULL).
 */
bool rg_host_pool_takes_free(CUdeviceptr address, const CUstream *stream, CUresult *result);
/** The pool whose block begins at `address`; NULL: there is none. */
CUmemoryPool rg_host_pool_at(CUdeviceptr address);

/**
 * What includes this supplies: gives back memory of cuMemHostAlloc, or (`managed`) of cuMemAllocManaged, that nothing uses any more.
 * Waits for no work of the device's.
 */
void rg_host_pool_backend_release(CUdeviceptr address, bool managed);

#endif
