/*
 * bursts.c - launches many kernels one after another, and waits; again and again: bursts.c N. Prints how long a burst of launches took, in ns,
 * in the mean.
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/ok.h"

#include "common/base/clock.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAUNCHES = 800 };

static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry count(.param .u64 at)\n"
    "{ .reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [at]; atom.global.add.u32 %v, [%a], 1; ret; }\n";

int main(int argc, char **argv)
{
    const unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    CUmodule module;
    CUfunction count;
    CUdeviceptr sum;
    CUstream stream;
    unsigned value = 0;
    uint64_t ns = 0;
    use_first_device();
    OK(cuMemAlloc(&sum, sizeof value));
    OK(cuMemcpyHtoD(sum, &value, sizeof value));
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&count, module, "count"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < n; i++) {
        const uint64_t began = rg_now_ns();
        for (int k = 0; k < LAUNCHES; k++)
            OK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&sum}, NULL));
        ns += rg_now_ns() - began;
        OK(cuStreamSynchronize(stream));
    }
    OK(cuMemcpyDtoH(&value, sum, sizeof value));
    printf("%llu\n", (unsigned long long)(n ? ns / n : 0));
    return value == n * LAUNCHES ? 0 : 1;
}
