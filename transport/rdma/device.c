/*
 * device.c - memory of GPUs, which the network device reads and writes by itself.
 *
 * Two ways to register it: by a dma-buf that the GPU's driver exports (Linux 5.12 and rdma-core 34 or later,
 * and a network driver that has it), and by its address, as ordinary memory is, where a kernel module of the
 * GPU's (nvidia_peermem) tells the RDMA subsystem what lies there. Without ibv_reg_dmabuf_mr in libibverbs, verbs.c's fails
 * with EOPNOTSUPP.
 *
 * A region like any other from then on; what is in it never goes through a bounce buffer or a fragment.
 */
#include "transport/rdma/internal.h"

#include <errno.h>
#include <unistd.h>

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

struct origin {
    int fd; /* -1: by address */
    uint64_t offset;
};

static struct ibv_mr *make_part(struct rg_rdma_conn *c, const struct rg_rdma_region *region, size_t offset,
                                size_t size, void *user)
{
    const struct origin *from = user;
    unsigned char *at = region->base + offset;
    if (from->fd < 0)
        return ibv_reg_mr(c->pd, at, size, ACCESS);
    return ibv_reg_dmabuf_mr(c->pd, from->offset + offset, size, (uintptr_t)at, from->fd, ACCESS);
}

/* A descriptor that is none tells whether kernel and device look at it at all. */
static bool takes_dmabufs(struct rg_rdma_conn *c)
{
    errno = 0;
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(c->pd, 0, (size_t)sysconf(_SC_PAGESIZE), 0, -1, ACCESS);
    if (mr) {
        ibv_dereg_mr(mr);
        return false; /* it registers what is not there */
    }
    return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS && errno != ENOTTY;
}

unsigned rg_rdma_device_paths(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (c->two_sided)
        return 0;
    return RG_DEVICE_PEER | (takes_dmabufs(c) ? RG_DEVICE_DMABUF : 0u);
}

enum rg_status rg_rdma_register_device(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    struct origin from = {.fd = fd, .offset = offset};
    errno = EOPNOTSUPP;
    if (c->two_sided)
        return RG_ERR_UNSUPPORTED;
    struct rg_rdma_region *region;
    rg_rdma_lock(c);
    enum rg_status status = rg_rdma_region_add_parts(c, base, size, make_part, &from, &region);
    if (status == RG_OK) {
        region->device = true;
        c->n_device_regions++;
    }
    rg_rdma_unlock(c);
    return status;
}

bool rg_rdma_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (c->bulk_mode != RG_RDMA_BULK_WRITTEN)
        return false;
    rg_rdma_lock(c);
    const bool found = rg_rdma_region_find(c, memory, size) != NULL;
    rg_rdma_unlock(c);
    return found;
}
