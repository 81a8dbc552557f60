/*
 * stalled.c - much data put into a stream that cannot go on yet, and work of another stream that must go on meanwhile: it
 * is what the first stream waits for. Copies of page-locked memory are put by the thread that goes on; those that may wait
 * are put by a thread of their own. Each case ends only if nobody stands behind what is stalled; what was copied is compared.
 *
 *   stalled [CASE|all]
 */
#include "must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 4096, ROWS = 36864, PITCH = WIDTH + 512, SLICES = 32, SAMPLES = 24, SMALL = 1000 };
#define SIZE ((size_t)WIDTH * ROWS) /* 144 MiB: more than anybody keeps for a stream that does not go on */

static CUcontext context;
static CUstream stalled, blocking, other;
static CUdeviceptr gate, big, second, small;
static CUarray array;
static unsigned char *locked, *pageable;

/* --- what is copied ------------------------------------------------------------------------------------------- */

static void fill(unsigned char *memory, unsigned seed)
{
    uint64_t *words = (uint64_t *)(void *)memory;
    for (size_t i = 0; i < SIZE / 8; i++)
        words[i] = i * 0x9e3779b97f4a7c15u + seed;
}

static bool right(const unsigned char *memory, size_t offset, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word;
        memcpy(&word, memory + i, 8);
        if (word != (offset + i) / 8 * 0x9e3779b97f4a7c15u + seed)
            return false;
    }
    return true;
}

static bool device_right(CUdeviceptr memory, size_t pitch, unsigned seed)
{
    unsigned char row[WIDTH];
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t y = i * (ROWS - 1) / (SAMPLES - 1);
        CHECK(cuMemcpyDtoH_v2(row, memory + y * pitch, WIDTH));
        if (!right(row, y * WIDTH, WIDTH, seed))
            return false;
    }
    return true;
}

static CUDA_MEMCPY3D box(bool to_array, void *host)
{
    CUDA_MEMCPY3D copy = {.WidthInBytes = WIDTH, .Height = ROWS, .Depth = 1};
    if (to_array) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host;
        copy.srcPitch = WIDTH;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = array;
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = array;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = host;
        copy.dstPitch = WIDTH;
    }
    return copy;
}

static bool array_right(unsigned seed)
{
    unsigned char row[WIDTH];
    for (size_t i = 0; i < SAMPLES; i++) {
        CUDA_MEMCPY3D copy = box(false, row);
        copy.srcY = i * (ROWS - 1) / (SAMPLES - 1);
        copy.Height = 1;
        CHECK(cuMemcpy3D_v2(&copy));
        if (!right(row, copy.srcY * WIDTH, WIDTH, seed))
            return false;
    }
    return true;
}

/* --- the copies, into `stream` -------------------------------------------------------------------------------- */

static void locked_in(CUstream stream)
{
    CHECK(cuMemcpyHtoDAsync_v2(big, locked, SIZE, stream));
}

static void pitched_in(CUstream stream)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = locked,
                                .srcPitch = WIDTH,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = second,
                                .dstPitch = PITCH,
                                .WidthInBytes = WIDTH,
                                .Height = ROWS};
    CHECK(cuMemcpy2DAsync_v2(&copy, stream));
}

static void array_in(CUstream stream)
{
    const CUDA_MEMCPY3D copy = box(true, locked);
    CHECK(cuMemcpy3DAsync_v2(&copy, stream));
}

static void slices_in(CUstream stream)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = locked,
                                .srcPitch = WIDTH,
                                .srcHeight = ROWS / SLICES,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = second,
                                .dstPitch = PITCH,
                                .dstHeight = ROWS / SLICES,
                                .WidthInBytes = WIDTH,
                                .Height = ROWS / SLICES,
                                .Depth = SLICES};
    CHECK(cuMemcpy3DAsync_v2(&copy, stream));
}

static void locked_out(CUstream stream)
{
    CHECK(cuMemcpyDtoHAsync_v2(locked, big, SIZE, stream));
}

static void array_out(CUstream stream)
{
    const CUDA_MEMCPY3D copy = box(false, locked);
    CHECK(cuMemcpy3DAsync_v2(&copy, stream));
}

static void across(CUstream stream)
{
    CHECK(cuMemcpyPeerAsync(second, context, big, context, SIZE, stream));
}

static void pageable_in(CUstream stream)
{
    CHECK(cuMemcpyHtoDAsync_v2(big, pageable, SIZE, stream));
}

static void pageable_out(CUstream stream)
{
    CHECK(cuMemcpyDtoHAsync_v2(pageable, big, SIZE, stream));
}

/* By the legacy stream, which waits for the stalled one if that is a blocking stream. */
static void at_once_in(CUstream stream)
{
    (void)stream;
    CHECK(cuMemcpyHtoD_v2(big, pageable, SIZE));
}

static void array_at_once_in(CUstream stream)
{
    (void)stream;
    const CUDA_MEMCPY3D copy = box(true, pageable);
    CHECK(cuMemcpy3D_v2(&copy));
}

/* Small copies of pageable memory never wait, however many there are. */
static void many_small(CUstream stream)
{
    for (size_t i = 0; i < SIZE / 32768; i++)
        CHECK(cuMemcpyHtoDAsync_v2(big + i * 32768, pageable + i * 32768, 32768, stream));
}

/* --- a case --------------------------------------------------------------------------------------------------- */

enum result { BIG, SECOND_PITCHED, SECOND, ARRAY, LOCKED, PAGEABLE };

struct trial {
    const char *name;
    void (*copy)(CUstream stream);
    bool may_wait, uses_blocking;
    enum result result;
};

static const struct trial trials[] = {
    {"page-locked memory to the device", locked_in, false, false, BIG},
    {"rows of page-locked memory", pitched_in, false, false, SECOND_PITCHED},
    {"slices of page-locked memory", slices_in, false, false, SECOND_PITCHED},
    {"page-locked memory to an array", array_in, false, false, ARRAY},
    {"device to page-locked memory", locked_out, false, false, LOCKED},
    {"array to page-locked memory", array_out, false, false, LOCKED},
    {"between contexts", across, false, false, SECOND},
    {"small copies", many_small, false, false, BIG},
    {"pageable memory to the device", pageable_in, true, false, BIG},
    {"device to pageable memory", pageable_out, true, false, PAGEABLE},
    {"a synchronous copy", at_once_in, true, true, BIG},
    {"a synchronous copy to an array", array_at_once_in, true, true, ARRAY},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool open_now;

static void CUDA_CB wait_for_gate(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!open_now)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

struct putting {
    const struct trial *trial;
    CUstream stream;
};

static void *put(void *argument)
{
    const struct putting *putting = argument;
    CHECK(cuCtxSetCurrent(context));
    putting->trial->copy(putting->stream);
    return NULL;
}

/* Work of the other stream that this thread waits for. */
static unsigned work(unsigned round)
{
    unsigned value = 0;
    CHECK(cuMemsetD32Async(small, round, SMALL, other));
    CHECK(cuMemcpyDtoHAsync_v2(&value, small + 4 * (SMALL - 1), 4, other));
    CHECK(cuStreamSynchronize(other));
    return value;
}

static bool result_right(const struct trial *trial, unsigned seed)
{
    switch (trial->result) {
    case BIG:
        return device_right(big, WIDTH, seed);
    case SECOND:
        return device_right(second, WIDTH, seed);
    case SECOND_PITCHED:
        return device_right(second, PITCH, seed);
    case ARRAY:
        return array_right(seed);
    case LOCKED:
        return right(locked, 0, SIZE, seed);
    default:
        return right(pageable, 0, SIZE, seed);
    }
}

/* `host`: the stream waits for a function of the host, else for a word that the other stream writes. */
static void run(const struct trial *trial, bool host, unsigned seed)
{
    const CUstream stream = trial->uses_blocking ? blocking : stalled;
    const bool out = trial->result == LOCKED || trial->result == PAGEABLE || trial->result == SECOND;
    unsigned done = 0;
    fill(locked, seed);
    if (out) {
        const CUDA_MEMCPY3D first = box(true, locked);
        CHECK(cuMemcpyHtoD_v2(big, locked, SIZE));
        CHECK(cuMemcpy3D_v2(&first));
        memset(locked, 0, SIZE);
        memset(pageable, 0, SIZE);
    } else {
        memcpy(pageable, locked, SIZE);
    }
    CHECK(cuMemsetD32_v2(gate, 0, 1));
    CHECK(cuCtxSynchronize());
    open_now = false;
    if (host)
        CHECK(cuLaunchHostFunc(stream, wait_for_gate, NULL));
    else
        CHECK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    struct putting putting = {trial, stream};
    pthread_t thread;
    /* without this optimisation, copies to page-locked memory wait as others do */
    const char *off = getenv("REMOTE_GPU_OPT");
    const bool deferred = !off || !(strstr(off, "-all") || strstr(off, "-deferred-copies"));
    const bool may_wait = trial->may_wait || (trial->result == LOCKED && !deferred);
    if (may_wait) {
        if (pthread_create(&thread, NULL, put, &putting) != 0)
            exit(2);
        usleep(20000); /* it is most likely in the middle of it */
    } else {
        put(&putting);
    }
    for (unsigned i = 0; i < 5; i++)
        done += work(seed + i) == seed + i;
    CHECK(cuStreamWriteValue32_v2(other, gate, 1, 0));
    pthread_mutex_lock(&lock);
    open_now = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (may_wait)
        pthread_join(thread, NULL);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxSynchronize());
    printf("%s behind %s: %u of 5 meanwhile, %s\n", trial->name, host ? "a host function" : "another stream",
           done, result_right(trial, seed) ? "right" : "WRONG");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "all";
    CUdevice device;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = WIDTH, .Height = ROWS, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    context = use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stalled, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&gate, 64));
    CHECK(cuMemAlloc_v2(&small, 4 * SMALL));
    CHECK(cuMemAlloc_v2(&big, SIZE));
    CHECK(cuMemAlloc_v2(&second, (size_t)PITCH * ROWS));
    CHECK(cuArray3DCreate_v2(&array, &shape));
    CHECK(cuMemAllocHost_v2((void **)&locked, SIZE));
    pageable = malloc(SIZE);
    if (!pageable)
        return 2;
    for (unsigned i = 0; i < sizeof trials / sizeof *trials; i++)
        for (unsigned host = 0; host < 2; host++)
            if (strcmp(only, "all") == 0 || strcmp(only, trials[i].name) == 0)
                run(&trials[i], host, 100 * (i + 1) + 10 * host);
    free(pageable);
    return 0;
}
