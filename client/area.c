/* area.c - see area.h. */
#include "client/area.h"

#include "client/unified.h"

#include <stdlib.h>
#include <string.h>

size_t rg_area_size(const struct rg_host_area *area)
{
    return area->width * area->height;
}

uint64_t rg_area_extent(const struct rg_host_area *area)
{
    if (!rg_area_size(area))
        return 0;
    const size_t last = area->height - 1;
    return (area->rows ? last / area->rows * area->slice + last % area->rows * area->pitch
                       : last * area->pitch) +
           area->width;
}

int rg_area_iovec(const struct rg_host_area *area, size_t offset, size_t size, struct iovec *out, int max,
                  size_t *covered)
{
    const bool gapless =
        area->pitch == area->width && (!area->rows || area->slice == area->rows * area->pitch);
    *covered = 0;
    if (area->height == 1 || gapless) {
        out[0] = (struct iovec){area->memory + offset, size};
        *covered = size;
        return 1;
    }
    int n = 0;
    while (size && n < max) {
        size_t row = offset / area->width, column = offset % area->width;
        size_t part = area->width - column < size ? area->width - column : size;
        size_t start =
            area->rows ? row / area->rows * area->slice + row % area->rows * area->pitch : row * area->pitch;
        out[n++] = (struct iovec){area->memory + start + column, part};
        offset += part;
        size -= part;
        *covered += part;
    }
    return n;
}

bool rg_area_shared(const struct rg_host_area *area)
{
    return rg_unified_meets((uint64_t)(uintptr_t)area->memory, rg_area_extent(area));
}

bool rg_area_prepare(const struct rg_host_area *area, struct rg_host_area *packed)
{
    *packed = (struct rg_host_area){.memory = malloc(rg_area_size(area)),
                                    .pitch = area->width,
                                    .width = area->width,
                                    .height = area->height};
    return packed->memory != NULL;
}

/* Copies all of an area to or from packed memory. */
static void copy_area(const struct rg_host_area *area, unsigned char *packed, bool out)
{
    const size_t size = rg_area_size(area);
    for (size_t at = 0, covered; at < size; at += covered) {
        struct iovec row;
        rg_area_iovec(area, at, size - at, &row, 1, &covered);
        memcpy(out ? row.iov_base : packed + at, out ? packed + at : row.iov_base, covered);
    }
}

bool rg_area_gather(const struct rg_host_area *area, struct rg_host_area *packed)
{
    if (!rg_area_prepare(area, packed))
        return false;
    copy_area(area, packed->memory, false);
    return true;
}

void rg_area_scatter(const struct rg_host_area *area, struct rg_host_area *packed, bool good)
{
    if (good)
        copy_area(area, packed->memory, true);
    free(packed->memory);
}

enum rg_status rg_area_receive(const struct rg_host_area *area, size_t offset, size_t size,
                               struct rg_conn *conn)
{
    enum rg_status worst = RG_OK;
    while (size) {
        struct iovec part;
        size_t covered;
        rg_area_iovec(area, offset, size, &part, 1, &covered);
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
