/*
 * turns.c - a program that launches, copies the result to page-locked memory and waits, again and again; now and then it does
 * not wait, and looks into the memory until the result is there, without any call.
 *
 * usage: turns TURNS
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/add_kernel.h"
#include "tests/ok.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_S = 20 };

static CUfunction function;
static CUstream stream;
static CUdeviceptr data;
static volatile unsigned *result;

static void turn(void)
{
    unsigned n = 1;
    void *parameters[] = {&data, &n};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuMemcpyDtoHAsync((void *)result, data, sizeof *result, stream));
}

/* Whether it comes by itself. */
static bool comes(unsigned wanted)
{
    const time_t end = time(NULL) + PATIENCE_S;
    while (*result != wanted)
        if (time(NULL) > end)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    const unsigned turns = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    CUmodule module;
    unsigned done = 0, wrong = 0;
    use_first_device();
    OK(cuModuleLoadData(&module, ADD_KERNEL));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, sizeof *result));
    OK(cuMemsetD32(data, 0, 1));
    OK(cuCtxSynchronize()); /* the stream does not wait for the set, which may come when it likes */
    OK(cuMemHostAlloc((void **)&result, 4096, 0));
    *result = 0;
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < turns; i++) {
            turn();
            OK(cuStreamSynchronize(stream));
            wrong += *result != ++done;
        }
        printf("%u turns, %u wrong\n", turns, wrong);
        for (int i = 0; i < 3; i++) {
            turn();
            const bool there = comes(++done);
            printf("without a call: %s\n", there ? "it is there" : "it does not come");
        }
    }
    OK(cuStreamSynchronize(stream));
    printf("%u in all\n", *result);
    return 0;
}
