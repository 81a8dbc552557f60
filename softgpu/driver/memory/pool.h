/* pool.h - memory pools of stream-ordered allocation. */
#ifndef SG_DRIVER_MEMORY_POOL_H
#define SG_DRIVER_MEMORY_POOL_H

#include "softgpu/driver/core/shared_file.h"
#include "softgpu/driver/driver.h"

struct sg_pool {
    struct sg_object object;
    struct sg_device *device;
    size_t size_max; /* 0: the device's memory */
    bool is_default;
    pthread_mutex_t lock;
    uint64_t used, used_high, reserved_high;
    uint64_t release_threshold;
    int reuse[3];
    int peer_access[SG_DEVICES_MAX]; /* CUmemAccess_flags */
    /* one that can be shared: its memory's file, of which no part is used twice */
    bool shared, imported;
    int file;
    struct sg_shared_file about;
    uint64_t next; /* where the next allocation's part begins */
};

/** A new pool on `device`, or NULL. */
struct sg_pool *sg_pool_new(struct sg_device *device);
/** Gives a new pool a file; false: the system refused. */
bool sg_pool_share(struct sg_pool *pool);
/** Memory of a pool that can be shared. */
CUresult sg_pool_alloc_shared(struct sg_pool *pool, struct sg_context *context, uint64_t size,
                              uint64_t *address);
/** Notes that `size` bytes of the pool are in use, whatever its limit. */
void sg_pool_took(struct sg_pool *pool, uint64_t size);
/** Notes that `size` bytes of the pool were given back. */
void sg_pool_returned(struct sg_pool *pool, uint64_t size);

#endif
