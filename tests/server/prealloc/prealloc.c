/*
 * prealloc.c - the worker makes memory ready, no more than it may, gives it back, and asks for it when memory runs out; over a driver
 * of the test's own.
 */
#include "proto/prealloc.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <string.h>

#define TOTAL (1ull << 30)

static atomic_ullong used; /* bytes of the device */
static atomic_uint blocks; /* that are there */
static _Atomic CUdeviceptr next_address;
static int pool_object;
static CUresult (*create_stream)(CUstream *stream, unsigned flags); /* the stub's */

static CUresult info(size_t *available, size_t *total)
{
    *available = TOTAL - atomic_load(&used);
    *total = TOTAL;
    return CUDA_SUCCESS;
}
static CUresult allocate(CUdeviceptr *address, size_t size)
{
    *address = atomic_fetch_add(&next_address, size + 4096);
    atomic_fetch_add(&used, size);
    atomic_fetch_add(&blocks, 1);
    return CUDA_SUCCESS;
}
static CUresult allocate_ordered(CUdeviceptr *address, size_t size, CUstream stream)
{
    (void)stream;
    return allocate(address, size);
}
static CUresult current_pool(CUmemoryPool *pool, CUdevice device)
{
    (void)device;
    *pool = (CUmemoryPool)(void *)&pool_object;
    return CUDA_SUCCESS;
}
static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool;
    static uint64_t high;
    if (atomic_load(&used) > high)
        high = atomic_load(&used);
    *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? high : atomic_load(&used);
    return CUDA_SUCCESS;
}
static CUresult release(CUdeviceptr address)
{
    (void)address;
    atomic_fetch_sub(&used, 65536);
    atomic_fetch_sub(&blocks, 1);
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    create_stream = rg_driver.cuStreamCreate;
    rg_driver.cuMemGetInfo_v2 = info;
    rg_driver.cuMemAlloc_v2 = allocate;
    rg_driver.cuMemAllocAsync = allocate_ordered;
    rg_driver.cuDeviceGetMemPool = current_pool;
    rg_driver.cuMemPoolGetAttribute = pool_attribute;
    rg_driver.cuMemFree_v2 = release;
    atomic_store(&next_address, 0x700000000000);
}

static struct client *begin(void)
{
    struct client *c = client_create();
    atomic_store(&stub_busy, true);
    enter_context(c);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 7));
    return c;
}

/* The next message says that so many blocks are ready and so many not to be had; their addresses. */
static const struct rg_prealloc_block *expect_blocks(struct client *c, uint64_t slab_id, unsigned n,
                                                     unsigned refused)
{
    CHECK(receive(c, 5000));
    CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_PREALLOC &&
          c->got.notice.id == slab_id);
    CHECK(c->got.notice.arg[0] == n && c->got.notice.arg[1] == refused);
    CHECK(c->got.output_size == n * sizeof(struct rg_prealloc_block));
    return (const void *)c->got.output;
}

static uint64_t free_bytes(struct client *c)
{
    CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_SUCCESS, "");
    return output_u64(c);
}

static void test_memory(void)
{
    const uint64_t zero = 0;
    struct client *c = begin();
    const unsigned at_first = atomic_load(&blocks);
    CHECK(free_bytes(c) == TOTAL - atomic_load(&used));
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)5, RG_PREALLOC_LINEAR, (uint64_t)65536, zero, 0,
        3, zero, zero);
    send_batch(c);
    const struct rg_prealloc_block *ready_blocks = expect_blocks(c, 5, 3, 0);
    const uint64_t first = ready_blocks[0].address;
    CHECK(ready_blocks[0].address != ready_blocks[1].address && atomic_load(&blocks) == at_first + 3);
    CHECK(free_bytes(c) == TOTAL - atomic_load(&used) + 3 * 65536); /* it is not in use */

    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)5, first, 1, zero, zero);
    send_batch(c);
    expect_blocks(c, 5, 1, 0);
    CHECK(free_bytes(c) == TOTAL - 65536 && atomic_load(&blocks) == at_first + 4);

    /* More than the share of what is free, in bytes and at once. */
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)6, RG_PREALLOC_LINEAR, (uint64_t)(TOTAL / 4),
        zero, 0, 2, zero, zero);
    send_batch(c);
    expect_blocks(c, 6, 0, 2);
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)7, RG_PREALLOC_LINEAR, (uint64_t)(TOTAL / 20),
        zero, 0, 9, zero, zero);
    send_batch(c);
    expect_blocks(c, 7, 2, 7);
    atomic_fetch_sub(&used, 2 * (TOTAL / 20 - 65536)); /* release() takes all blocks for small ones */

    /* All goes back, and twice is as good as once. */
    put(c, RG_OP_rgMemReturn, 0, 0, "8", (uint64_t)5);
    put(c, RG_OP_rgMemReturn, 0, 0, "8", (uint64_t)5);
    put(c, RG_OP_rgMemReturn, 0, 0, "8", (uint64_t)7);
    CHECK(free_bytes(c)); /* they are executed; the device is busy, so another thread frees */
    for (int i = 0; i < 5000 && atomic_load(&blocks) != at_first + 1; i++)
        usleep(1000);
    CHECK(free_bytes(c) == TOTAL - 65536 && atomic_load(&blocks) == at_first + 1);

    /* Stream-ordered: the pool's high mark is what the program had. */
    const uint64_t pool = handle(RG_KIND_POOL, 3);
    CALL(c, RG_OP_cuDeviceGetMemPool, 0, CUDA_SUCCESS, "48", 0, pool);
    const uint64_t high = atomic_load(&used);
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)8, RG_PREALLOC_ORDERED, (uint64_t)65536, zero, 0,
        4, handle(RG_KIND_STREAM, 7), zero);
    send_batch(c);
    const uint64_t ordered = expect_blocks(c, 8, 4, 0)[0].address;
    CALL(c, RG_OP_rgMemPoolGetAttribute, 0, CUDA_SUCCESS, "48", CU_MEMPOOL_ATTR_USED_MEM_HIGH, pool);
    CHECK(output_u64(c) == high);
    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)8, ordered, 0, handle(RG_KIND_STREAM, 7), zero);
    CALL(c, RG_OP_rgMemPoolGetAttribute, 0, CUDA_SUCCESS, "48", CU_MEMPOOL_ATTR_USED_MEM_HIGH, pool);
    CHECK(output_u64(c) == high + 65536);

    /* What is left goes with the context; of a pool it would stay, and is freed. */
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    CHECK(atomic_load(&blocks) == at_first + 2);
    CHECK(client_destroy(c) == 0);
}

/*
 * What a program took when it started before: several kinds in one answer, which are then like those of other
 * slabs.
 */
static void test_hints(void)
{
    const uint64_t zero = 0;
    struct client *c = begin();
    const unsigned at_first = atomic_load(&blocks);
    const struct rg_prealloc_hint hints[] = {
        {.slab_id = 5, .size = 65536, .kind = RG_PREALLOC_LINEAR, .count = 2},
        {.slab_id = 6, .size = TOTAL / 4, .kind = RG_PREALLOC_LINEAR, .count = 1},
        {.slab_id = 7, .size = 65536, .kind = RG_PREALLOC_LINEAR, .count = 1}};
    CHECK(free_bytes(c) == TOTAL - atomic_load(&used));
    CALL(c, RG_OP_rgMemPreallocHints, 0, CUDA_SUCCESS, "8b", sizeof hints, hints, sizeof hints);
    CHECK(c->got.output_size == 3 * sizeof(uint64_t) + 3 * sizeof(struct rg_prealloc_block));
    uint64_t made, address;
    memcpy(&made, c->got.output, sizeof made);
    memcpy(&address, c->got.output + sizeof made, sizeof address);
    CHECK(made == 2);
    memcpy(&made, c->got.output + 8 + 2 * sizeof(struct rg_prealloc_block), sizeof made);
    CHECK(made == 0); /* more than the share of what is free */
    memcpy(&made, c->got.output + 16 + 2 * sizeof(struct rg_prealloc_block), sizeof made);
    CHECK(made == 1 && atomic_load(&blocks) == at_first + 3);
    CHECK(free_bytes(c) == TOTAL - atomic_load(&used) + 3 * 65536);
    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)5, address, 0, zero, zero);
    CHECK(free_bytes(c) == TOTAL - atomic_load(&used) + 2 * 65536);
    for (uint64_t slab_id = 5; slab_id <= 7; slab_id++)
        put(c, RG_OP_rgMemReturn, 0, 0, "8", slab_id);
    CHECK(free_bytes(c));
    for (int i = 0; i < 5000 && atomic_load(&blocks) != at_first + 1; i++)
        usleep(1000);
    CHECK(atomic_load(&blocks) == at_first + 1);
    CHECK(client_destroy(c) == 0);
}

/* Wishes that cannot be; each ends the session. */
static void test_wrong_hints(void)
{
    const struct rg_prealloc_hint good = {
        .slab_id = 5, .size = 65536, .kind = RG_PREALLOC_LINEAR, .count = 1};
    static struct rg_prealloc_hint many[RG_PREALLOC_HINTS + 1];
    struct rg_prealloc_hint hints[4] = {good, good, good, good};
    hints[0].kind = RG_PREALLOC_ORDERED; /* without a stream */
    hints[1].count = RG_PREALLOC_MAX + 1;
    hints[2].size = 0;
    for (int i = 0; i < 3; i++) {
        struct client *c = begin();
        put(c, RG_OP_rgMemPreallocHints, 0, 5, "8b", sizeof good, &hints[i], sizeof good);
        send_batch(c);
        expect_violation(c, "is hinted");
    }
    hints[0] = good;
    struct client *c = begin(); /* the same slab_id twice */
    put(c, RG_OP_rgMemPreallocHints, 0, 5, "8b", 2 * sizeof good, (hints[1] = good, hints), 2 * sizeof good);
    send_batch(c);
    expect_violation(c, "is hinted");
    c = begin(); /* a part of a hint */
    put(c, RG_OP_rgMemPreallocHints, 0, 5, "8b", sizeof good + 8, hints, sizeof good + 8);
    send_batch(c);
    expect_violation(c, "is hinted");
    for (unsigned i = 0; i <= RG_PREALLOC_HINTS; i++) {
        many[i] = good;
        many[i].slab_id += i;
    }
    c = begin();
    put(c, RG_OP_rgMemPreallocHints, 0, 5, "8b", sizeof many, many, sizeof many);
    send_batch(c);
    expect_violation(c, "is hinted");
}

static unsigned most_blocks; /* with more of them there is no memory for a stream */
static CUresult stream_create_tight(CUstream *stream, unsigned flags)
{
    if (atomic_load(&blocks) > most_blocks)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return create_stream(stream, flags);
}

/*
 * A session with blocks ready, two of them unless the driver has too few, and a record that finds no memory
 * for them.
 */
static struct client *run_out(struct rg_prealloc_return *out, unsigned spared)
{
    const uint64_t zero = 0;
    rg_driver.cuStreamCreate = create_stream;
    struct client *c = begin();
    CHECK(free_bytes(c));
    most_blocks = atomic_load(&blocks) + spared;
    rg_driver.cuStreamCreate = stream_create_tight;
    put(c, RG_OP_rgMemMayReclaim, 0, 0, "");
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)5, RG_PREALLOC_LINEAR, (uint64_t)65536, zero, 0,
        2, zero, zero);
    send_batch(c);
    const struct rg_prealloc_block *ready_blocks = expect_blocks(c, 5, 2, 0);
    for (unsigned i = 0; i < 2; i++)
        out[i] = (struct rg_prealloc_return){5, ready_blocks[i].address};
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 8));
    return c;
}

/*
 * A call that nobody waits for runs out of memory: the client is asked for what is ready, and the call is
 * made again.
 */
static void test_reclaim(void)
{
    struct rg_prealloc_return back[2];
    const uint64_t zero = 0;
    struct client *c = run_out(back, 0);
    put(c, RG_OP_cuStreamSynchronize, 0, 77, "8", handle(RG_KIND_STREAM, 8));
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    expect_nothing(c);
    send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, back, sizeof back);
    expect_reply(c, 77, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == CUDA_SUCCESS);

    /* One that was taken meanwhile stays, and may be taken still; without the other there is enough. */
    CHECK(client_destroy(c) == 0);
    c = run_out(back, 1);
    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)5, back[0].address, 0, zero, zero);
    put(c, RG_OP_cuStreamSynchronize, 0, 77, "8", handle(RG_KIND_STREAM, 8));
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, &back[1], sizeof *back);
    expect_reply(c, 77, CUDA_SUCCESS);

    /* Nothing is given back: the error stands. The client goes while it is asked. */
    CHECK(client_destroy(c) == 0);
    c = run_out(back, 0);
    put(c, RG_OP_cuMemGetInfo_v2, 0, 77, "");
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, NULL, 0);
    expect_reply(c, 77, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(client_destroy(c) == 0);
    c = run_out(back, 0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    CHECK(client_destroy(c) == 0);
    rg_driver.cuStreamCreate = create_stream;
}

static CUresult (*allocate_host)(void **memory, size_t size, unsigned flags);
static CUresult host_alloc_tight(void **memory, size_t size, unsigned flags)
{
    return atomic_load(&blocks) > most_blocks ? CUDA_ERROR_OUT_OF_MEMORY : allocate_host(memory, size, flags);
}

/* The same of a copy whose data the client keeps until it hears of it: it does so once. */
static void test_reclaim_late(void)
{
    static const unsigned ops[] = {RG_OP_rgCopyInDeferred, RG_OP_rgCopyOutDeferred};
    struct rg_prealloc_return back[2];
    allocate_host = rg_driver.cuMemHostAlloc;
    rg_driver.cuMemHostAlloc = host_alloc_tight;
    for (unsigned i = 0; i < 4; i++) {
        struct client *c = run_out(back, 0);
        rg_driver.cuStreamCreate = create_stream;
        put(c, ops[i % 2], 0, 0, "888888", (uint64_t)0x10000, (uint64_t)70000, (uint64_t)70000, (uint64_t)1,
            (uint64_t)9, handle(RG_KIND_STREAM, 7));
        put(c, RG_OP_rgMemPoolGetAttribute, 0, 77, "48", CU_MEMPOOL_ATTR_USED_MEM_HIGH, (uint64_t)0);
        send_batch(c);
        expect_notice(c, RG_NOTICE_RECLAIM, 1);
        send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, back, i < 2 ? sizeof back : 0);
        if (i >= 2) {
            expect_notice(c, i % 2 ? RG_NOTICE_DEFERRED_READ : RG_NOTICE_RENDEZVOUS, 9); /* it is over */
            CHECK(c->got.bulk_size == 0 && c->got.notice.arg[1] == 0);
        }
        expect_reply(c, 77, CUDA_SUCCESS);
        CHECK(c->got.reply.async_result == (i < 2 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
        CHECK(client_destroy(c) == 0);
    }
    rg_driver.cuMemHostAlloc = allocate_host;
}

static CUresult launch_host_tight(CUstream stream, CUhostFn function, void *user)
{
    (void)stream, (void)function, (void)user;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A copy that has begun and then finds no memory has failed: it is not made again, under an id that is taken. */
static void test_fails_once(void)
{
    CUresult (*launch_host)(CUstream, CUhostFn, void *) = rg_driver.cuLaunchHostFunc;
    struct rg_prealloc_return back[2];
    struct client *c = run_out(back, 0);
    rg_driver.cuStreamCreate = create_stream;
    rg_driver.cuLaunchHostFunc = launch_host_tight;
    put(c, RG_OP_rgCopyInDeferred, 0, 0, "888888", (uint64_t)0x10000, (uint64_t)70000, (uint64_t)70000,
        (uint64_t)1, (uint64_t)9, handle(RG_KIND_STREAM, 7));
    put(c, RG_OP_rgMemPoolGetAttribute, 0, 77, "48", CU_MEMPOOL_ATTR_USED_MEM_HIGH, (uint64_t)0);
    send_batch(c);
    expect_reply(c, 77, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(client_destroy(c) == 0);
    rg_driver.cuLaunchHostFunc = launch_host;
}

/* What no client sends ends the session. */
static void expect_end(struct client *c, const char *word)
{
    send_batch(c);
    expect_violation(c, word);
}

static void test_violations(void)
{
    const uint64_t zero = 0;
    struct client *c = begin();
    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)5, (uint64_t)4096, 1, zero, zero);
    expect_end(c, "not offered");
    c = begin();
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)5, RG_PREALLOC_LINEAR, (uint64_t)65536, zero, 0,
        1, zero, zero);
    put(c, RG_OP_rgMemTake, 0, 0, "88488", (uint64_t)5, (uint64_t)4096, 1, zero, zero);
    expect_end(c, "not offered");
    c = begin();
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)5, 3, (uint64_t)65536, zero, 0, 1, zero, zero);
    expect_end(c, "kind");
    c = begin();
    put(c, RG_OP_rgMemPrealloc, 0, 0, "84884488", (uint64_t)5, RG_PREALLOC_LINEAR, (uint64_t)1, zero, 0,
        RG_PREALLOC_MAX + 1, zero, zero);
    expect_end(c, "kind");
}

static void test_reclaim_violations(void)
{
    struct rg_prealloc_return back[2];
    struct client *c = begin(); /* nobody asked */
    send_batch(c);
    send_answer(c, RG_ANSWER_RECLAIMED, 0, 0, NULL, 0);
    expect_violation(c, "answer");
    c = run_out(back, 0); /* for another reclaim, for half a block, for the same block twice */
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    send_answer(c, RG_ANSWER_RECLAIMED, 2, 0, back, sizeof back);
    expect_violation(c, "answer");
    c = run_out(back, 0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, back, sizeof back - 8);
    expect_violation(c, "answer");
    c = run_out(back, 0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RECLAIM, 1);
    back[1] = back[0];
    send_answer(c, RG_ANSWER_RECLAIMED, 1, 0, back, sizeof back);
    expect_violation(c, "not ready");
    rg_driver.cuStreamCreate = create_stream;
}

int main(void)
{
    use_driver();
    test_memory();
    test_hints();
    test_wrong_hints();
    test_violations();
    test_reclaim();
    test_reclaim_violations();
    test_reclaim_late();
    test_fails_once();
    return 0;
}
