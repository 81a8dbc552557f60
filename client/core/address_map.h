/*
 * address_map.h - what this client knows of addresses: device allocations and pinned host memory.
 *
 * Device pointers are the worker's addresses. So that no host pointer of this process can ever equal one,
 * each device range is also reserved (without access) in this process's address space.
 */
#ifndef RG_CLIENT_CORE_ADDRESS_MAP_H
#define RG_CLIENT_CORE_ADDRESS_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rg_range_kind {
    RG_RANGE_DEVICE,     /* cuMemAlloc and friends */
    RG_RANGE_POOL,       /* cuMemAllocAsync: freed in stream order */
    RG_RANGE_MANAGED,    /* cuMemAllocManaged: the host may touch it too */
    RG_RANGE_VIRTUAL,    /* cuMemMap: copies may go on into the next one */
    RG_RANGE_IPC,        /* memory of another process: cuIpcOpenMemHandle */
    RG_RANGE_GLOBAL,     /* a variable of a module */
    RG_RANGE_HOST,       /* allocated by cuMemHostAlloc */
    RG_RANGE_REGISTERED, /* cuMemHostRegister */
};

struct rg_range {
    uint64_t start, size;
    enum rg_range_kind kind;
    uint64_t context; /* in which it was made */
    uint64_t
        opened_in; /* RG_RANGE_IPC where `context` is a guest's (client/connect/guest.h): the program's own, then; else 0 */
    CUdevice device;
    unsigned flags; /* of the host allocation */
    uint64_t
        mapped;    /* host memory that the device addresses (client/managed/pinned.h): the context; else 0 */
    uint64_t id;   /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint64_t pool; /* RG_RANGE_POOL */
    uint64_t allocation;       /* RG_RANGE_VIRTUAL: the handle of what is mapped */
    unsigned handle_types;     /* RG_RANGE_VIRTUAL: CUmemAllocationHandleType by which it can be exported */
    uint64_t readers, writers; /* RG_RANGE_VIRTUAL: the devices that may, a bit each (cuMemSetAccess) */
    bool sync_memops;          /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
};

static inline bool rg_range_on_device(const struct rg_range *range)
{
    return range->kind <= RG_RANGE_GLOBAL || range->mapped != 0;
}

/** Page-locked memory of the host. */
static inline bool rg_range_pinned(const struct rg_range *range)
{
    return range->kind == RG_RANGE_HOST || range->kind == RG_RANGE_REGISTERED;
}

/** Memory that host and device both address. */
static inline bool rg_range_shared(const struct rg_range *range)
{
    return range->kind == RG_RANGE_MANAGED || rg_range_pinned(range);
}

/** Adds a range; one that begins at the same address is replaced. False: out of memory. Fills in the id. */
bool rg_map_add(const struct rg_range *range);
/** The range that contains `address`; false if there is none. */
bool rg_map_find(uint64_t address, struct rg_range *out);
/**
 * Removes the range that begins at `start` and has one of the kinds (bits 1 << kind); false if there is none.
 */
bool rg_map_remove(uint64_t start, unsigned kinds, struct rg_range *out);
/** Notes the context in which the device addresses the host memory that begins at `start`; 0: it does not. */
void rg_map_set_mapped(uint64_t start, uint64_t context);
/** Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the range that contains `address`; false if there is none. */
bool rg_map_set_sync_memops(uint64_t address, bool value);
/** A device may access the mappings that lie in a range so from now on. */
void rg_map_set_access(uint64_t start, uint64_t size, CUdevice device, CUmemAccess_flags access);
/** Removes all ranges of a context that has ended, but for memory of pools, which are the device's, and for host memory. */
void rg_map_remove_context(uint64_t context);
/** Whether [start, start + size) meets any range. */
bool rg_map_overlaps(uint64_t start, uint64_t size);

/**
 * Whether `height` rows of `width` bytes, `pitch` apart, lie in one range of device memory, or in mappings
 * side by side. Nothing (width or height 0) lies anywhere.
 */
bool rg_on_device(uint64_t address, size_t pitch, size_t width, size_t height);
/** The same, and some device may write there, or read. */
bool rg_usable_on_device(uint64_t address, size_t pitch, size_t width, size_t height, bool write);

/**
 * Reserves a device range of a session's server in this process; false if part of it is in use here by
 * something else, or was once another server's, or if there are no such addresses. Where there is no room to reserve, as by a limit
 * of the process's addresses, it is good without (rg_map_is_reserved).
 */
bool rg_map_reserve(unsigned session, uint64_t start, uint64_t size);
/** Whether all of a range is reserved for the session: nothing else of the program's is there. */
bool rg_map_is_reserved(unsigned session, uint64_t start, uint64_t size);
/** The session whose reservation an address is in; -1: none. */
int rg_map_reserved_by(uint64_t address);

#endif
