/*
 * synchronous.c - what a program of one thread may take for done after a synchronous copy to the device: all that was before it in its
 * stream, and, in the legacy default stream, in the streams that this one waits for. Asked without waiting, right after the copy.
 *
 *   synchronous all
 */
#include "must.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 256, HEIGHT = 64, LITTLE = WIDTH * HEIGHT, MUCH = 1 << 20, MS = 30 };

static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                            ".visible .entry last(.param .u64 ns)\n"
                            "{\n"
                            "  .reg .u64 %n, %from, %now; .reg .pred %p;\n"
                            "  ld.param.u64 %n, [ns];\n"
                            "  mov.u64 %from, %globaltimer;\n"
                            "again:\n"
                            "  mov.u64 %now, %globaltimer;\n"
                            "  sub.u64 %now, %now, %from;\n"
                            "  setp.lt.u64 %p, %now, %n;\n"
                            "  @%p bra again;\n"
                            "  ret;\n"
                            "}\n";

static CUfunction last;
static CUevent begun, ended;
static CUdeviceptr memory, gate;
static CUstream other; /* which waits for no other */
static CUarray array;
static void *locked, *pageable;

static void work(CUstream stream)
{
    uint64_t ns = (uint64_t)MS * 1000000;
    void *parameters[] = {&ns};
    CHECK(cuEventRecord(begun, stream));
    CHECK(cuLaunchKernel(last, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuEventRecord(ended, stream));
}

/* Work that lasts until the gate is opened. */
static void hold(CUstream stream)
{
    CHECK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuEventRecord(ended, stream));
}

static void copy_line(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, locked, LITTLE));
}
static void copy_more(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, locked, MUCH));
}
static void copy_pageable(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, pageable, MUCH));
}
static void copy_unified(void)
{
    CHECK(cuMemcpy(memory, (CUdeviceptr)(uintptr_t)locked, LITTLE));
}

static void copy_to_array(void)
{
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = locked,
                         .srcPitch = WIDTH,
                         .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                         .dstArray = array,
                         .WidthInBytes = WIDTH,
                         .Height = HEIGHT};
    CHECK(cuMemcpy2D_v2(&box));
}

static const struct {
    const char *name;
    void (*copy)(void);
} copies[] = {{"16 KiB of page-locked memory", copy_line},
              {"1 MiB of page-locked memory", copy_more},
              {"1 MiB of pageable memory", copy_pageable},
              {"16 KiB by addresses alone", copy_unified},
              {"page-locked memory to an array", copy_to_array}};

static void try_stream(const char *name, CUstream stream)
{
    CHECK(cuMemsetD32_v2(gate, 0, 1));
    CHECK(cuCtxSynchronize());
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        float ms = 0;
        work(stream);
        copies[i].copy();
        printf("%s, %s: stream %d", name, copies[i].name, cuStreamQuery(stream));
        work(stream);
        copies[i].copy();
        printf(", event %d", cuEventQuery(ended));
        work(stream);
        copies[i].copy();
        printf(", time %d", cuEventElapsedTime(&ms, begun, ended));
        printf(ms >= MS ? "\n" : ", too short\n");
    }
    work(stream);
    copy_line();
    hold(stream);
    printf("%s, with work behind it: stream %d, event %d\n", name, cuStreamQuery(stream),
           cuEventQuery(ended));
    CHECK(cuStreamWriteValue32_v2(other, gate, 1, 0));
    CHECK(cuStreamSynchronize(stream));
}

/* Work of streams that wait for nobody is nothing to the default stream. */
static void try_beside(const char *name, CUstream stream, CUstream apart)
{
    for (int asked = 0; asked < 2; asked++) {
        CHECK(cuMemsetD32_v2(gate, 0, 1));
        CHECK(cuCtxSynchronize());
        work(stream);
        if (asked)
            (void)cuStreamQuery(stream);
        copy_line();
        hold(apart);
        printf("%s, with work beside it: stream %d", name, cuStreamQuery(stream));
        printf(", that beside it %d\n", cuStreamQuery(apart));
        CHECK(cuStreamWriteValue32_v2(other, gate, 1, 0));
        CHECK(cuStreamSynchronize(apart));
    }
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream, apart;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&last, module, "last"));
    CHECK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&memory, MUCH));
    CHECK(cuMemAlloc_v2(&gate, sizeof(uint32_t)));
    CHECK(cuMemAllocHost_v2(&locked, MUCH));
    pageable = calloc(1, MUCH);
    if (!pageable)
        return 1;
    memset(locked, 0, MUCH);
    CHECK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT8, 1}));
    try_stream("the default stream", NULL);
    try_stream("a stream that it waits for", stream);
    try_stream("the thread's own stream", CU_STREAM_PER_THREAD);
    try_beside("the default stream", NULL, apart);
    try_beside("the thread's own stream", CU_STREAM_PER_THREAD, apart);
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    free(pageable);
    return 0;
}
