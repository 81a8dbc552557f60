/*
 * Many threads on one device: streams that depend on each other through events and the default stream,
 * allocations, copies, host functions, contexts of their own. Every thread checks its results; the thread
 * sanitizer checks the rest.
 */
#include "tests/ok.h"
#include "tests/softgpu/driver/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 6
#define ROUNDS  40
#define COUNT   256

static CUcontext primary;
static _Atomic int host_calls;

static void CUDA_CB count_call(void *user)
{
    (void)user;
    host_calls++;
}

static void *work(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument, out[COUNT];
    CUmodule module;
    CUfunction add;
    CUstream streams[3];
    CUevent event;
    OK(cuCtxSetCurrent(primary));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&add, module, "add"));
    for (int i = 0; i < 3; i++)
        OK(cuStreamCreate(&streams[i], i == 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        CUdeviceptr a, b;
        uint32_t n = COUNT, one = 1, start = seed + round;
        OK(cuMemAllocAsync(&a, sizeof out, streams[0]));
        OK(cuMemAlloc_v2(&b, sizeof out));
        OK(cuMemsetD32Async(a, start, COUNT, streams[0]));
        for (int hop = 0; hop < 6; hop++) { /* around the streams, ordered by the event alone */
            CUstream from = streams[hop % 3], to = streams[(hop + 1) % 3];
            void *params[] = {&a, &n, &one};
            OK(cuLaunchKernel(add, 2, 1, 1, COUNT / 2, 1, 1, 0, from, params, NULL));
            OK(cuEventRecord(event, from));
            OK(cuStreamWaitEvent(to, event, 0));
        }
        OK(cuLaunchHostFunc(streams[0], count_call, NULL));
        OK(cuMemcpyDtoDAsync_v2(b, a, sizeof out, streams[0]));
        OK(cuMemFreeAsync(a, streams[0]));
        OK(cuMemcpyDtoHAsync_v2(out, b, sizeof out, streams[0]));
        for (uint32_t i = 0; i < COUNT; i++)
            if (out[i] != start + 6) {
                fprintf(stderr, "round %u: %u instead of %u\n", round, out[i], start + 6);
                exit(1);
            }
        if (round % 8 == 0)
            OK(cuCtxSynchronize());
        if (round % 10 == 0)
            OK(cuMemsetD8_v2(b, 0, sizeof out)); /* the default stream, which all blocking ones wait for */
        OK(cuMemFree_v2(b));
    }
    for (int i = 0; i < 3; i++)
        OK(cuStreamDestroy_v2(streams[i]));
    OK(cuEventDestroy_v2(event));
    OK(cuModuleUnload(module));
    CUcontext own;
    CUdeviceptr p;
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuMemAlloc_v2(&p, 100));
    OK(cuMemsetD8Async(p, 1, 100, CU_STREAM_PER_THREAD));
    OK(cuCtxDestroy_v2(own));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t before, after, total;
    primary = use_first_device();
    OK(cuMemGetInfo_v2(&before, &total));
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i * 1000));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&after, &total));
    if (host_calls != THREADS * ROUNDS || before != after) {
        fprintf(stderr, "%d host functions ran, %zu bytes leaked\n", host_calls, before - after);
        return 1;
    }
    return 0;
}
