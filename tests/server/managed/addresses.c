/*
 * addresses.c - contents of memory that host and device share travel outside of records: no address that is named there reaches the driver
 * unless it is device memory of the session's.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#define DEVICE 0x700000000000ull /* where the only device memory is */
#define SIZE   4096u
#define BYTES  16u

static unsigned reached; /* copies of the driver */
static char own[64];     /* memory of this process */

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult allocate(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = calloc(1, size);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    reached++;
    return CUDA_SUCCESS;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    reached++;
    return CUDA_SUCCESS;
}

static CUresult attributes(unsigned n, CUpointer_attribute *wanted, void **values, CUdeviceptr address)
{
    const bool device = address >= DEVICE && address - DEVICE < SIZE;
    (void)n, (void)wanted;
    *(unsigned *)values[0] = device                          ? CU_MEMORYTYPE_DEVICE
                             : address == (uintptr_t)own + 8 ? CU_MEMORYTYPE_HOST /* page-locked */
                                                             : 0;
    *(CUdeviceptr *)values[1] = device ? DEVICE : (uintptr_t)own;
    *(size_t *)values[2] = device ? SIZE : sizeof own;
    return CUDA_SUCCESS;
}

static CUresult no_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    (void)base, (void)size, (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}

static void send_managed(struct client *c, const struct rg_answer *answer, const void *bulk, size_t size)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1, .seq = c->seq - 1},
                 *answer};
    CHECK(send_raw(c, &message, sizeof message, bulk, size));
}

/* What the driver is asked for an address. */
static void try(struct client *c, uint64_t address, bool good)
{
    const uint64_t context = handle(RG_KIND_CONTEXT, 0);
    const struct {
        uint64_t run[2];
        unsigned char bytes[BYTES];
    } in = {{address, BYTES}, ""};
    unsigned before = reached;
    send_managed(c, &(struct rg_answer){.type = RG_ANSWER_MANAGED_IN, .id = context}, &in, sizeof in);
    if (!good)
        expect_notice(c, RG_NOTICE_ERROR, 0);
    send_managed(
        c, &(struct rg_answer){.type = RG_ANSWER_MANAGED_OUT, .id = 3, .arg = {address, BYTES, context}},
        NULL, 0);
    expect_notice(c, RG_NOTICE_MANAGED, 3);
    CHECK(c->got.notice.arg[0] == (good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    CHECK(c->got.bulk_size == (good ? BYTES : 0));
    CHECK(reached - before == (good ? 2 : 0));
    before = reached;
    send_managed(c,
                 &(struct rg_answer){.type = RG_ANSWER_MANAGED_OUT,
                                     .id = 4,
                                     .reserved = RG_MANAGED_STEADY,
                                     .arg = {address, BYTES, context}},
                 NULL, 0);
    expect_notice(c, RG_NOTICE_MANAGED, 4);
    CHECK(c->got.notice.arg[0] == (good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    CHECK(good == (reached > before));
}

int main(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuCtxSetCurrent = set_current;
    rg_driver.cuMemHostAlloc = allocate;
    rg_driver.cuMemFreeHost = release;
    rg_driver.cuMemcpyHtoDAsync_v2 = copy_in;
    rg_driver.cuMemcpyDtoHAsync_v2 = copy_out;
    rg_driver.cuPointerGetAttributes = attributes;
    rg_driver.cuMemGetAddressRange_v2 = no_range;
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_rgUnifiedOpen, 0, CUDA_SUCCESS, "");
    try(c, DEVICE, true);
    try(c, DEVICE + SIZE - BYTES, true);
    try(c, DEVICE + SIZE - BYTES + 1, false);
    try(c, DEVICE - 1, false);
    try(c, (uintptr_t)own, false);
    try(c, (uintptr_t)own + 8, false);
    try(c, UINT64_MAX - BYTES + 2, false);
    CHECK(client_destroy(c) == 0);
    return 0;
}
