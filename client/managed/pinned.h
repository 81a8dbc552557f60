/*
 * pinned.h - page-locked host memory: allocated, or registered by the application.
 *
 * Under unified addressing a kernel may use any of it by its host address, but most of it serves copies
 * alone. So it is ordinary memory until the device gets to know of it: until its device pointer is asked for,
 * or an address of it is seen in a kernel's parameters or in what is copied to the device. From then on it is
 * mapped: the worker has memory at the same address, and the pages are shared (client/managed/unified.h).
 * Copies to and from mapped memory are copies on the device.
 */
#ifndef RG_CLIENT_MANAGED_PINNED_H
#define RG_CLIENT_MANAGED_PINNED_H

#include "client/managed/pinned_scan.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Page-locked memory begins, `length` bytes with what follows it on its last page. False: out of memory. */
bool rg_pinned_add(const struct rg_range *range, size_t length);
/** Waits until no copy that is queued uses it. */
CUresult rg_pinned_wait(const struct rg_range *range);
/**
 * Ends the mapping of the range that begins at `start`, if there is one; registered memory gets its contents
 * back.
 */
void rg_pinned_unmap(uint64_t start);
/** The range ends, which is not mapped; fills it in again. False: another thread was first. */
bool rg_pinned_remove(struct rg_range *range);

/**
 * Maps the page-locked memory that holds `address`, or where copies that are queued use it, before the next kernel. Success if there is
 * none, or it is mapped already.
 */
CUresult rg_pinned_map_in_time(uint64_t address);
/**
 * Maps what aligned words of [data, data + size), which a kernel will see, point into. More than 1 MiB
 * without an address of page-locked memory in its first 64 KiB is taken for plain data.
 */
CUresult rg_pinned_scan(const void *data, size_t size);
/** Maps what is in the list and empties it. */
CUresult rg_pinned_map_list(struct rg_pinned_list *list);
/** Bytes of `n` elements; more than there can be if that is no number. */
static inline size_t rg_pinned_bytes(size_t n, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? SIZE_MAX : bytes;
}

/** As rg_usable_on_device, after mapping page-locked memory there. */
bool rg_pinned_on_device(uint64_t address, size_t pitch, size_t width, size_t height, bool write);

/**
 * Ends a call that copies between `to` and `from` on the device (0: neither is there): where one of them is page-locked or managed
 * memory, which the host may use at once, a synchronous copy has been done when its call returns (API reference, "API synchronization
 * behavior"). Returns `status`, or the wait's error.
 */
CUresult rg_pinned_copied(CUresult status, uint64_t to, uint64_t from, CUstream stream, bool asynchronous);
/** The same for a synchronous set of memory at `address`. */
CUresult rg_pinned_settle(CUresult status, CUdeviceptr address);
/**
 * Around a copy that reads or writes host memory where it is, if there is some to be mapped: none of it is
 * mapped meanwhile.
 */
bool rg_pinned_forbid_mapping(void);
void rg_pinned_allow_mapping(void);

/** A context is about to end: registered memory gets its contents back. */
void rg_pinned_context_ends(uint64_t context);

#endif
