/*
 * region.h - one end of a copy: rows and slices of host memory or of device memory, or a box of an array.
 *
 * The bytes of a region travel packed: row after row, slice after slice, without what lies between them. A
 * place in them is an offset into the packed bytes.
 *
 * Threads: any; there is no state.
 */
#ifndef RG_CLIENT_CORE_REGION_H
#define RG_CLIENT_CORE_REGION_H

#include "transport/transport.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rg_region_kind { RG_REGION_HOST, RG_REGION_DEVICE, RG_REGION_ARRAY };

struct rg_region {
    enum rg_region_kind kind;
    size_t width, height, depth; /* bytes of a row, rows of a slice, slices */
    uint64_t address;            /* memory: of the first byte */
    size_t pitch, slice;         /* memory: bytes from a row to the next, from a slice to the next */
    CUarray array;
    size_t x, y, z; /* an array: where the box begins; x in bytes */
};

/** `size` bytes of memory in one piece. */
static inline struct rg_region rg_region_line(enum rg_region_kind kind, uint64_t address, size_t size)
{
    return (struct rg_region){.kind = kind,
                              .width = size,
                              .height = 1,
                              .depth = 1,
                              .address = address,
                              .pitch = size,
                              .slice = size};
}

/** The packed bytes of a region. */
static inline size_t rg_region_size(const struct rg_region *region)
{
    return region->width * region->height * region->depth;
}

/** Whether it is one row. */
static inline bool rg_region_is_line(const struct rg_region *region)
{
    return region->height == 1 && region->depth == 1;
}

/** Whether memory has no gaps between its rows and slices. */
static inline bool rg_region_is_gapless(const struct rg_region *region)
{
    return (region->height == 1 || region->pitch == region->width) &&
           (region->depth == 1 || region->slice == region->width * region->height);
}

/** Of memory: bytes from its beginning to the end of its last row. */
uint64_t rg_region_extent(const struct rg_region *region);
/** Whether memory has a byte in [start, start + size). */
bool rg_region_meets(const struct rg_region *region, uint64_t start, uint64_t size);
/**
 * The largest box that begins at `offset` and has at most `most` bytes: slices, rows of one slice, or part of
 * one row. Two ends of a copy are cut alike.
 */
struct rg_region rg_region_cut(const struct rg_region *region, size_t offset, size_t most);
/**
 * Gives two ends of a copy as few slices and rows as describe them: what has no gaps on either side is one
 * row.
 */
void rg_region_fold(struct rg_region *one, struct rg_region *other);
/**
 * iovecs of packed bytes [offset, offset + size) of host memory, at most `max`; returns how many, *covered
 * the bytes.
 */
int rg_region_iovec(const struct rg_region *region, size_t offset, size_t size, struct iovec *out, int max,
                    size_t *covered);
/** Copies between host memory and host memory; both have the same extents. */
void rg_region_move(const struct rg_region *to, const struct rg_region *from);
/** Host memory of its own for the packed bytes, which the caller frees (rg_region_free). False: no memory. */
bool rg_region_allocate(const struct rg_region *region, struct rg_region *packed);
void rg_region_free(struct rg_region *packed);
/** Receives `size` bulk bytes into host memory, from packed position `offset` on. */
enum rg_status rg_region_receive(const struct rg_region *region, size_t offset, size_t size,
                                 struct rg_conn *conn);

#endif
