/*
 * credit.c - data of copies to the device that a stream does not take: it lies in the worker, which goes on
 * with the records of others as long as the client keeps to its room, holds one that does not, and says what
 * is free again. The driver is the test's own; its events come when the test says so.
 */
#include "proto/bulk_credit.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <string.h>

#define PIECE  (4u << 20)
#define PIECES ((unsigned)(RG_BULK_CREDIT / PIECE))

static atomic_uint waits; /* for events that had not come */
static atomic_ullong pinned;

static CUresult event_synchronize(CUevent event)
{
    (void)event;
    atomic_fetch_add(&waits, atomic_load(&stub_busy));
    return CUDA_SUCCESS;
}
static CUresult host_alloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = malloc(size);
    if (!*memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&pinned, size);
    return CUDA_SUCCESS;
}
static CUresult memory_info(size_t *available, size_t *total)
{
    *available = *total = 1 << 20;
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuEventSynchronize = event_synchronize;
    rg_driver.cuMemHostAlloc = host_alloc;
    rg_driver.cuMemGetInfo_v2 = memory_info;
}

/* Memory that is advertised takes no credit; that is tried elsewhere. */
static enum rg_status advertise_nothing(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                        size_t size)
{
    (void)conn, (void)tag, (void)base, (void)memory, (void)size;
    return RG_ERR_UNSUPPORTED;
}

static void without_advertising(struct rg_transport_ops *ops)
{
    ops->advertise = advertise_nothing;
}

static struct client *begin(void)
{
    struct client *c = client_create_with(false, without_advertising);
    atomic_store(&stub_busy, true);
    atomic_store(&waits, 0);
    atomic_store(&pinned, 0);
    enter_context(c);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    return c;
}

static void copy(struct client *c, size_t size)
{
    static unsigned char data[PIECE];
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)0x10000, (uint64_t)size, (uint64_t)size, (uint64_t)1, 0,
        handle(RG_KIND_STREAM, 7));
    send_bulk(c, data, size);
}

static uint64_t freed(struct client *c)
{
    uint64_t number;
    CALL(c, RG_OP_rgCreditAsk, 0, CUDA_SUCCESS, "");
    CHECK(c->got.output_size == sizeof number);
    memcpy(&number, c->got.output, sizeof number);
    return number;
}

static void expect_room(struct client *c, uint64_t number)
{
    CHECK(receive(c, 5000));
    CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_CREDIT);
    CHECK(c->got.notice.arg[0] == number);
}

/* A full room holds nobody up; what has become free is told, unasked once enough of it has. */
static void test_full(void)
{
    struct client *c = begin();
    put(c, RG_OP_rgCreditTell, 0, 0, "8", (uint64_t)(RG_BULK_CREDIT / 8));
    for (unsigned i = 0; i < PIECES; i++)
        copy(c, PIECE);
    CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_SUCCESS, "");
    CHECK(freed(c) == 0);
    CHECK(atomic_load(&waits) == 0 && atomic_load(&pinned) == RG_BULK_CREDIT);
    atomic_store(&stub_busy, false);
    CHECK(freed(c) == RG_BULK_CREDIT);

    /* Where the client knows of all, it is told of no less than it wanted to. */
    copy(c, 1000);
    for (unsigned i = 0; i < PIECES / 8 - 1; i++)
        copy(c, PIECE);
    expect_nothing(c);
    copy(c, PIECE);
    copy(c, 1000);
    expect_room(c, RG_BULK_CREDIT + RG_BULK_CREDIT / 8 + rg_bulk_credit_of(1000));
    CHECK(atomic_load(&pinned) == RG_BULK_CREDIT); /* the same buffers */
    CHECK(client_destroy(c) == 0);
}

/* Small plain copies are the driver's at once, and copies that fail take no room either. */
static void test_passing(void)
{
    struct client *c = begin();
    for (unsigned i = 0; i < 10; i++)
        copy(c, 5000);
    CHECK(freed(c) == 10 * rg_bulk_credit_of(5000));
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)0x10000, (uint64_t)100000, (uint64_t)100000, (uint64_t)1,
        0, handle(RG_KIND_STREAM, 9)); /* there is none such */
    static const unsigned char data[100000];
    send_bulk(c, data, sizeof data);
    expect_notice(c, RG_NOTICE_ERROR, 0);
    CHECK(c->got.notice.arg[0] == CUDA_ERROR_INVALID_HANDLE);
    CHECK(freed(c) == 10 * rg_bulk_credit_of(5000) + rg_bulk_credit_of(100000));
    CHECK(client_destroy(c) == 0);
}

/* Who sends more than there is room for waits, and gets no more memory. */
static void test_beyond(void)
{
    struct client *c = begin();
    for (unsigned i = 0; i < 3 * PIECES; i++)
        copy(c, PIECE);
    CHECK(freed(c) == 2 * RG_BULK_CREDIT);
    CHECK(atomic_load(&waits) == 2 * PIECES && atomic_load(&pinned) == RG_BULK_CREDIT);
    CHECK(client_destroy(c) == 0);
}

/* A client that copies in ever other sizes does not make the pool grow for ever. */
static void test_sizes(void)
{
    struct client *c = begin();
    for (size_t size = 128u << 10; size <= PIECE; size *= 2) {
        atomic_store(&stub_busy, true);
        for (size_t sum = 0; sum < RG_BULK_CREDIT; sum += size)
            copy(c, size);
        CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_SUCCESS, "");
        atomic_store(&stub_busy, false);
        (void)freed(c);
    }
    CHECK(atomic_load(&waits) == 0);
    for (unsigned i = 0; i < 4; i++)
        copy(c, PIECE);
    (void)freed(c);
    const struct rg_worker_context *context =
        rg_objects_find(&c->worker->objects, handle(RG_KIND_CONTEXT, 0))->extra; /* the dispatcher is idle */
    CHECK(context->staging_bytes <= RG_BULK_CREDIT + PIECE);
    CHECK(client_destroy(c) == 0);
}

int main(void)
{
    use_driver();
    test_full();
    test_passing();
    test_beyond();
    test_sizes();
    return 0;
}
