/*
 * region.c - memory that the device may read and write: what the session declares as lasting (pinned memory,
 * staging), and what is registered for one transfer.
 *
 * Devices limit the size of one registration (VMware's: 128 MiB), so a region is an array of them. The peer
 * may write into a region for as long as it is registered, at the addresses that it was told: the memory of
 * one session and nothing else may be in it.
 *
 * Threads: any, under the connection's lock; a region in use by a transfer is removed when that has ended.
 */
#include "transport/rdma/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void give_back(struct rg_rdma_region *region)
{
    for (int i = 0; i < region->n; i++)
        if (region->mrs[i])
            ibv_dereg_mr(region->mrs[i]);
    free(region);
}

enum rg_status rg_rdma_region_add_parts(struct rg_rdma_conn *c, void *base, size_t size,
                                        rg_rdma_make_part make, void *user, struct rg_rdma_region **out)
{
    size_t n = (size + RG_RDMA_REGION_MAX - 1) / RG_RDMA_REGION_MAX;
    if (size == 0 || n > INT16_MAX)
        return RG_ERR_INVALID;
    struct rg_rdma_region *region = calloc(1, sizeof *region + n * sizeof *region->mrs);
    if (!region)
        return RG_ERR_NO_MEMORY;
    region->base = base;
    region->size = size;
    region->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        size_t offset = i * (size_t)RG_RDMA_REGION_MAX, left = size - offset;
        size_t length = left < RG_RDMA_REGION_MAX ? left : RG_RDMA_REGION_MAX;
        region->mrs[i] = make(c, region, offset, length, user);
        if (!region->mrs[i]) {
            int error = errno;
            rg_debug("rdma: %zu bytes at %p cannot be registered: %s", length,
                     (void *)(region->base + offset), strerror(error));
            give_back(region);
            errno = error;
            return error == EFAULT                                                      ? RG_ERR_FAULT
                   : error == EOPNOTSUPP || error == EPROTONOSUPPORT || error == ENOSYS ? RG_ERR_UNSUPPORTED
                                                                                        : RG_ERR_NO_MEMORY;
        }
    }
    region->next = c->regions;
    c->regions = region;
    *out = region;
    return RG_OK;
}

static struct ibv_mr *make_part(struct rg_rdma_conn *c, const struct rg_rdma_region *region, size_t offset,
                                size_t size, void *unused)
{
    (void)unused;
    return ibv_reg_mr(c->pd, region->base + offset, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

enum rg_status rg_rdma_region_add(struct rg_rdma_conn *c, void *base, size_t size, bool temporary,
                                  struct rg_rdma_region **out)
{
    struct rg_rdma_region *region;
    RG_TRY(rg_rdma_region_add_parts(c, base, size, make_part, NULL, &region));
    region->temporary = temporary;
    if (out)
        *out = region;
    return RG_OK;
}

void rg_rdma_region_remove(struct rg_rdma_conn *c, struct rg_rdma_region *region)
{
    for (struct rg_rdma_region **link = &c->regions; *link; link = &(*link)->next)
        if (*link == region) {
            *link = region->next;
            break;
        }
    while (region->uses > 0)
        pthread_cond_wait(&c->idle_region, &c->lock);
    c->n_device_regions -= region->device;
    give_back(region);
}

struct rg_rdma_region *rg_rdma_region_find(struct rg_rdma_conn *c, const void *at, size_t size)
{
    for (struct rg_rdma_region *region = c->regions; region; region = region->next) {
        uintptr_t offset = (uintptr_t)at - (uintptr_t)region->base;
        if ((uintptr_t)at >= (uintptr_t)region->base && offset < region->size &&
            size <= region->size - offset)
            return region;
    }
    return NULL;
}

struct ibv_mr *rg_rdma_region_part(const struct rg_rdma_region *region, const void *at, size_t *size)
{
    size_t offset = (uintptr_t)at - (uintptr_t)region->base;
    size_t left = RG_RDMA_REGION_MAX - offset % RG_RDMA_REGION_MAX;
    if (*size > left)
        *size = left;
    return region->mrs[offset / RG_RDMA_REGION_MAX];
}

void rg_rdma_region_use(struct rg_rdma_region *region)
{
    region->uses++;
}

void rg_rdma_region_done(struct rg_rdma_conn *c, struct rg_rdma_region *region)
{
    if (--region->uses > 0)
        return;
    if (region->temporary)
        rg_rdma_region_remove(c, region);
    else
        pthread_cond_broadcast(&c->idle_region);
}

enum rg_status rg_rdma_register(struct rg_conn *conn, void *base, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (c->two_sided)
        return RG_ERR_UNSUPPORTED;
    rg_rdma_lock(c);
    enum rg_status status = rg_rdma_region_add(c, base, size, false, NULL);
    rg_rdma_unlock(c);
    return status;
}

void rg_rdma_unregister(struct rg_conn *conn, void *base)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    for (struct rg_rdma_region *region = c->regions; region; region = region->next)
        if (region->base == base && !region->temporary) {
            rg_rdma_forget_adverts(c, region->base, region->size);
            rg_rdma_region_remove(c, region);
            break;
        }
    rg_rdma_unlock(c);
}
