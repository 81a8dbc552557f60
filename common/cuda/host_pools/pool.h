/* pool.h - what the files of this folder share: a pool and its blocks. All of it is under rg_host_pools_lock. */
#ifndef RG_COMMON_CUDA_HOST_POOLS_POOL_H
#define RG_COMMON_CUDA_HOST_POOLS_POOL_H

#include "common/base/hash_table.h"
#include "common/cuda/host_pools/host_pools.h"

#include <pthread.h>
#include <stdint.h>

#define RG_HOST_POOL_DEVICES 64

struct rg_host_block {
    struct rg_hash_link link;   /* by address */
    struct rg_host_block *next; /* in its pool's list, but for one in use */
    struct rg_host_pool *pool;
    CUdeviceptr address;
    size_t size;               /* of what was allocated for it */
    size_t used;               /* bytes that the program has asked for, in the pool's units; 0: it is freed */
    unsigned long long id;     /* of the allocation: CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned long long stream; /* freed: the number of the stream that is yet to come to it */
    CUevent event;             /* and when it has */
};

struct rg_host_pool {
    struct rg_host_pool *next;
    unsigned references;  /* of its handle, of blocks, and of calls under way */
    bool ended, standard; /* its handle is destroyed; it is its location's default pool */
    CUmemoryPool current; /* of a default pool: the one that is set instead; NULL: none */
    CUmemAllocationType type;
    CUmemLocation location;
    size_t size_max; /* 0: no limit */
    uint64_t used, used_high, reserved, reserved_high, release_threshold;
    int reuse[3];
    CUmemAccess_flags access[RG_HOST_POOL_DEVICES];
    struct rg_host_block *pending, *ready; /* pending: the earliest freed first */
};

extern pthread_mutex_t rg_host_pools_lock;
/** All pools that have a handle or blocks. */
extern struct rg_host_pool *rg_host_pools;

/** The pool that a handle is of, with a reference; or NULL. */
struct rg_host_pool *rg_host_pool_acquire(CUmemoryPool handle);
void rg_host_pool_release(struct rg_host_pool *pool);
/** The lock is held: drops a reference; true: it was the last, and the caller is to free the pool, which is in no list. */
bool rg_host_pool_drop(struct rg_host_pool *pool);

/** Sees which freed blocks are ready, and gives back what is above the release threshold. */
void rg_host_pool_settle(struct rg_host_pool *pool);
/** Gives back what is ready, until `keep` bytes are reserved. */
void rg_host_pool_shrink(struct rg_host_pool *pool, uint64_t keep);

#endif
