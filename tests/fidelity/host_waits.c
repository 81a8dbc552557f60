/*
 * host_waits.c - a host function, or a callback, that takes long holds up its own stream and no other: copies to and from
 * page-locked memory, also small ones and of rows, go on meanwhile, behind work that is pending when they are asked for.
 *
 * The function returns when the program has seen all of them done. (Programs may not rely on that; the driver needs no host
 * function for copies, so that it shows whether somebody else does.)
 */
#include "must.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 6 << 20, ROUNDS = 16 };

static atomic_bool go_on;
static atomic_uint called;
static unsigned char *in, *out;
static CUdeviceptr memory, aside;
static CUstream held, other;

static void CUDA_CB hold(void *user)
{
    (void)user;
    while (!atomic_load(&go_on))
        usleep(100);
    atomic_fetch_add(&called, 1);
}

static void CUDA_CB hold_callback(CUstream stream, CUresult status, void *user)
{
    (void)stream, (void)status;
    hold(user);
}

static void copy(size_t size, int round)
{
    memset(in, round + 1, size);
    memset(out, 0, size);
    CHECK(cuMemsetD8Async(memory, 0, SIZE, other));
    CHECK(cuMemcpyHtoDAsync_v2(memory, in, size, other));
    CHECK(cuMemcpyDtoHAsync_v2(out, memory, size, other));
    CHECK(cuStreamSynchronize(other));
    printf("%zu bytes: %s\n", size, memcmp(in, out, size) == 0 ? "copied" : "other ones");
}

static void copy_rows(int round)
{
    const size_t pitch = 512, width = 100, height = 1000;
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = pitch,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .dstPitch = pitch,
                        .WidthInBytes = width,
                        .Height = height};
    memset(in, round + 50, pitch * height);
    CHECK(cuMemsetD8Async(memory, 0, pitch * height, other));
    CHECK(cuMemcpy2DAsync_v2(&to, other));
    CHECK(cuMemcpyDtoHAsync_v2(out, memory, pitch * height, other));
    CHECK(cuStreamSynchronize(other));
    printf("rows: %d and %d\n", out[pitch * (height - 1) + width - 1], out[width]);
}

int main(void)
{
    use_first_device();
    CHECK(cuMemHostAlloc((void **)&in, SIZE, 0));
    CHECK(cuMemHostAlloc((void **)&out, SIZE, 0));
    CHECK(cuMemAlloc_v2(&memory, SIZE));
    CHECK(cuMemAlloc_v2(&aside, 100));
    CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&go_on, false);
        CHECK(cuMemsetD8Async(aside, 3, 100, held));
        if (round % 2)
            CHECK(cuStreamAddCallback(held, hold_callback, NULL, 0));
        else
            CHECK(cuLaunchHostFunc(held, hold, NULL));
        copy(SIZE, round);
        copy(1000, round);
        copy_rows(round);
        printf("still held: %d\n", cuStreamQuery(held));
        atomic_store(&go_on, true);
        CHECK(cuStreamSynchronize(held));
        printf("called %u times\n", atomic_load(&called));
    }
    return 0;
}
