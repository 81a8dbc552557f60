/* region.c - see region.h. */
#include "client/core/region.h"

#include <stdlib.h>
#include <string.h>

uint64_t rg_region_extent(const struct rg_region *region)
{
    if (!rg_region_size(region))
        return 0;
    return (region->depth - 1) * region->slice + (region->height - 1) * region->pitch + region->width;
}

bool rg_region_meets(const struct rg_region *region, uint64_t start, uint64_t size)
{
    return region->address < start + size && start < region->address + rg_region_extent(region);
}

struct rg_region rg_region_cut(const struct rg_region *region, size_t offset, size_t most)
{
    struct rg_region cut = *region;
    const size_t row = offset / region->width, x = offset % region->width, y = row % region->height,
                 z = row / region->height, rows = most / region->width;
    cut.address += x + y * region->pitch + z * region->slice;
    cut.x += x;
    cut.y += y;
    cut.z += z;
    cut.depth = 1;
    if (x || !rows) {
        cut.width = region->width - x < most ? region->width - x : most;
        cut.height = 1;
    } else if (y || rows < region->height) {
        cut.height = rows < region->height - y ? rows : region->height - y;
    } else {
        const size_t slices = rows / region->height;
        cut.depth = slices < region->depth - z ? slices : region->depth - z;
    }
    return cut;
}

void rg_region_fold(struct rg_region *one, struct rg_region *other)
{
    struct rg_region *const both[] = {one, other};
    bool slices = true, rows = true;
    for (int i = 0; i < 2; i++) {
        const struct rg_region *region = both[i];
        slices &= region->depth == 1 ||
                  (region->kind != RG_REGION_ARRAY && region->slice == region->height * region->pitch);
        rows &=
            rg_region_is_line(region) || (region->kind != RG_REGION_ARRAY && region->pitch == region->width);
    }
    for (int i = 0; i < 2; i++) {
        struct rg_region *region = both[i];
        if (slices) {
            region->height *= region->depth;
            region->depth = 1;
        }
        if (slices && rows) {
            region->width *= region->height;
            region->height = 1;
            region->pitch = region->width;
        }
    }
}

int rg_region_iovec(const struct rg_region *region, size_t offset, size_t size, struct iovec *out, int max,
                    size_t *covered)
{
    unsigned char *const memory = (unsigned char *)(uintptr_t)region->address;
    *covered = 0;
    if (rg_region_is_gapless(region)) {
        out[0] = (struct iovec){memory + offset, size};
        *covered = size;
        return 1;
    }
    int n = 0;
    for (; size && n < max; n++) {
        const size_t row = offset / region->width, column = offset % region->width;
        const size_t part = region->width - column < size ? region->width - column : size;
        const size_t start = row / region->height * region->slice + row % region->height * region->pitch;
        out[n] = (struct iovec){memory + start + column, part};
        offset += part;
        size -= part;
        *covered += part;
    }
    return n;
}

void rg_region_move(const struct rg_region *to, const struct rg_region *from)
{
    for (size_t z = 0; z < to->depth; z++)
        for (size_t y = 0; y < to->height; y++)
            memmove((void *)(uintptr_t)(to->address + z * to->slice + y * to->pitch),
                    (const void *)(uintptr_t)(from->address + z * from->slice + y * from->pitch), to->width);
}

bool rg_region_allocate(const struct rg_region *region, struct rg_region *packed)
{
    *packed = (struct rg_region){.width = region->width,
                                 .height = region->height,
                                 .depth = region->depth,
                                 .address = (uintptr_t)malloc(rg_region_size(region)),
                                 .pitch = region->width,
                                 .slice = region->width * region->height};
    return packed->address != 0;
}

void rg_region_free(struct rg_region *packed)
{
    free((void *)(uintptr_t)packed->address);
}

enum rg_status rg_region_receive(const struct rg_region *region, size_t offset, size_t size,
                                 struct rg_conn *conn)
{
    enum rg_status worst = RG_OK;
    while (size) {
        struct iovec part;
        size_t covered;
        rg_region_iovec(region, offset, size, &part, 1, &covered);
        enum rg_status status = rg_conn_recv_bulk(conn, part.iov_base, covered);
        if (status != RG_OK && status != RG_ERR_FAULT)
            return status;
        if (status != RG_OK)
            worst = status;
        offset += covered;
        size -= covered;
    }
    return worst;
}
