/* pool.h - memory pools of stream-ordered allocation. */
#ifndef SG_DRIVER_MEMORY_POOL_H
#define SG_DRIVER_MEMORY_POOL_H

#include "softgpu/driver/core/shared_file.h"
#include "softgpu/driver/driver.h"

struct sg_pool {
    struct sg_object object;
    struct sg_pool *next; /* in the list of all */
    struct sg_device *device;
    size_t size_max; /* 0: the device's memory */
    pthread_mutex_t lock;
    uint64_t used, used_high; /* as pools count, by allocation */
    uint64_t leaving;         /* of `used`, what a stream is yet to free: the application has it no more */
    uint64_t committed;       /* the same in whole pages, which allocations take */
    uint64_t reserved, reserved_high; /* taken from the device; an imported pool takes nothing */
    uint64_t release_threshold;
    int reuse[3];
    int peer_access[SG_DEVICES_MAX]; /* CUmemAccess_flags */
    /* one that can be shared: its memory's file, of which no part is used twice */
    bool shared, imported;
    int file;
    struct sg_shared_file about;
    uint64_t next_part; /* where the next allocation's part begins */
};

/** What the application has of it. The lock is held. */
static inline uint64_t sg_pool_in_use(const struct sg_pool *pool)
{
    return pool->used - pool->leaving;
}

/** A new pool on `device`, or NULL. */
struct sg_pool *sg_pool_new(struct sg_device *device);
/** Gives a new pool a file; false: the system refused. */
bool sg_pool_share(struct sg_pool *pool);
/** Memory of a pool that can be shared. */
CUresult sg_pool_alloc_shared(struct sg_pool *pool, struct sg_context *context, uint64_t size,
                              uint64_t *address);
/** Notes that `size` bytes of an imported pool are in use, whatever its limit. */
void sg_pool_took(struct sg_pool *pool, uint64_t size);
/** Notes that `size` bytes of the pool were given back. */
void sg_pool_returned(struct sg_pool *pool, uint64_t size);
/** Gives back what is neither in use nor among the `keep` bytes that stay reserved. */
void sg_pool_release_above(struct sg_pool *pool, uint64_t keep);
/** Pools see from now on where they are to give memory back (sg_pool_hooks). */
void sg_pools_init(void);

#endif
