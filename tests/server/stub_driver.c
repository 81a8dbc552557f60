/* stub_driver.c - see stub_driver.h. */
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

CUresult stub_succeed(void)
{
    return CUDA_SUCCESS;
}

CUresult stub_fail(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The address of the next object: of nothing, so that nobody uses what is there unnoticed. */
static void *next_object(void)
{
    static atomic_uintptr_t last = 0x1000;
    return (void *)(atomic_fetch_add(&last, 64) + 64);
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(void *)(uintptr_t)(0x100 + 64 * (uintptr_t)(device & 7));
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    *context = next_object();
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = next_object();
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = next_object();
    return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult allocate(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    return posix_memalign(memory, 4096, size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

void stub_driver_use(CUresult (*all)(void))
{
    for (size_t i = 0; i < sizeof rg_driver / sizeof(void *); i++)
        memcpy((char *)&rg_driver + i * sizeof(void *), &all, sizeof all);
    rg_driver.cuDevicePrimaryCtxRetain = retain;
    rg_driver.cuCtxCreate_v2 = create_context;
    rg_driver.cuStreamCreate = create_stream;
    rg_driver.cuEventCreate = create_event;
    rg_driver.cuCtxGetDevice = current_device;
    rg_driver.cuMemHostAlloc = allocate;
    rg_driver.cuMemFreeHost = release;
}
