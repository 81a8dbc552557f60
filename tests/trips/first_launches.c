/*
 * first_launches.c - launches each of some kernels for the first time, in a program that has another thread: the driver loads
 * each then, which may take long.
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/ok.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KERNELS = 8 };

#define KERNEL(n)                                                                                            \
    ".visible .entry add" #n "(.param .u64 at)\n"                                                            \
    "{ .reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [at]; atom.global.add.u32 %v, [%a], " #n "; ret; }\n"

static const char text[] = ".version 6.0\n.target sm_50\n.address_size 64\n" KERNEL(1) KERNEL(2) KERNEL(3)
    KERNEL(4) KERNEL(5) KERNEL(6) KERNEL(7) KERNEL(8);

static void *sleep_long(void *data)
{
    for (;;)
        pause();
    return data;
}

int main(void)
{
    pthread_t other;
    CUmodule module;
    CUdeviceptr sum;
    unsigned value = 0;
    use_first_device();
    OK(cuMemAlloc(&sum, sizeof value));
    OK(cuMemcpyHtoD(sum, &value, sizeof value));
    OK(cuModuleLoadData(&module, text));
    if (pthread_create(&other, NULL, sleep_long, NULL) != 0)
        return 1;
    for (int i = 1; i <= KERNELS; i++) {
        CUfunction add;
        char name[8];
        snprintf(name, sizeof name, "add%d", i);
        OK(cuModuleGetFunction(&add, module, name));
        for (int k = 0; k < 3; k++)
            OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&sum}, NULL));
    }
    OK(cuMemcpyDtoH(&value, sum, sizeof value));
    printf("%u\n", value);
    return value == 3 * KERNELS * (KERNELS + 1) / 2 ? 0 : 1;
}
