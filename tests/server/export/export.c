/*
 * export.c - handles that one session makes and another opens: clients see tokens of them, and what is not
 * such a token is refused before the driver sees a byte of it.
 */
#include "server/export/export.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "tests/temporary.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 64 };

static const uint64_t event = 3ull << 42 | 1ull << 26 | 3 << 4; /* handle(RG_KIND_EVENT, 3) */
static unsigned reached;           /* how often the driver was told to open something */
static unsigned char opened[SIZE]; /* what */

static void make_handle(void *out, int what)
{
    memset(out, what, SIZE);
}
static CUresult reach(const void *given)
{
    reached++;
    memcpy(opened, given, SIZE);
    return CUDA_SUCCESS;
}
static CUresult get_memory(CUipcMemHandle *out, CUdeviceptr address)
{
    make_handle(out, (int)(address & 0xff));
    return CUDA_SUCCESS;
}
static CUresult open_memory(CUdeviceptr *out, CUipcMemHandle given, unsigned flags)
{
    (void)flags;
    *out = 0x5000;
    return reach(&given);
}
static CUresult get_event(CUipcEventHandle *out, CUevent of)
{
    (void)of;
    make_handle(out, 2);
    return CUDA_SUCCESS;
}
static CUresult open_event(CUevent *out, CUipcEventHandle given)
{
    *out = (CUevent)(void *)opened;
    return reach(&given);
}
static CUresult get_pointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    (void)address;
    make_handle(out, 3);
    return CUDA_SUCCESS;
}
static CUresult open_pointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *given)
{
    (void)pool;
    *out = 0x6000;
    return reach(given);
}
static CUresult get_fabric(void *out, CUmemGenericAllocationHandle of, CUmemAllocationHandleType type,
                           unsigned long long flags)
{
    (void)of, (void)type, (void)flags;
    make_handle(out, 4);
    return CUDA_SUCCESS;
}
static CUresult open_fabric(CUmemGenericAllocationHandle *out, void *given, CUmemAllocationHandleType type)
{
    (void)type;
    *out = 0x77;
    return reach(given);
}

/* What a session has been given for the driver's handle: no byte of that. */
static void take_token(const struct client *c, unsigned char *token, int what)
{
    unsigned char driver[SIZE];
    make_handle(driver, what);
    CHECK(c->got.output_size == SIZE);
    memcpy(token, c->got.output, SIZE);
    CHECK(memcmp(token, driver, SIZE) != 0 && memcmp(token, driver, 4) != 0);
}

/* Sends handles to be opened: of memory (0), of an event, a pool's pointer, a fabric handle. */
static void try_open(struct client *c, int which, const unsigned char *given, int what)
{
    static uint32_t index = 100;
    const int result = what ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    unsigned char driver[SIZE];
    reached = 0;
    index++;
    if (which == 0)
        CALL(c, RG_OP_rgIpcOpenMemory, 0, result, "4r", CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, given,
             (size_t)SIZE);
    else if (which == 1)
        CALL(c, RG_OP_rgIpcOpenEvent, 0, result, "8r", handle(RG_KIND_EVENT, index), given, (size_t)SIZE);
    else if (which == 2)
        CALL(c, RG_OP_rgPoolImportPointer, 0, result, "8r", (uint64_t)0, given, (size_t)SIZE);
    else
        CALL(c, RG_OP_rgImportAllocation, 0, result, "448b", 0, (uint32_t)CU_MEM_HANDLE_TYPE_FABRIC,
             handle(RG_KIND_ALLOCATION, index), given, (size_t)SIZE);
    make_handle(driver, what);
    CHECK(reached == (what ? 1 : 0) && (!what || memcmp(opened, driver, SIZE) == 0));
}

static void test_shared_handles(struct client *c, struct client *other)
{
    unsigned char tokens[4][SIZE], wrong[SIZE];
    rg_driver.cuIpcGetMemHandle = get_memory;
    rg_driver.cuIpcOpenMemHandle_v2 = open_memory;
    rg_driver.cuIpcGetEventHandle = get_event;
    rg_driver.cuIpcOpenEventHandle = open_event;
    rg_driver.cuMemPoolExportPointer = get_pointer;
    rg_driver.cuMemPoolImportPointer = open_pointer;
    rg_driver.cuMemExportToShareableHandle = get_fabric;
    rg_driver.cuMemImportFromShareableHandle = open_fabric;
    CALL(c, RG_OP_cuIpcGetMemHandle, 0, CUDA_SUCCESS, "8", (uint64_t)1);
    take_token(c, tokens[0], 1);
    CALL(c, RG_OP_cuIpcGetEventHandle, 0, CUDA_SUCCESS, "8", event);
    take_token(c, tokens[1], 2);
    CALL(c, RG_OP_cuMemPoolExportPointer, 0, CUDA_SUCCESS, "8", (uint64_t)3);
    take_token(c, tokens[2], 3);
    CALL(c, RG_OP_rgShareAllocation, 0, CUDA_SUCCESS, "488", (uint32_t)CU_MEM_HANDLE_TYPE_FABRIC, (uint64_t)0,
         (uint64_t)0);
    take_token(c, tokens[3], 4);

    /* the same memory has the same handle, other memory another */
    CALL(c, RG_OP_cuIpcGetMemHandle, 0, CUDA_SUCCESS, "8", (uint64_t)1);
    CHECK(memcmp(c->got.output, tokens[0], SIZE) == 0);
    CALL(c, RG_OP_cuIpcGetMemHandle, 0, CUDA_SUCCESS, "8", (uint64_t)9);
    CHECK(memcmp(c->got.output, tokens[0], SIZE) != 0);

    for (int which = 0; which < 4; which++) {
        try_open(other, which, tokens[which], which + 1);
        try_open(c, which, tokens[which], which + 1);
        make_handle(wrong, which + 1); /* the driver's own bytes */
        try_open(other, which, wrong, 0);
        make_handle(wrong, 0);
        try_open(other, which, wrong, 0);
        try_open(other, which, tokens[(which + 1) % 4], 0); /* of something else */
        for (int at = 0; at < SIZE; at += 9) {
            memcpy(wrong, tokens[which], SIZE);
            wrong[at] ^= 1;
            try_open(other, which, wrong, 0);
        }
    }
}

/* Who has the token alone gets nothing: sessions of an identity have a secret in common. */
static void test_secret(const char *secret)
{
    unsigned char handle[SIZE], token[SIZE];
    make_handle(handle, 9);
    CHECK(rg_export_offer_handle(RG_EXPORT_MEMORY, handle));
    memcpy(token, handle, SIZE);
    CHECK(rg_export_take_handle(RG_EXPORT_MEMORY, token) && token[0] == 9);
    memcpy(token, handle, SIZE);
    CHECK(unlink(secret) == 0);
    CHECK(!rg_export_take_handle(RG_EXPORT_MEMORY, token));
    rg_export_leave();
}

/* A descriptor is found by its token alone, until its end. */
static void test_descriptors(void)
{
    unsigned char token[RG_EXPORT_TOKEN], other[RG_EXPORT_TOKEN];
    struct stat one, two;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &one) == 0 && rg_export_offer(fd, token));
    int copy = rg_export_take(token);
    CHECK(copy >= 0 && copy != fd && fstat(copy, &two) == 0 && one.st_ino == two.st_ino);
    close(copy);
    memcpy(other, token, sizeof other);
    other[20] ^= 1;
    CHECK(rg_export_take(other) < 0);
    rg_export_end(other);
    memcpy(other, token, sizeof other);
    other[0] ^= 1; /* no such worker */
    CHECK(rg_export_take(other) < 0);
    copy = rg_export_take(token);
    CHECK(copy >= 0);
    close(copy);
    rg_export_end(token);
    CHECK(rg_export_take(token) < 0);
}

int main(void)
{
    char *secret = temporary_path("secret");
    FILE *file = fopen(secret, "we");
    CHECK(file && fwrite("0123456789abcdef0123456789abcdef", 1, 32, file) == 32 && fclose(file) == 0);
    rg_export_set_folder(temporary_folder());
    test_descriptors();
    stub_driver_use(stub_succeed);
    struct client *c = client_create(), *other = client_create();
    enter_context(c);
    enter_context(other);
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, event);
    test_shared_handles(c, other);
    test_secret(secret);
    free(secret);
    CHECK(client_destroy(other) == 0);
    CHECK(client_destroy(c) == 0);
    return 0;
}
