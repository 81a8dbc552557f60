/*
 * range.h - memory the device knows: device allocations in a window of addresses of their own, and
 * page-locked host memory.
 *
 * Each device allocation has its own pages inside one reserved window that starts at an address where nothing
 * of the host's lives, so an address tells what it is. Freed pages and the guard page behind an allocation
 * cannot be accessed: kernels that do get an address fault, as on a real device. The window is used front to
 * back, so freed addresses are not given out again soon.
 */
#ifndef SG_RANGE_H
#define SG_RANGE_H

#include "softgpu/driver/driver.h"

enum sg_range_kind {
    SG_RANGE_DEVICE,     /* cuMemAlloc and friends */
    SG_RANGE_ASYNC,      /* stream-ordered, of a pool */
    SG_RANGE_MANAGED,    /* cuMemAllocManaged */
    SG_RANGE_MODULE,     /* variables of a module */
    SG_RANGE_HOST,       /* cuMemHostAlloc */
    SG_RANGE_REGISTERED, /* cuMemHostRegister */
};

struct sg_range {
    uint64_t base, size; /* as asked for */
    uint64_t span;       /* bytes of address space, with the guard */
    enum sg_range_kind kind;
    unsigned flags; /* of host memory */
    bool freeing;   /* stream-ordered: its free is queued */
    struct sg_device *device;
    struct sg_context *context; /* that made it; compared only, except through sg_ranges_drop_context */
    unsigned long long context_generation;
    struct sg_pool *pool;
    unsigned long long buffer_id;
    int sync_memops;
};

/** Allocates device memory. CUDA_ERROR_OUT_OF_MEMORY if the device's total would be exceeded. */
CUresult sg_range_alloc(struct sg_context *context, struct sg_device *device, uint64_t size,
                        enum sg_range_kind kind, struct sg_pool *pool, uint64_t *address);
/** Frees device memory that starts at `address`; CUDA_ERROR_INVALID_VALUE if nothing of this kind does. */
CUresult sg_range_free(uint64_t address, enum sg_range_kind kind);
/** Allocates or registers host memory. */
CUresult sg_range_host_alloc(struct sg_context *context, uint64_t size, unsigned flags, void **address);
CUresult sg_range_host_register(struct sg_context *context, void *address, uint64_t size, unsigned flags);
CUresult sg_range_host_free(void *address, enum sg_range_kind kind);
/** Copies out the description of the range that holds `address`; false if none does. */
bool sg_range_find(uint64_t address, struct sg_range *out);
/** Marks the stream-ordered range at `address` as being freed; fails if it is not one or is marked already.
 */
bool sg_range_begin_free(uint64_t address, struct sg_range *out);
/** Sets a property of the range that holds the address. */
bool sg_range_set_sync_memops(uint64_t address, int value);
/** Frees all a context owns. */
void sg_ranges_drop_context(struct sg_context *context);
/** True if the address lies in the window of device addresses. */
bool sg_address_is_device(uint64_t address);
/** True if [address, address+size) lies within one known device range (size 0: true). */
bool sg_range_holds(uint64_t address, uint64_t size);
uint64_t sg_memory_used(const struct sg_device *device);

#endif
