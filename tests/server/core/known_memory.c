/*
 * known_memory.c - how often the driver is asked whose memory an address is (server/core/device_memory.c): once for each
 * range, however often records use it, and anew after whatever may have ended memory.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#define DEVICE 0x700000000000ull /* where allocations lie, one after another */
#define SIZE   0x10000ull        /* of each */

static atomic_uint asked;

static CUresult attributes(unsigned n, CUpointer_attribute *wanted, void **values, CUdeviceptr address)
{
    (void)n, (void)wanted;
    atomic_fetch_add(&asked, 1);
    *(unsigned *)values[0] = CU_MEMORYTYPE_DEVICE;
    *(CUdeviceptr *)values[1] = address / SIZE * SIZE;
    *(size_t *)values[2] = SIZE;
    return CUDA_SUCCESS;
}

/* Sends a record and waits for its answer, whatever that is. */
#define DO(c, thread, op, ...)                                                                               \
    do {                                                                                                     \
        put(c, op, thread, 7, __VA_ARGS__);                                                                  \
        send_batch(c);                                                                                       \
        take_reply(c);                                                                                       \
    } while (0)

static void take_reply(struct client *c)
{
    do
        CHECK(receive(c, 20000));
    while (c->got.kind == RG_MESSAGE_NOTICE);
    CHECK(c->got.kind == RG_MESSAGE_REPLY && c->got.reply.token == 7);
}

static void use(struct client *c, uint32_t thread, uint64_t address)
{
    put(c, RG_OP_cuMemsetD8Async, thread, 7, "8488", address, 1, (uint64_t)64, (uint64_t)0);
    send_batch(c);
    take_reply(c);
    CHECK(c->got.reply.result == CUDA_SUCCESS);
}

/* What a step of a program does over and over. */
static void step(struct client *c, unsigned buffers)
{
    static const unsigned char data[64];
    for (uint64_t i = 0; i < buffers; i++) {
        const uint64_t here = DEVICE + i * SIZE, next = DEVICE + (i + 1) % buffers * SIZE;
        put(c, RG_OP_rgCopyInSmall, 0, 0, "8488b", here + 128, 0, sizeof data, (uint64_t)0, data,
            sizeof data);
        put(c, RG_OP_cuMemsetD8Async, 0, 0, "8488", here, 1, SIZE, (uint64_t)0);
        put(c, RG_OP_cuMemcpyDtoDAsync_v2, 0, 0, "8888", next, here, SIZE, (uint64_t)0);
        put(c, RG_OP_cuEventRecord, 0, 0, "88", handle(RG_KIND_EVENT, 1), (uint64_t)0);
        put(c, RG_OP_cuStreamWaitEvent, 0, 0, "884", (uint64_t)0, handle(RG_KIND_EVENT, 1), 0);
        put(c, RG_OP_rgCreditTell, 0, 0, "8", (uint64_t)0);
    }
    put(c, RG_OP_cuStreamSynchronize, 0, 7, "8", (uint64_t)0);
    send_batch(c);
    take_reply(c);
    CHECK(c->got.reply.result == CUDA_SUCCESS);
}

static void loops(struct client *c)
{
    for (unsigned buffers = 1; buffers <= RG_KNOWN_RANGES_MAX; buffers *= 16) {
        DO(c, 0, RG_OP_rgMemReturn, "8", (uint64_t)0);
        atomic_store(&asked, 0);
        for (int i = 0; i < 20; i++)
            step(c, buffers);
        CHECK(atomic_load(&asked) == buffers);
    }
    /* one use of many neighbours */
    DO(c, 0, RG_OP_rgMemReturn, "8", (uint64_t)0);
    atomic_store(&asked, 0);
    for (int i = 0; i < 20; i++) {
        put(c, RG_OP_cuMemsetD8Async, 0, 7, "8488", DEVICE + SIZE / 2, 1, 8 * SIZE, (uint64_t)0);
        send_batch(c);
        take_reply(c);
        CHECK(c->got.reply.result == CUDA_SUCCESS);
    }
    CHECK(atomic_load(&asked) == 9);
    /* more than are remembered: all of them still work */
    for (uint64_t i = 0; i < 2 * RG_KNOWN_RANGES_MAX; i++)
        use(c, 0, DEVICE + (2 * RG_KNOWN_RANGES_MAX - i) * SIZE);
}

/* Each operation that may end memory, with handles and addresses of nothing: what it says does not matter. */
static const struct {
    enum rg_op op;
    const char *parameters;
} ends[] = {
    {RG_OP_cuMemFree_v2, "8"},
    {RG_OP_rgHostUnmap, "8"},
    {RG_OP_cuMemPoolDestroy, "8"},
    {RG_OP_cuMemPoolTrimTo, "88"},
    {RG_OP_rgMemReturn, "8"},
    {RG_OP_rgPoolsSettle, ""},
    {RG_OP_cuDevicePrimaryCtxRelease_v2, "4"},
    {RG_OP_cuCtxDestroy_v2, "8"},
    {RG_OP_cuDevicePrimaryCtxReset_v2, "4"},
    {RG_OP_cuModuleUnload, "8"},
    {RG_OP_cuLibraryUnload, "8"},
    {RG_OP_cuGreenCtxDestroy, "8"},
    {RG_OP_rgIpcCloseMemory, "8"},
    {RG_OP_cuMemUnmap, "88"},
    {RG_OP_cuMemAddressFree, "88"},
    {RG_OP_cuDevicePrimaryCtxSetFlags_v2, "44"},
    {RG_OP_cuMemFreeAsync, "88"},
};

static void each_end(struct client *c)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        use(c, 0, DEVICE);
        const unsigned before = atomic_load(&asked);
        use(c, 0, DEVICE + SIZE - 64);
        CHECK(atomic_load(&asked) == before);
        if (ends[i].parameters[0] == '4')
            DO(c, 0, ends[i].op, ends[i].parameters, 5, 0);
        else
            DO(c, 0, ends[i].op, ends[i].parameters, DEVICE, SIZE);
        use(c, 0, DEVICE);
        if (atomic_load(&asked) != before + 1)
            fprintf(stderr, "%s: memory is still taken for known\n", rg_op_names[ends[i].op]);
        CHECK(atomic_load(&asked) == before + 1);
    }
}

/* Once memory is freed in the order of a stream, or is a pool's, what waits may end it. */
static void pools(struct client *c)
{
    use(c, 0, DEVICE);
    DO(c, 0, RG_OP_cuMemFreeAsync, "88", DEVICE + SIZE, (uint64_t)0);
    use(c, 0, DEVICE);
    unsigned before = atomic_load(&asked);
    use(c, 0, DEVICE);
    CHECK(atomic_load(&asked) == before);
    DO(c, 0, RG_OP_cuEventRecord, "88", handle(RG_KIND_EVENT, 1), (uint64_t)0);
    DO(c, 0, RG_OP_cuStreamWaitEvent, "884", (uint64_t)0, handle(RG_KIND_EVENT, 1), 0);
    use(c, 0, DEVICE); /* a step of a loop ends none */
    CHECK(atomic_load(&asked) == before);
    DO(c, 0, RG_OP_cuStreamSynchronize, "8", (uint64_t)0);
    use(c, 0, DEVICE);
    CHECK(atomic_load(&asked) == before + 1);
}

/* --- memory that ends while another thread uses it ------------------------------------------------------- */

static CUresult slow_free(CUdeviceptr address)
{
    (void)address;
    stub_pass();
    return CUDA_SUCCESS;
}

static void meanwhile(struct client *c)
{
    rg_driver.cuMemFree_v2 = slow_free;
    stub_hold(true);
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 0));
    use(c, 1, DEVICE);
    put(c, RG_OP_cuMemFree_v2, 0, 8, "8", DEVICE);
    send_batch(c);
    stub_wait_held(1);
    use(c, 1, DEVICE); /* while it is there */
    const unsigned before = atomic_load(&asked);
    stub_hold(false);
    expect_reply(c, 8, CUDA_SUCCESS);
    use(c, 1, DEVICE);
    CHECK(atomic_load(&asked) == before + 1);
}

static struct client *begin(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuPointerGetAttributes = attributes;
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 1));
    return c;
}

int main(void)
{
    struct client *c = begin();
    loops(c);
    meanwhile(c);
    CHECK(client_destroy(c) == 0);
    c = begin();
    each_end(c);
    pools(c);
    CHECK(client_destroy(c) == 0);
    unsigned n = 0;
    for (unsigned op = 0; op < RG_OP_COUNT; op++)
        n += (rg_op_traits[op] & RG_TRAIT_ENDS) != 0;
    CHECK(n == sizeof ends / sizeof *ends); /* each of them is tried above */
    return 0;
}
