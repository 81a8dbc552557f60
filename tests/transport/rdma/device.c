/*
 * device.c - registering a GPU's memory (transport/rdma/device.c), over functions of libibverbs of the test's
 * own, which take the place of the library's: what reaches them, what is taken back when one fails, and which
 * ways are offered.
 */
#include "tests/transport/support.h"

#include "transport/memory.h"
#include "transport/rdma/internal.h"

#include <errno.h>
#include <string.h>

#undef ibv_reg_mr

/* as the library has them */
#define VISIBLE __attribute__((visibility("default")))
#define GPU     ((unsigned char *)0x7f5500000000)

static struct call {
    uint64_t offset, iova;
    size_t size;
    int fd; /* -1: by address */
    bool ended;
    struct ibv_mr mr;
} calls[16];
static unsigned n_calls, fail_at = 99;
static int fail_errno;

static struct ibv_mr *record(uint64_t offset, size_t size, uint64_t iova, int fd, int access)
{
    CHECK(access == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) && n_calls < 16);
    struct call *call = &calls[n_calls];
    *call = (struct call){.offset = offset, .iova = iova, .size = size, .fd = fd};
    call->mr.lkey = 100 + n_calls;
    call->mr.rkey = 200 + n_calls;
    if (n_calls++ == fail_at) {
        errno = fail_errno;
        return NULL;
    }
    return &call->mr;
}

VISIBLE struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t size, int access)
{
    (void)pd;
    return record(0, size, (uintptr_t)at, -1, access);
}

VISIBLE struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova,
                                         int fd, int access)
{
    (void)pd;
    return record(offset, size, iova, fd, access);
}

VISIBLE int ibv_dereg_mr(struct ibv_mr *mr)
{
    for (unsigned i = 0; i < n_calls; i++)
        if (&calls[i].mr == mr) {
            CHECK(!calls[i].ended);
            calls[i].ended = true;
            return 0;
        }
    CHECK(!"a registration that was made");
    return EINVAL;
}

static struct rg_rdma_conn *make(bool two_sided)
{
    struct rg_rdma_conn *c = calloc(1, sizeof *c);
    CHECK(c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->idle_region, NULL);
    c->two_sided = two_sided;
    n_calls = 0;
    fail_at = 99;
    return c;
}

static void end(struct rg_rdma_conn *c)
{
    CHECK(!c->regions && !c->n_device_regions);
    pthread_cond_destroy(&c->idle_region);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const size_t large = 2 * (size_t)RG_RDMA_REGION_MAX + 8192;

static void test_registers(int fd)
{
    struct rg_rdma_conn *c = make(false);
    CHECK(rg_rdma_register_device(&c->head, GPU, large, fd, 4096) == RG_OK && n_calls == 3);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(calls[i].fd == fd && calls[i].iova == (uintptr_t)GPU + (uint64_t)i * RG_RDMA_REGION_MAX);
        CHECK(calls[i].offset == (fd < 0 ? 0 : 4096 + (uint64_t)i * RG_RDMA_REGION_MAX));
        CHECK(calls[i].size == (i < 2 ? (size_t)RG_RDMA_REGION_MAX : 8192));
    }
    /* found by its addresses; nothing of it is ever sent as a copy, however small */
    size_t size = 100;
    struct rg_rdma_region *region = rg_rdma_region_find(c, GPU + RG_RDMA_REGION_MAX, size);
    CHECK(region && region->device &&
          rg_rdma_region_part(region, GPU + RG_RDMA_REGION_MAX, &size)->rkey == 201);
    struct iovec part = {GPU + 8, 10}, host = {&size, sizeof size};
    struct rg_send message = {.bulk = &part, .n_bulk = 1, .bulk_size = 10};
    CHECK(rg_rdma_is_written(c, &message));
    message.bulk = &host;
    message.bulk_size = sizeof size;
    CHECK(!rg_rdma_is_written(c, &message));
    /* placed there by the device, if the message is one of those that are placed */
    c->bulk_mode = RG_RDMA_BULK_COPIED;
    CHECK(!rg_rdma_writes_directly(&c->head, GPU, 4096));
    c->bulk_mode = RG_RDMA_BULK_WRITTEN;
    CHECK(rg_rdma_writes_directly(&c->head, GPU, large) &&
          !rg_rdma_writes_directly(&c->head, GPU, large + 1));
    rg_rdma_unregister(&c->head, GPU);
    CHECK(calls[0].ended && calls[1].ended && calls[2].ended && !rg_rdma_writes_directly(&c->head, GPU, 1));
    end(c);
}

static void test_fails(int fd)
{
    static const struct {
        int error;
        enum rg_status status;
    } cases[] = {{EOPNOTSUPP, RG_ERR_UNSUPPORTED},
                 {EPROTONOSUPPORT, RG_ERR_UNSUPPORTED},
                 {EFAULT, RG_ERR_FAULT},
                 {ENOMEM, RG_ERR_NO_MEMORY},
                 {EINVAL, RG_ERR_NO_MEMORY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned at = 0; at < 3; at++) {
            struct rg_rdma_conn *c = make(false);
            fail_at = at;
            fail_errno = cases[i].error;
            CHECK(rg_rdma_register_device(&c->head, GPU, large, fd, 0) == cases[i].status);
            CHECK(errno == cases[i].error && n_calls == at + 1);
            for (unsigned k = 0; k < at; k++)
                CHECK(calls[k].ended);
            end(c);
        }
}

static void test_ways(void)
{
    struct rg_rdma_conn *c = make(false);
    static const struct {
        int error;
        bool there;
    } cases[] = {{EBADF, true}, {EINVAL, true}, {EOPNOTSUPP, false}, {EPROTONOSUPPORT, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_calls = fail_at = 0;
        fail_errno = cases[i].error;
        CHECK(rg_rdma_device_paths(&c->head) == (RG_DEVICE_PEER | (cases[i].there ? RG_DEVICE_DMABUF : 0u)));
        CHECK(n_calls == 1 && calls[0].fd == -1 && calls[0].size > 0);
    }
    n_calls = 0, fail_at = 99;
    CHECK(rg_rdma_device_paths(&c->head) == RG_DEVICE_PEER && calls[0].ended); /* it takes anything */
    end(c);
    c = make(true);
    CHECK(rg_rdma_device_paths(&c->head) == 0 && n_calls == 0);
    CHECK(rg_rdma_register_device(&c->head, GPU, 4096, -1, 0) == RG_ERR_UNSUPPORTED && n_calls == 0);
    end(c);
}

int main(void)
{
    test_begin();
    test_registers(5);
    test_registers(-1);
    test_fails(5);
    test_fails(-1);
    test_ways();
    return 0;
}
