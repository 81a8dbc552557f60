/* pool.h - memory pools of stream-ordered allocation. */
#ifndef SG_POOL_H
#define SG_POOL_H

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
};

/** A new pool on `device`, or NULL. */
struct sg_pool *sg_pool_new(struct sg_device *device);
/** Notes that `size` bytes of the pool were given back. */
void sg_pool_returned(struct sg_pool *pool, uint64_t size);

#endif
