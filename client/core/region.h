/*
 * region.h - host memory of a transfer: rows and slices, which travel packed.
 *
 * Threads: any; there is no state. Copies touch the application's memory as it does itself.
 */
#ifndef RG_CLIENT_CORE_REGION_H
#define RG_CLIENT_CORE_REGION_H

#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Host memory of a transfer: `height` rows of `width` bytes, `pitch` apart; travels packed. `rows`, if not 0: so many
 * rows make a slice, and slices are `slice` bytes apart.
 */
struct rg_host_region {
    unsigned char *memory;
    size_t pitch, width, height;
    size_t rows, slice;
};

/** Bytes of its rows, packed. */
size_t rg_region_size(const struct rg_host_region *region);
/** Bytes from the beginning to the end of the last row. */
uint64_t rg_region_extent(const struct rg_host_region *region);
/** iovecs of packed bytes [offset, offset+size) of an region, at most `max`; returns how many, *covered the bytes. */
int rg_region_iovec(const struct rg_host_region *region, size_t offset, size_t size, struct iovec *out,
                    int max, size_t *covered);
/** Copies an region into memory of its own, which `*packed` describes and the caller frees. False: no memory. */
bool rg_region_gather(const struct rg_host_region *region, struct rg_host_region *packed);
/** Memory for an region, to be received into and then copied back by rg_region_scatter, which frees it. */
bool rg_region_prepare(const struct rg_host_region *region, struct rg_host_region *packed);
void rg_region_scatter(const struct rg_host_region *region, struct rg_host_region *packed, bool good);
/** Receives `size` bulk bytes into packed position `offset` of the region. */
enum rg_status rg_region_receive(const struct rg_host_region *region, size_t offset, size_t size,
                                 struct rg_conn *conn);

#endif
