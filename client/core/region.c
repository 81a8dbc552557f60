/* region.c - see region.h. */
#include "client/core/region.h"

#include <stdlib.h>
#include <string.h>

size_t rg_region_size(const struct rg_host_region *region)
{
    return region->width * region->height;
}

uint64_t rg_region_extent(const struct rg_host_region *region)
{
    if (!rg_region_size(region))
        return 0;
    const size_t last = region->height - 1;
    return (region->rows ? last / region->rows * region->slice + last % region->rows * region->pitch
                         : last * region->pitch) +
           region->width;
}

int rg_region_iovec(const struct rg_host_region *region, size_t offset, size_t size, struct iovec *out,
                    int max, size_t *covered)
{
    const bool gapless =
        region->pitch == region->width && (!region->rows || region->slice == region->rows * region->pitch);
    *covered = 0;
    if (region->height == 1 || gapless) {
        out[0] = (struct iovec){region->memory + offset, size};
        *covered = size;
        return 1;
    }
    int n = 0;
    while (size && n < max) {
        size_t row = offset / region->width, column = offset % region->width;
        size_t part = region->width - column < size ? region->width - column : size;
        size_t start = region->rows ? row / region->rows * region->slice + row % region->rows * region->pitch
                                    : row * region->pitch;
        out[n++] = (struct iovec){region->memory + start + column, part};
        offset += part;
        size -= part;
        *covered += part;
    }
    return n;
}

bool rg_region_prepare(const struct rg_host_region *region, struct rg_host_region *packed)
{
    *packed = (struct rg_host_region){.memory = malloc(rg_region_size(region)),
                                      .pitch = region->width,
                                      .width = region->width,
                                      .height = region->height};
    return packed->memory != NULL;
}

/* Copies all of an region to or from packed memory. */
static void copy_area(const struct rg_host_region *region, unsigned char *packed, bool out)
{
    const size_t size = rg_region_size(region);
    for (size_t at = 0, covered; at < size; at += covered) {
        struct iovec row;
        rg_region_iovec(region, at, size - at, &row, 1, &covered);
        memcpy(out ? row.iov_base : packed + at, out ? packed + at : row.iov_base, covered);
    }
}

bool rg_region_gather(const struct rg_host_region *region, struct rg_host_region *packed)
{
    if (!rg_region_prepare(region, packed))
        return false;
    copy_area(region, packed->memory, false);
    return true;
}

void rg_region_scatter(const struct rg_host_region *region, struct rg_host_region *packed, bool good)
{
    if (good)
        copy_area(region, packed->memory, true);
    free(packed->memory);
}

enum rg_status rg_region_receive(const struct rg_host_region *region, size_t offset, size_t size,
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
