/*
 * first_calls.c - a program that allocates this and that when it starts, and says what it finds there: the same
 * whether the memory was prefetched or not.
 *
 * usage: first_calls    with FIRST_CALLS=less in its environment it wants less memory of each kind
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/add_kernel.h"
#include "tests/ok.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIFFERENT = 10, ALIKE = 3, PITCHED = 2, MOST = 20 };

static const char *const ptx = ADD_KERNEL;
static CUdeviceptr memory[MOST];
static size_t sizes[MOST];
static int n;

static void linear(size_t size)
{
    OK(cuMemAlloc(&memory[n], size));
    sizes[n++] = size;
}

static void pitched(void)
{
    size_t pitch;
    OK(cuMemAllocPitch(&memory[n], &pitch, 1000, 50, 4));
    printf("pitch %zu\n", pitch);
    sizes[n++] = pitch * 50;
}

/* Each block is where its own bytes are, and has the size that was asked for. */
static void look(void)
{
    unsigned char *back = malloc(1 << 20);
    if (!back)
        exit(1);
    for (int i = 0; i < n; i++)
        OK(cuMemsetD8(memory[i], (unsigned char)(i + 1), sizes[i]));
    for (int i = 0; i < n; i++) {
        CUdeviceptr base;
        size_t size, wrong = 0;
        OK(cuMemGetAddressRange(&base, &size, memory[i] + sizes[i] / 2));
        OK(cuMemcpyDtoH(back, memory[i], sizes[i]));
        for (size_t at = 0; at < sizes[i]; at++)
            wrong += back[at] != i + 1;
        printf("block %d: %zu bytes, %zu of them wrong, %s\n", i, size, wrong,
               base == memory[i] ? "whole" : "not whole");
    }
    free(back);
}

/* A kernel of a library by the library's module, as by the library. */
static void code(CUdeviceptr numbers)
{
    CUlibrary library;
    CUmodule module;
    CUfunction function, same;
    CUkernel kernel;
    unsigned one = 1, value = 0;
    void *parameters[] = {&numbers, &one};
    int registers, same_registers;
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetModule(&module, library));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuLibraryGetKernel(&kernel, library, "add"));
    OK(cuKernelGetFunction(&same, kernel));
    OK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    OK(cuFuncGetAttribute(&same_registers, CU_FUNC_ATTRIBUTE_NUM_REGS, same));
    OK(cuMemsetD8(numbers, 0, 4));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    OK(cuLaunchKernel(same, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    OK(cuMemcpyDtoH(&value, numbers, 4));
    printf("a kernel: %u, %s registers\n", value, registers == same_registers ? "the same" : "other");
    if (cuModuleGetFunction(&same, module, "none such") != CUDA_ERROR_NOT_FOUND)
        exit(1);
    OK(cuLibraryUnload(library));
}

int main(void)
{
    const char *how = getenv("FIRST_CALLS");
    const bool less = how && strcmp(how, "less") == 0;
    CUdevice device;
    use_first_device();
    OK(cuDeviceGet(&device, 0));
    for (int i = 0; i < (less ? DIFFERENT / 2 : DIFFERENT); i++)
        linear(1000 + 4096 * (size_t)i);
    for (int i = 0; i < (less ? 1 : ALIKE); i++)
        linear(123456);
    for (int i = 0; i < (less ? 1 : PITCHED); i++)
        pitched();
    look();
    code(memory[0]);
    size_t used, now, total;
    OK(cuMemGetInfo(&used, &total));
    while (n)
        OK(cuMemFree(memory[--n]));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&now, &total));
    printf("%zu bytes were in use\n", now - used);
    for (int i = 0; i < 20; i++) { /* one at a time */
        linear(654321);
        OK(cuMemFree(memory[--n]));
    }
    OK(cuDevicePrimaryCtxRelease(device));
    return 0;
}
