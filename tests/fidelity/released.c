/*
 * released.c - a transcript of page-locked memory that is released while copies in it are queued: in the context that is
 * current, in that of another device, while another stream is captured, and again and again. See run.py.
 */
#include "must.h"

#include <stdlib.h>
#include <string.h>

#define SIZE   ((size_t)8 << 20)
#define ROUNDS 500

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static CUstream streams[2];

static void hold_up(void *unused)
{
    (void)unused;
    usleep(200000);
}

static size_t count(const unsigned char *at, unsigned char value)
{
    size_t n = 0;
    for (size_t i = 0; i < SIZE; i++)
        n += at[i] == value;
    return n;
}

static unsigned char *pages(void)
{
    unsigned char *p = aligned_alloc(4096, SIZE);
    if (!p)
        abort();
    memset(p, 0, SIZE);
    return p;
}

/* A copy to the host is held up in the context of device `at`; the memory is unregistered in that of device `here`. */
static void unregister(int at, int here)
{
    unsigned char *p = pages();
    CHECK(cuCtxSetCurrent(contexts[at]));
    CHECK(cuMemHostRegister_v2(p, SIZE, CU_MEMHOSTREGISTER_PORTABLE));
    CHECK(cuMemsetD8_v2(memory[at], 7, SIZE));
    CHECK(cuCtxSynchronize());
    CHECK(cuLaunchHostFunc(streams[at], hold_up, NULL));
    CHECK(cuMemcpyDtoHAsync_v2(p, memory[at], SIZE, streams[at]));
    CHECK(cuCtxSetCurrent(contexts[here]));
    printf("unregister: %d\n", (int)cuMemHostUnregister(p));
    CHECK(cuCtxSetCurrent(contexts[at]));
    printf("synchronize: %d\n", (int)cuStreamSynchronize(streams[at]));
    printf("copied to the host: %zu\n", count(p, 7));
    free(p);
}

/* The same for a copy from memory that is freed. */
static void free_memory(int at, int here)
{
    unsigned char *p, *back = pages();
    CHECK(cuCtxSetCurrent(contexts[at]));
    CHECK(cuMemHostAlloc((void **)&p, SIZE, CU_MEMHOSTALLOC_PORTABLE));
    memset(p, 9, SIZE);
    CHECK(cuLaunchHostFunc(streams[at], hold_up, NULL));
    CHECK(cuMemcpyHtoDAsync_v2(memory[at], p, SIZE, streams[at]));
    CHECK(cuCtxSetCurrent(contexts[here]));
    printf("free: %d\n", (int)cuMemFreeHost(p));
    CHECK(cuCtxSetCurrent(contexts[at]));
    printf("synchronize: %d\n", (int)cuStreamSynchronize(streams[at]));
    CHECK(cuMemcpyDtoH_v2(back, memory[at], SIZE));
    printf("copied to the device: %zu\n", count(back, 9));
    free(back);
}

static void while_capturing(void)
{
    CUstream captured;
    CUgraph graph;
    unsigned char *p = pages();
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostRegister_v2(p, SIZE, 0));
    CHECK(cuMemsetD8_v2(memory[0], 5, SIZE));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoHAsync_v2(p, memory[0], SIZE, streams[0]));
    CHECK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    printf("unregister: %d\n", (int)cuMemHostUnregister(p));
    printf("end: %d\n", (int)cuStreamEndCapture(captured, &graph));
    printf("synchronize: %d\n", (int)cuStreamSynchronize(streams[0]));
    printf("copied to the host: %zu\n", count(p, 5));
    free(p);
}

/* The copy ends while the memory is being released, now and then. */
static void again_and_again(void)
{
    unsigned char *p = pages();
    for (unsigned i = 0; i < ROUNDS; i++) {
        CHECK(cuCtxSetCurrent(contexts[1]));
        CHECK(cuMemHostRegister_v2(p, SIZE / 8, CU_MEMHOSTREGISTER_PORTABLE));
        CHECK(cuMemcpyDtoHAsync_v2(p, memory[1], SIZE / 8, streams[1]));
        usleep(200 + i % 100 * 10);
        CHECK(cuCtxSetCurrent(contexts[0]));
        CHECK(cuMemHostUnregister(p));
    }
    CHECK(cuCtxSetCurrent(contexts[1]));
    printf("again and again: %d\n", (int)cuStreamSynchronize(streams[1]));
    free(p);
}

int main(void)
{
    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuMemAlloc_v2(&memory[i], SIZE));
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (int at = 0; at < 2; at++)
        for (int here = 0; here < 2; here++) {
            unregister(at, here);
            free_memory(at, here);
        }
    while_capturing();
    again_and_again();
    return 0;
}
