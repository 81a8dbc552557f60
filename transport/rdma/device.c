/*
 * device.c - memory of GPUs, which the network device reads and writes by itself.
 *
 * Two ways to register it: by a dma-buf that the GPU's driver exports (Linux 5.12 and rdma-core 34 or later,
 * and a network driver that has it), and by its address, as ordinary memory is, where a kernel module of the
 * GPU's (nvidia_peermem) tells the RDMA subsystem what lies there. ibv_reg_dmabuf_mr is looked up by name, so
 * that the transport works with an older libibverbs.
 *
 * A region like any other from then on; what is in it never goes through a bounce buffer or a fragment.
 */
#include "transport/rdma/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

typedef struct ibv_mr *(*reg_dmabuf_fn)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                        int fd, int access);

static reg_dmabuf_fn find_reg_dmabuf(void)
{
    void *found = dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr");
    if (!found) { /* this transport may have been loaded, and its libraries with it, for itself alone */
        void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = dlsym(library, "ibv_reg_dmabuf_mr");
            dlclose(library);
        }
    }
    reg_dmabuf_fn function;
    *(void **)&function = found;
    return function;
}

struct origin {
    reg_dmabuf_fn reg_dmabuf;
    int fd;
    uint64_t offset;
};

static struct ibv_mr *make_part(struct rg_rdma_conn *c, const struct rg_rdma_region *region, size_t offset,
                                size_t size, void *user)
{
    const struct origin *from = user;
    unsigned char *at = region->base + offset;
    if (from->fd < 0)
        return ibv_reg_mr(c->pd, at, size, ACCESS);
    return from->reg_dmabuf(c->pd, from->offset + offset, size, (uintptr_t)at, from->fd, ACCESS);
}

/* A descriptor that is none tells whether kernel and device look at it at all. */
static bool takes_dmabufs(struct rg_rdma_conn *c, reg_dmabuf_fn reg_dmabuf)
{
    if (!reg_dmabuf)
        return false;
    errno = 0;
    struct ibv_mr *mr = reg_dmabuf(c->pd, 0, (size_t)sysconf(_SC_PAGESIZE), 0, -1, ACCESS);
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
    return RG_DEVICE_PEER | (takes_dmabufs(c, find_reg_dmabuf()) ? RG_DEVICE_DMABUF : 0u);
}

enum rg_status rg_rdma_register_device(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    struct origin from = {.reg_dmabuf = fd < 0 ? NULL : find_reg_dmabuf(), .fd = fd, .offset = offset};
    errno = EOPNOTSUPP;
    if (c->two_sided || (fd >= 0 && !from.reg_dmabuf))
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
