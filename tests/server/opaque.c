/*
 * opaque.c - what of the bytes that a client sends reaches the driver: no name of a file, no value of another size.
 */
#include "common/cuda/coredump.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

static char context_object;
static unsigned reached; /* calls of the driver that the test is about */

/* --- core dumps ------------------------------------------------------------------------------------------------------ */

static size_t told; /* size of the last value */

static CUresult set_coredump(CUcoredumpSettings setting, void *value, size_t *size)
{
    (void)setting, (void)value;
    reached++;
    told = *size;
    return CUDA_SUCCESS;
}
/* A driver that writes more than it says there is room for. */
static CUresult get_coredump(CUcoredumpSettings setting, void *value, size_t *size)
{
    (void)setting;
    memset(value, 7, RG_COREDUMP_NAME_MAX);
    *size = RG_COREDUMP_NAME_MAX;
    return CUDA_SUCCESS;
}

static void try_coredump(struct client *c, CUcoredumpSettings setting, const void *value, size_t size,
                         CUresult result)
{
    reached = 0;
    told = 0;
    CALL(c, RG_OP_rgCoredumpSet, 0, result, "48b", (uint32_t)setting, (uint64_t)size, value, size);
    CALL(c, RG_OP_rgCoredumpSetGlobal, 0, result, "48b", (uint32_t)setting, (uint64_t)size, value, size);
    CHECK(reached == (result == CUDA_SUCCESS ? 2 : 0) && told == (result == CUDA_SUCCESS ? size : 0));
}

static void test_coredumps(struct client *c)
{
    static const char name[] = "/etc/passwd", no_end[] = {'/', 'x'};
    static const unsigned char yes[4] = {1}, no[4] = {0}, neither[4] = {2};
    const unsigned flags = CU_COREDUMP_SKIP_ABORT, unknown = 1u << 30;
    rg_driver.cuCoredumpSetAttribute = set_coredump;
    rg_driver.cuCoredumpSetAttributeGlobal = set_coredump;
    rg_driver.cuCoredumpGetAttribute = get_coredump;
    try_coredump(c, CU_COREDUMP_FILE, name, sizeof name, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_PIPE, name, sizeof name, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_FILE, no_end, sizeof no_end, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_FILE, name, 0, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_ENABLE_ON_EXCEPTION, yes, 1, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_ENABLE_USER_TRIGGER, yes, 1, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_ENABLE_ON_EXCEPTION, no, 1, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 1, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, neither, 1, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 0, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 4, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &flags, 4, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &flags, 1, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &unknown, 4, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, (CUcoredumpSettings)99, yes, 1, CUDA_ERROR_INVALID_VALUE);
    CALL(c, RG_OP_rgCoredumpGet, 0, CUDA_SUCCESS, "448", (uint32_t)CU_COREDUMP_FILE, 0, (uint64_t)2);
    CHECK(c->got.output_size == 2 + sizeof(uint64_t) && c->got.output[1] == 7);
}

static CUresult make_context(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)device, (void)flags;
    reached++;
    *out = (CUcontext)(void *)&context_object;
    return CUDA_SUCCESS;
}
static CUresult set_flags(unsigned flags)
{
    (void)flags;
    reached++;
    return CUDA_SUCCESS;
}
static CUresult set_primary_flags(CUdevice device, unsigned flags)
{
    (void)device;
    return set_flags(flags);
}

/* Flags of contexts ask for dumps as well. */
static void test_context_flags(struct client *c)
{
    static const uint32_t wanted[] = {CU_CTX_COREDUMP_ENABLE, CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_MAP_HOST};
    rg_driver.cuCtxCreate_v2 = make_context;
    rg_driver.cuCtxSetFlags = set_flags;
    rg_driver.cuDevicePrimaryCtxSetFlags_v2 = set_primary_flags;
    reached = 0;
    for (int i = 0; i < 2; i++) {
        CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_ERROR_NOT_PERMITTED, "448", wanted[i], 0,
             handle(RG_KIND_CONTEXT, 20));
        CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_ERROR_NOT_PERMITTED, "4", wanted[i]);
        CALL(c, RG_OP_cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_ERROR_NOT_PERMITTED, "44", 0, wanted[i]);
    }
    CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_ERROR_INVALID_VALUE, "4", (uint32_t)CU_CTX_FLAGS_MASK);
    CHECK(reached == 0);
    CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_SUCCESS, "448", (uint32_t)CU_CTX_MAP_HOST, 0,
         handle(RG_KIND_CONTEXT, 20));
    CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_SUCCESS, "4", (uint32_t)CU_CTX_MAP_HOST);
    CALL(c, RG_OP_cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_SUCCESS, "44", 0, (uint32_t)CU_CTX_MAP_HOST);
    CHECK(reached == 3);
}

int main(void)
{
    stub_driver_use(stub_succeed);
    struct client *c = client_create();
    enter_context(c);
    test_coredumps(c);
    test_context_flags(c);
    CHECK(client_destroy(c) == 0);
    return 0;
}
