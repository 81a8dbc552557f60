/*
 * area.h - host memory of a transfer: rows and slices, which travel packed.
 *
 * Threads: any; there is no state. Copies touch the application's memory as it does itself.
 */
#ifndef RG_CLIENT_AREA_H
#define RG_CLIENT_AREA_H

#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Host memory of a transfer: `height` rows of `width` bytes, `pitch` apart; travels packed. `rows`, if not 0: so many
 * rows make a slice, and slices are `slice` bytes apart.
 */
struct rg_host_area {
    unsigned char *memory;
    size_t pitch, width, height;
    size_t rows, slice;
};

/** Bytes of its rows, packed. */
size_t rg_area_size(const struct rg_host_area *area);
/** Bytes from the beginning to the end of the last row. */
uint64_t rg_area_extent(const struct rg_host_area *area);
/** iovecs of packed bytes [offset, offset+size) of an area, at most `max`; returns how many, *covered the bytes. */
int rg_area_iovec(const struct rg_host_area *area, size_t offset, size_t size, struct iovec *out, int max,
                  size_t *covered);
/** Whether a page of the area is shared (client/unified.h): then a thread that holds a lock must not touch it. */
bool rg_area_shared(const struct rg_host_area *area);
/** Copies an area into memory of its own, which `*packed` describes and the caller frees. False: no memory. */
bool rg_area_gather(const struct rg_host_area *area, struct rg_host_area *packed);
/** Memory for an area, to be received into and then copied back by rg_area_scatter, which frees it. */
bool rg_area_prepare(const struct rg_host_area *area, struct rg_host_area *packed);
void rg_area_scatter(const struct rg_host_area *area, struct rg_host_area *packed, bool good);
/** Receives `size` bulk bytes into packed position `offset` of the area. */
enum rg_status rg_area_receive(const struct rg_host_area *area, size_t offset, size_t size,
                               struct rg_conn *conn);

#endif
