/*
 * device_waits.c - calls by which NVIDIA's driver waits for all work of the context: what frees memory, arrays and modules. What a program
 * of one thread may take for done when they return: events and streams, functions of the host, what kernels have written to memory that
 * the host has too. Asked without waiting, also where the answer has been "not ready" just before.
 *
 *   device_waits all
 */
#include "must.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 16, WIDTH = 64, MS = 20 };

/* A kernel that lasts and writes a word then. */
static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                            ".visible .global .align 4 .u32 variable;\n"
                            ".visible .entry last(.param .u64 ns, .param .u64 word)\n"
                            "{\n"
                            "  .reg .u64 %n, %from, %now, %to; .reg .pred %p; .reg .u32 %one;\n"
                            "  ld.param.u64 %n, [ns];\n"
                            "  ld.param.u64 %to, [word];\n"
                            "  mov.u64 %from, %globaltimer;\n"
                            "again:\n"
                            "  mov.u64 %now, %globaltimer;\n"
                            "  sub.u64 %now, %now, %from;\n"
                            "  setp.lt.u64 %p, %now, %n;\n"
                            "  @%p bra again;\n"
                            "  mov.u32 %one, 1;\n"
                            "  st.global.u32 [%to], %one;\n"
                            "  ret;\n"
                            "}\n";

static CUfunction last;
static CUevent begun, ended;
static CUdeviceptr elsewhere; /* a word of the device's alone */
static CUdeviceptr gate, room;
static unsigned held;
static CUstream keeper;
static volatile unsigned *shared_word;
static CUdeviceptr shared_address;
static atomic_uint called;

static union {
    CUdeviceptr memory;
    void *host;
    CUarray array;
    CUmipmappedArray mipmap;
    CUmodule module;
    CUlibrary loaded;
} victim;

static const CUDA_ARRAY3D_DESCRIPTOR texels = {
    .Width = WIDTH, .Height = WIDTH, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};

static void make_memory(void)
{
    CHECK(cuMemAlloc_v2(&victim.memory, SIZE));
}
static void make_managed(void)
{
    CHECK(cuMemAllocManaged(&victim.memory, SIZE, CU_MEM_ATTACH_GLOBAL));
}
static void free_memory(void)
{
    CHECK(cuMemFree_v2(victim.memory));
}
static void make_locked(void)
{
    CHECK(cuMemAllocHost_v2(&victim.host, SIZE));
}
static void free_locked(void)
{
    CHECK(cuMemFreeHost(victim.host));
}
static void make_registered(void)
{
    victim.host = aligned_alloc(4096, SIZE);
    CHECK(victim.host ? cuMemHostRegister_v2(victim.host, SIZE, 0) : CUDA_ERROR_OUT_OF_MEMORY);
}
static void unregister(void)
{
    CHECK(cuMemHostUnregister(victim.host));
}
static void end_registered(void)
{
    free(victim.host);
}
static void make_array(void)
{
    CHECK(cuArray3DCreate_v2(&victim.array, &texels));
}
static void destroy_array(void)
{
    CHECK(cuArrayDestroy(victim.array));
}
static void make_mipmap(void)
{
    CHECK(cuMipmappedArrayCreate(&victim.mipmap, &texels, 3));
}
static void destroy_mipmap(void)
{
    CHECK(cuMipmappedArrayDestroy(victim.mipmap));
}
static void load_module(void)
{
    CHECK(cuModuleLoadData(&victim.module, image));
}
static void unload_module(void)
{
    CHECK(cuModuleUnload(victim.module));
}
static void load_library(void)
{
    CUmodule module;
    CHECK(cuLibraryLoadData(&victim.loaded, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetModule(&module, victim.loaded));
}
static void unload_library(void)
{
    CHECK(cuLibraryUnload(victim.loaded));
}
static void nothing(void)
{
}
static void copy_locked(void)
{
    CHECK(cuMemcpyHtoD_v2(room, victim.host, SIZE));
}
static void copy_pageable(void)
{
    static const char zeros[2 * SIZE];
    CHECK(cuMemcpyHtoD_v2(room, zeros, sizeof zeros));
}

static const struct trial {
    const char *name;
    void (*make)(void), (*call)(void), (*end)(void);
} trials[] = {{"cuMemFree", make_memory, free_memory, nothing},
              {"cuMemFree of managed memory", make_managed, free_memory, nothing},
              {"cuMemFreeHost", make_locked, free_locked, nothing},
              {"cuMemHostUnregister", make_registered, unregister, end_registered},
              {"cuArrayDestroy", make_array, destroy_array, nothing},
              {"cuMipmappedArrayDestroy", make_mipmap, destroy_mipmap, nothing},
              {"cuModuleUnload", load_module, unload_module, nothing},
              {"cuLibraryUnload", load_library, unload_library, nothing}};

/* These wait for their stream alone. */
static const struct trial copies[] = {
    {"cuMemcpyHtoD of page-locked memory", make_locked, copy_locked, free_locked},
    {"cuMemcpyHtoD of pageable memory", nothing, copy_pageable, nothing}};

static void work(CUstream stream, CUdeviceptr word)
{
    uint64_t ns = (uint64_t)MS * 1000000;
    void *parameters[] = {&ns, &word};
    CHECK(cuEventRecord(begun, stream));
    CHECK(cuLaunchKernel(last, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuEventRecord(ended, stream));
}

/* The stream's work from now on waits until it is let go. */
static void hold(CUstream stream)
{
    CHECK(cuStreamWaitValue32_v2(stream, gate, ++held, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuEventRecord(ended, stream));
}

static void let_go(void)
{
    CHECK(cuStreamWriteValue32_v2(keeper, gate, held, 0));
}

static void CUDA_CB count(void *unused)
{
    (void)unused;
    atomic_fetch_add(&called, 1);
}

static CUresult ask_stream(CUstream stream)
{
    return cuStreamQuery(stream);
}

static CUresult ask_event(CUstream stream)
{
    (void)stream;
    return cuEventQuery(ended);
}

static CUresult ask_time(CUstream stream)
{
    float ms = 0;
    const CUresult result = cuEventElapsedTime(&ms, begun, ended);
    (void)stream;
    return result == CUDA_SUCCESS && ms < MS ? CUDA_ERROR_UNKNOWN : result;
}

/* The answer behind the call, with or without one before it, which is "not ready". */
static int answer(const struct trial *trial, CUstream stream, CUresult (*ask)(CUstream stream), bool before)
{
    trial->make();
    work(stream, elsewhere);
    if (before)
        (void)ask(stream);
    trial->call();
    const CUresult result = ask(stream);
    trial->end();
    return (int)result;
}

static void try_stream(const struct trial *trial, const char *name, CUstream stream)
{
    printf("%s, %s: stream %d", trial->name, name, answer(trial, stream, ask_stream, false));
    printf(", again %d", answer(trial, stream, ask_stream, true));
    printf(", event %d", answer(trial, stream, ask_event, false));
    printf(", again %d", answer(trial, stream, ask_event, true));
    printf(", time %d", answer(trial, stream, ask_time, false));
    trial->make();
    work(stream, elsewhere);
    trial->call();
    hold(stream);
    const bool waits =
        cuEventQuery(ended) == CUDA_ERROR_NOT_READY && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    printf(", with work behind it %s\n", waits ? "not ready" : "done");
    trial->end();
    let_go();
    CHECK(cuStreamSynchronize(stream));
}

/* What the host sees by itself. */
static void try_host(const struct trial *trial, CUstream stream)
{
    trial->make();
    atomic_store(&called, 0);
    work(stream, elsewhere);
    CHECK(cuLaunchHostFunc(stream, count, NULL));
    trial->call();
    printf("%s: the function of the host was called %u times", trial->name, atomic_load(&called));
    trial->end();
    CHECK(cuStreamSynchronize(stream));
    trial->make();
    *shared_word = 0;
    work(stream, shared_address);
    trial->call();
    printf(", the kernel has written %u\n", *shared_word);
    trial->end();
    CHECK(cuStreamSynchronize(stream));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream apart;
    void *host;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&last, module, "last"));
    CHECK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
    CHECK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&keeper, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&elsewhere, 64));
    CHECK(cuMemAlloc_v2(&gate, 64));
    CHECK(cuMemAlloc_v2(&room, 2 * SIZE));
    CHECK(cuMemsetD32_v2(gate, 0, 1));
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        try_stream(&trials[i], "the default stream", NULL);
        try_stream(&trials[i], "a stream that does not wait", apart);
        try_stream(&trials[i], "the thread's own stream", CU_STREAM_PER_THREAD);
    }
    CHECK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&shared_address, host, 0));
    shared_word = host;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        try_host(&trials[i], apart);
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        try_host(&copies[i], NULL);
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    return 0;
}
