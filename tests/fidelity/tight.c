/*
 * tight.c - a device with little memory, most of which is in use: what fits directly fits remotely, where some is made ready
 * before the program asks for it. Each round first allocates and frees so often that blocks are made ready, then fills the
 * device but for a gap that only what is asked for last fits into, without the blocks.
 */
#include "must.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1ull << 20)

static CUstream stream;

/* A module whose variable takes so much of the device. */
static char *module_with(size_t size, unsigned number)
{
    char *text = malloc(512);
    if (!text)
        exit(2);
    snprintf(text, 512,
             ".version 7.0\n.target sm_70\n.address_size 64\n"
             ".visible .global .align 16 .b8 large_%u[%zu];\n"
             ".visible .entry set_%u()\n{\n .reg .b64 %%a;\n mov.u64 %%a, large_%u;\n"
             " st.global.u32 [%%a], %u;\n ret;\n}\n",
             number, size, number, number, number);
    return text;
}

static void make_ready(size_t size, bool ordered)
{
    for (unsigned i = 0; i < 40; i++) {
        CUdeviceptr memory;
        if (ordered) {
            CHECK(cuMemAllocAsync(&memory, size, stream));
            CHECK(cuMemsetD8Async(memory, 1, size, stream));
            CHECK(cuMemFreeAsync(memory, stream));
        } else {
            CHECK(cuMemAlloc_v2(&memory, size));
            CHECK(cuMemsetD8_v2(memory, 1, size));
            CHECK(cuMemFree_v2(memory));
        }
    }
    CHECK(cuCtxSynchronize());
}

/* Leaves `gap` bytes of what is free. */
static CUdeviceptr fill_but(size_t gap)
{
    CUdeviceptr memory;
    size_t free_bytes, total;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(cuMemAlloc_v2(&memory, free_bytes - gap));
    return memory;
}

static void run_module(size_t size, unsigned number)
{
    char name[32];
    char *image = module_with(size, number);
    unsigned value = 0;
    CUmodule module;
    CUfunction function;
    CUdeviceptr variable;
    size_t bytes;
    make_ready(2 * MIB, false);
    const CUdeviceptr rest = fill_but(size + 2 * MIB);
    const CUresult loaded = cuModuleLoadData(&module, image);
    printf("module %u: load %d", number, (int)loaded);
    if (loaded == CUDA_SUCCESS) {
        snprintf(name, sizeof name, "set_%u", number);
        CHECK(cuModuleGetFunction(&function, module, name));
        CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        snprintf(name, sizeof name, "large_%u", number);
        CHECK(cuModuleGetGlobal_v2(&variable, &bytes, module, name));
        CHECK(cuMemcpyDtoHAsync_v2(&value, variable, sizeof value, stream));
        CHECK(cuStreamSynchronize(stream));
        printf(", %zu bytes, %u", bytes, value);
        CHECK(cuModuleUnload(module));
    }
    printf("\n");
    CHECK(cuMemFree_v2(rest));
    free(image);
}

static void run_memory(size_t size, bool ready_ordered, bool ordered)
{
    CUdeviceptr memory = 0;
    make_ready(2 * MIB, ready_ordered);
    const CUdeviceptr rest = fill_but(size);
    const CUresult result = ordered ? cuMemAllocAsync(&memory, size, stream) : cuMemAlloc_v2(&memory, size);
    printf("%zu bytes%s after %s: %d\n", size, ordered ? " in order" : "",
           ready_ordered ? "ordered" : "others", (int)result);
    if (result == CUDA_SUCCESS)
        CHECK(ordered ? cuMemFreeAsync(memory, stream) : cuMemFree_v2(memory));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree_v2(rest));
}

static void run_array(size_t rows)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 4096, .Height = rows, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    make_ready(2 * MIB, false);
    const CUdeviceptr rest = fill_but(4096 * rows);
    const CUresult result = cuArrayCreate_v2(&array, &shape);
    printf("an array: %d\n", (int)result);
    if (result == CUDA_SUCCESS)
        CHECK(cuArrayDestroy(array));
    CHECK(cuMemFree_v2(rest));
}

int main(void)
{
    CUdevice device;
    use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 3; i++)
        run_module(8 * MIB, 10 + i);
    for (unsigned i = 0; i < 4; i++)
        run_memory(6 * MIB, i & 1, i & 2);
    run_array(2048);
    return 0;
}
