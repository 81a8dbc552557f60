/* streams.c - see streams.h. Device memory is memory of the process. */
#include "tests/softgpu/nccl/streams.h"

#include "softgpu/nccl/driver.h"
#include "tests/check.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 1024 };

/* A copy, a host function, or a wait until a word is at least `value`. */
struct step {
    void *to;
    const void *from;
    size_t size;
    CUhostFn function;
    void *argument;
    const uint32_t *word;
    int32_t value;
};

static struct stream {
    struct step steps[STEPS_MAX];
    unsigned first, n;
} streams[STREAMS];

CUstream streams_get(unsigned index)
{
    CHECK(index < STREAMS);
    return (CUstream)&streams[index];
}

unsigned streams_left(unsigned index)
{
    return streams[index].n;
}

static CUresult put(CUstream given, struct step step)
{
    struct stream *stream = given == CU_STREAM_PER_THREAD ? streams : (struct stream *)given;
    if (stream->n == STEPS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->steps[(stream->first + stream->n++) % STEPS_MAX] = step;
    return CUDA_SUCCESS;
}

static bool run_one(struct stream *stream)
{
    if (!stream->n)
        return false;
    const struct step step = stream->steps[stream->first];
    if (step.word && (int32_t)(__atomic_load_n(step.word, __ATOMIC_ACQUIRE) - (uint32_t)step.value) < 0)
        return false;
    stream->first = (stream->first + 1) % STEPS_MAX;
    stream->n--;
    if (step.function)
        step.function(step.argument);
    else if (step.size)
        memcpy(step.to, step.from, step.size);
    return true;
}

void streams_run(void)
{
    for (bool ran = true; ran;) {
        ran = false;
        for (int i = 0; i < STREAMS; i++)
            while (run_one(&streams[i]))
                ran = true;
    }
}

/* --- the driver's functions ----------------------------------------------------------------------------------- */

static CUcontext the_context(void)
{
    return (CUcontext)streams;
}

static CUresult CUDAAPI init(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI device_get(CUdevice *device, int which)
{
    *device = which;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI device_count(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI retain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = the_context();
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI current(CUcontext *context)
{
    *context = the_context();
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI device_of_context(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI allocate(CUdeviceptr *address, size_t size)
{
    *address = (CUdeviceptr)(uintptr_t)malloc(size);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI release_memory(CUdeviceptr address)
{
    free((void *)(uintptr_t)address);
    return CUDA_SUCCESS;
}

static size_t page_locked;

size_t streams_page_locked(void)
{
    return page_locked;
}

static CUresult CUDAAPI allocate_host(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = malloc(size);
    if (*memory)
        page_locked += malloc_usable_size(*memory);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI free_host(void *memory)
{
    page_locked -= malloc_usable_size(memory);
    free(memory);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI to_host(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    return put(stream, (struct step){.to = to, .from = (const void *)(uintptr_t)from, .size = size});
}

static CUresult CUDAAPI to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    return put(stream, (struct step){.to = (void *)(uintptr_t)to, .from = from, .size = size});
}

static CUresult CUDAAPI on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    return to_device(to, (const void *)(uintptr_t)from, size, stream);
}

static CUresult CUDAAPI launch(CUstream stream, CUhostFn function, void *argument)
{
    return put(stream, (struct step){.function = function, .argument = argument});
}

static CUresult CUDAAPI wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    return put(stream, (struct step){.word = (const uint32_t *)(uintptr_t)address, .value = (int32_t)value});
}

static CUresult CUDAAPI query(CUstream stream)
{
    (void)stream;
    streams_run();
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI exchange_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static CUresult captures_nothing(CUstream stream, uint64_t *number)
{
    (void)stream;
    *number = 0;
    return CUDA_SUCCESS;
}

static void collects_nothing(void)
{
}

static bool in_place;

void streams_set_in_place(bool is)
{
    in_place = is;
}

static bool is_in_place(uint64_t address, uint64_t size, bool write)
{
    (void)address, (void)size, (void)write;
    return in_place;
}

const struct sg_nccl_driver *sg_nccl_driver(void)
{
    static const struct rg_captured_table captured = {.size = sizeof captured,
                                                      .number = captures_nothing,
                                                      .collect = collects_nothing,
                                                      .in_place = is_in_place};
    static const struct sg_nccl_driver driver = {
        .p_cuInit = init,
        .p_cuDeviceGet = device_get,
        .p_cuDeviceGetCount = device_count,
        .p_cuDevicePrimaryCtxRetain = retain,
        .p_cuDevicePrimaryCtxRelease = release,
        .p_cuCtxGetCurrent = current,
        .p_cuCtxPushCurrent = push,
        .p_cuCtxPopCurrent = current,
        .p_cuCtxGetDevice = device_of_context,
        .p_cuMemAlloc = allocate,
        .p_cuMemFree = release_memory,
        .p_cuMemHostAlloc = allocate_host,
        .p_cuMemFreeHost = free_host,
        .p_cuMemcpyDtoHAsync = to_host,
        .p_cuMemcpyHtoDAsync = to_device,
        .p_cuMemcpyDtoDAsync = on_device,
        .p_cuLaunchHostFunc = launch,
        .p_cuStreamWaitValue32 = wait_value,
        .p_cuStreamQuery = query,
        .p_cuThreadExchangeStreamCaptureMode = exchange_mode,
        .captured = &captured,
    };
    return &driver;
}
