/*
 * range.h - memory the device knows: device allocations in a window of addresses of their own, and
 * page-locked host memory.
 *
 * Each device allocation has its own pages inside one reserved window that starts at an address where nothing
 * of the host's lives, so an address tells what it is. Freed pages cannot be accessed: kernels that do get an
 * address fault. What lies behind an allocation up to the next multiple of 2 MiB can, as on GPUs, which
 * programs count on without knowing; with SOFTGPU_REPORT there is a guard page behind each allocation
 * instead. The window is used front to back, so freed addresses are not given out again soon.
 *
 * The upper half of the window is for addresses that applications reserve and map memory at themselves
 * (vmm.c). A mapping is a range like any other, but copies may go from one into its neighbour, and it can be
 * accessed only as far as the application has allowed it.
 */
#ifndef SG_DRIVER_RANGE_RANGE_H
#define SG_DRIVER_RANGE_RANGE_H

#include "softgpu/driver/core/shared_file.h"
#include "softgpu/driver/driver.h"

enum sg_range_kind {
    SG_RANGE_DEVICE,         /* cuMemAlloc and friends */
    SG_RANGE_ASYNC,          /* stream-ordered, of a pool */
    SG_RANGE_MANAGED,        /* cuMemAllocManaged */
    SG_RANGE_MANAGED_MODULE, /* managed variables of a module */
    SG_RANGE_MODULE,         /* variables of a module */
    SG_RANGE_ARRAY,          /* a CUDA array's texels */
    SG_RANGE_HOST,           /* cuMemHostAlloc */
    SG_RANGE_REGISTERED,     /* cuMemHostRegister */
    SG_RANGE_IPC,            /* memory of another process: cuIpcOpenMemHandle */
    SG_RANGE_MAPPED,         /* cuMemMap */
    SG_RANGE_RESERVED,       /* cuMemAddressReserve: no memory, never found by address */
};

static inline bool sg_range_is_managed(enum sg_range_kind kind)
{
    return kind == SG_RANGE_MANAGED || kind == SG_RANGE_MANAGED_MODULE;
}

struct sg_allocation; /* vmm.c */

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
    struct sg_allocation *allocation;     /* SG_RANGE_MAPPED: what is mapped */
    unsigned handle_types;                /* SG_RANGE_MAPPED: by which it can be exported */
    unsigned char access[SG_DEVICES_MAX]; /* SG_RANGE_MAPPED: CUmemAccess_flags of each device */
    /* where the memory is a file's, which other processes may have mapped too */
    bool shared, imported; /* imported: the other process's device has it in its account */
    int file;              /* SG_RANGE_DEVICE: closed with the range; SG_RANGE_ASYNC: the pool's */
    uint64_t file_offset;
    unsigned opens; /* SG_RANGE_IPC */
    bool away;      /* put away: nothing is at its address */
    void *host;     /* away, and not a file's: its pages */
    bool aliased;   /* SG_RANGE_REGISTERED: is where guarded kernels can reach, too (softgpu/guest.h) */
    unsigned char secret[SG_SECRET];
};

/** A part of a shared file, in the place of memory of its own. */
struct sg_backing {
    int file;
    uint64_t offset;
    bool imported;
    const unsigned char *secret;
};

/** Allocates device memory. CUDA_ERROR_OUT_OF_MEMORY if the device's total would be exceeded. */
CUresult sg_range_alloc(struct sg_context *context, struct sg_device *device, uint64_t size,
                        enum sg_range_kind kind, struct sg_pool *pool, uint64_t *address);
/** As sg_range_alloc, with memory of a file. */
CUresult sg_range_alloc_backed(struct sg_context *context, struct sg_device *device, uint64_t size,
                               enum sg_range_kind kind, struct sg_pool *pool,
                               const struct sg_backing *backing, uint64_t *address);
/**
 * Moves the allocation that holds `address` to a shared file, unless it is in one: its contents and its
 * address stay. Nothing may be writing to it. Describes it; CUDA_ERROR_INVALID_VALUE if it is none of
 * cuMemAlloc.
 */
CUresult sg_range_share(uint64_t address, struct sg_range *out);
/** Opens imported memory once more, if the context has it: its address; 0 otherwise. */
uint64_t sg_range_reopen(const struct sg_context *context, const unsigned char *secret);
/** Undoes one opening of the memory at `address`; the last one frees it. */
CUresult sg_range_close(uint64_t address);
/** Frees device memory that starts at `address`; CUDA_ERROR_INVALID_VALUE if nothing of this kind does. */
CUresult sg_range_free(uint64_t address, enum sg_range_kind kind);
/** Allocates or registers host memory. */
CUresult sg_range_host_alloc(struct sg_context *context, uint64_t size, unsigned flags, void **address);
CUresult sg_range_host_register(struct sg_context *context, void *address, uint64_t size, unsigned flags);
CUresult sg_range_host_free(void *address, enum sg_range_kind kind);
/** Copies out the description of the range that holds `address`; false if none does. */
bool sg_range_find(uint64_t address, struct sg_range *out);
/**
 * Marks the range at `address` as being freed in a stream's order; fails if it is none of cuMemAlloc or of a
 * pool, or is marked already.
 */
bool sg_range_begin_free(uint64_t address, struct sg_range *out);
/** Sets a property of the range that holds the address. */
bool sg_range_set_sync_memops(uint64_t address, int value);
/** Frees all a context owns. */
void sg_ranges_drop_context(struct sg_context *context);
/** True if the address lies in the window of device addresses. */
bool sg_address_is_device(uint64_t address);
/**
 * True if [address, address+size) lies within one known device range, or in mappings side by side, and may be
 * read, and for `write` also written (size 0: true).
 */
bool sg_range_allows(uint64_t address, uint64_t size, bool write);
/** sg_range_allows reading and writing. */
bool sg_range_holds(uint64_t address, uint64_t size);

/* --- reserved addresses and what is mapped there; sizes and addresses are multiples of SG_GRANULARITY --- */

#define SG_GRANULARITY (2ull << 20)

/** Reserves addresses, at `hint` if that is possible (0: anywhere). */
CUresult sg_range_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address);
/** Gives a whole reservation back; CUDA_ERROR_INVALID_VALUE if it is none or something is mapped in it. */
CUresult sg_range_unreserve(uint64_t address, uint64_t size);
/** What is mapped: a file's part, which is `allocation`'s, on a device. */
struct sg_mapping {
    int file;
    uint64_t offset;
    struct sg_allocation *allocation;
    struct sg_device *device;
    unsigned handle_types; /* CUmemAllocationHandleType by which it can be exported */
};
/** Maps it into a reservation, without access. */
CUresult sg_range_map(uint64_t address, uint64_t size, const struct sg_mapping *mapping);
/**
 * Takes away the mappings that make up [address, address+size); `gone` is called for the allocation of each,
 * under the ranges' lock.
 */
CUresult sg_range_unmap(uint64_t address, uint64_t size, void (*gone)(struct sg_allocation *allocation));
/** True if [address, address+size) is made up of whole mappings. */
bool sg_range_is_mapped(uint64_t address, uint64_t size);
/** Sets what the devices may do with the mappings that make up [address, address+size). */
CUresult sg_range_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc *descriptions, size_t n);

/** Counts memory that is mapped elsewhere as the device's; false if it has not so much left. */
bool sg_memory_take(const struct sg_device *device, uint64_t bytes);
void sg_memory_give_back(const struct sg_device *device, uint64_t bytes);
uint64_t sg_memory_used(const struct sg_device *device);

/** What pools do with memory that they hold and that is not in use; set once, before anything is allocated. */
struct sg_pool_hooks {
    void (*waited)(void);                            /* a program has waited for the device's work */
    void (*reclaim)(const struct sg_device *device); /* there is too little of the device's memory */
};
extern struct sg_pool_hooks sg_pool_hooks;
static inline void sg_pools_waited(void)
{
    if (sg_pool_hooks.waited != NULL)
        sg_pool_hooks.waited();
}

/* --- all device memory at once, while nothing runs and no call is under way (range_saved.c) --- */

/**
 * Takes all device memory from its addresses to other ones, where only this process knows it, and counts it as free.
 * CUDA_ERROR_NOT_SUPPORTED (logged): other processes have a part in it. CUDA_ERROR_OUT_OF_MEMORY: the system refused. All is as
 * before then. CUDA_ERROR_UNKNOWN: not even that succeeded.
 */
CUresult sg_ranges_put_away(void);
/** Undoes that. CUDA_ERROR_OUT_OF_MEMORY: the system refused; nothing is lost, and it can be tried again. */
CUresult sg_ranges_bring_back(void);

#endif
