/*
 * A device without work uses no processor time, whatever came before: bursts over many streams, which wake
 * and make many executors at once.
 */
#include "tests/ok.h"
#include "tests/softgpu/driver/kernels.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#define STREAMS 100

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main(void)
{
    CUmodule module;
    CUfunction small;
    CUstream streams[STREAMS];
    use_first_device();
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&small, module, "small"));
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < STREAMS; i++)
            OK(cuLaunchKernel(small, 8, 1, 1, 32, 1, 1, 0, streams[i], NULL, NULL));
        OK(cuCtxSynchronize());
    }
    double before = processor_seconds();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    double used = processor_seconds() - before;
    if (used > 0.05) {
        fprintf(stderr, "%.3f s of processor time in an idle second\n", used);
        return 1;
    }
    return 0;
}
