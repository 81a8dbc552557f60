/*
 * device_memory.c - no address that a client names reaches the driver unless it is the session's: each operation that takes
 * one, as the specification lists them, with an address of the worker's own and with ranges that leave device memory.
 */
#include "generated/server/device_addresses.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

#define DEVICE 0x700000000000ull /* where the only device memory is */
#define SIZE   4096u
#define BYTES  8u /* of a range, and rows */

static unsigned reached; /* calls of the driver that are none of those below */
static char own[64];     /* memory of this process */

static CUresult count(void)
{
    reached++;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult attributes(unsigned n, CUpointer_attribute *wanted, void **values, CUdeviceptr address)
{
    const bool device = address >= DEVICE && address - DEVICE < SIZE;
    (void)n, (void)wanted;
    *(unsigned *)values[0] = device ? CU_MEMORYTYPE_DEVICE : 0;
    *(CUdeviceptr *)values[1] = device ? DEVICE : 0;
    *(size_t *)values[2] = device ? SIZE : 0;
    return CUDA_SUCCESS;
}

static CUresult page_locked(unsigned n, CUpointer_attribute *wanted, void **values, CUdeviceptr address)
{
    (void)n, (void)wanted;
    *(unsigned *)values[0] = CU_MEMORYTYPE_HOST;
    *(CUdeviceptr *)values[1] = address;
    *(size_t *)values[2] = SIZE;
    return CUDA_SUCCESS;
}

static CUresult no_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    (void)base, (void)size, (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}

/* Sends a record of the operation with `address` in the place that is tested; returns what came of it. */
static int try(struct client *c, size_t i, uint64_t address)
{
    unsigned char parameters[256];
    struct rg_writer w = {parameters};
    int seen = 0;
    for (const char *at = device_addresses[i].record; *at; at++) {
        if (*at == 'A')
            rg_put_u64(&w, seen++ == device_addresses[i].tested ? address : DEVICE);
        else if (*at == 'P')
            rg_put_u64(&w, BYTES * sizeof(uint32_t)); /* of the widest elements */
        else if (*at == '8' || *at == 'N')
            rg_put_u64(&w, *at == 'N' ? BYTES : 0);
        else if (*at == '4' || *at == 'n')
            rg_put_u32(&w, *at == 'n' ? BYTES : 0);
        else {
            rg_put_u64(&w, BYTES);
            rg_put_u64(&w, 0);
        }
    }
    const bool bulk = device_addresses[i].op == RG_OP_rgCopyIn;
    static const unsigned char data[BYTES * BYTES];
    put(c, device_addresses[i].op, 0, 7, "r", parameters, (size_t)(w.at - parameters));
    send_bulk(c, data, bulk ? sizeof data : 0);
    do
        CHECK(receive(c, 20000));
    while (c->got.kind == RG_MESSAGE_NOTICE);
    CHECK(c->got.kind == RG_MESSAGE_REPLY && c->got.reply.token == 7);
    return c->got.reply.result;
}

static void expect_refused(struct client *c, size_t i, uint64_t address, const char *what)
{
    const unsigned before = reached;
    const int result = try(c, i, address);
    if (result != CUDA_ERROR_INVALID_VALUE || reached != before)
        fprintf(stderr, "%s, %s: result %d, %u calls of the driver\n", rg_op_names[device_addresses[i].op],
                what, result, reached - before);
    CHECK(result == CUDA_ERROR_INVALID_VALUE && reached == before);
}

/* Of copies that leave later: the stream is not touched, and the client need not keep its memory. */
static void late(struct client *c)
{
    const unsigned before = reached;
    put(c, RG_OP_rgCopyInDeferred, 0, 7, "888888", (uint64_t)(uintptr_t)own, (uint64_t)8, (uint64_t)8,
        (uint64_t)1, (uint64_t)5, (uint64_t)0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    expect_reply(c, 7, CUDA_ERROR_INVALID_VALUE);
    CHECK(reached == before);
}

/* More rows than all memory has, each on the one before: what they take says nothing of how much there is to do. */
static void rows(struct client *c)
{
    static const uint64_t endless = 1ull << 40;
    const unsigned before = reached;
    for (uint64_t pitch = 0; pitch < BYTES; pitch++) {
        CALL(c, RG_OP_rgCopy2D, 0, CUDA_ERROR_INVALID_VALUE, "88888848", DEVICE, (uint64_t)BYTES, DEVICE,
             pitch, (uint64_t)BYTES, endless, 1, (uint64_t)0);
        CALL(c, RG_OP_rgCopy2D, 0, CUDA_ERROR_INVALID_VALUE, "88888848", DEVICE, pitch, DEVICE,
             (uint64_t)BYTES, (uint64_t)BYTES, endless, 1, (uint64_t)0);
        CALL(c, RG_OP_cuMemsetD2D8Async, 0, CUDA_ERROR_INVALID_VALUE, "884888", DEVICE, pitch, 0,
             (uint64_t)BYTES, endless, (uint64_t)0);
    }
    CHECK(reached == before);
}

/* Textures of rows: all of the last row is the session's, too. */
static void textures(struct client *c)
{
    const CUDA_TEXTURE_DESC texture = {0};
    const struct {
        uint64_t address;
        size_t pitch, width, height;
        unsigned channels;
        CUarray_format format;
        bool good;
    } given[] = {
        {DEVICE, 512, 32, 8, 4, CU_AD_FORMAT_FLOAT, true},
        {DEVICE, 512, 33, 9, 4, CU_AD_FORMAT_FLOAT, false},
        {DEVICE + 1024, 512, 128, 6, 1, CU_AD_FORMAT_FLOAT, true},
        {DEVICE + 1024, 512, 129, 6, 1, CU_AD_FORMAT_FLOAT, false},
        {DEVICE + 1024, 512, 256, 6, 1, CU_AD_FORMAT_HALF, true},
        {DEVICE + 1024, 512, 512, 7, 1, CU_AD_FORMAT_UNSIGNED_INT8, false},
        {DEVICE, SIZE_MAX / 2, 8, 3, 4, CU_AD_FORMAT_FLOAT, false},
        {DEVICE, 512, SIZE_MAX / 4, 1, 4, CU_AD_FORMAT_FLOAT, false},
        {(uintptr_t)own, 512, 0, 0, 4, CU_AD_FORMAT_FLOAT, false},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        CUDA_RESOURCE_DESC rows = {.resType = CU_RESOURCE_TYPE_PITCH2D};
        const unsigned before = reached;
        rows.res.pitch2D.devPtr = given[i].address;
        rows.res.pitch2D.pitchInBytes = given[i].pitch;
        rows.res.pitch2D.width = given[i].width;
        rows.res.pitch2D.height = given[i].height;
        rows.res.pitch2D.numChannels = given[i].channels;
        rows.res.pitch2D.format = given[i].format;
        CALL(c, RG_OP_rgTexObjectCreate, 0, given[i].good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "r8r4",
             &rows, sizeof rows, (uint64_t)0, &texture, sizeof texture, 0);
        CHECK((reached > before) == given[i].good);
    }
}

int main(void)
{
    stub_driver_use(count);
    rg_driver.cuCtxSetCurrent = set_current;
    rg_driver.cuPointerGetAttributes = attributes;
    rg_driver.cuMemGetAddressRange_v2 = no_range;
    struct client *c = client_create();
    enter_context(c);
    const size_t n = sizeof device_addresses / sizeof *device_addresses;
    CHECK(n > 30);
    for (size_t i = 0; i < n; i++) {
        const unsigned before = reached;
        const int result = try(c, i, DEVICE);
        const bool needs_object = result == CUDA_ERROR_INVALID_HANDLE; /* none is made here */
        if (reached == before && !needs_object)
            fprintf(stderr, "%s does not get to the driver (%d)\n", rg_op_names[device_addresses[i].op],
                    result);
        CHECK(reached > before || needs_object);
        expect_refused(c, i, (uintptr_t)own, "memory of the worker's");
        expect_refused(c, i, DEVICE - 4, "before device memory");
        expect_refused(c, i, DEVICE + SIZE, "behind device memory");
        if (strpbrk(device_addresses[i].record, "nN"))
            expect_refused(c, i, DEVICE + SIZE - 4, "beyond device memory");
        rg_driver.cuPointerGetAttributes = page_locked;
        put(c, RG_OP_rgMemReturn, 0, 0, "8", (uint64_t)0); /* what is known is forgotten */
        expect_refused(c, i, (uintptr_t)own, "page-locked memory of the worker's");
        rg_driver.cuPointerGetAttributes = attributes;
    }
    rows(c);
    late(c);
    textures(c);
    CHECK(client_destroy(c) == 0);
    return 0;
}
