/*
 * A device without work uses no processor time, whatever came before: bursts over many streams, which wake
 * and make many executors at once.
 */
#include "tests/softgpu/driver/kernels.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#define STREAMS 100

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        if (result_ != CUDA_SUCCESS) {                                                                       \
            fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, (int)result_);               \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction small;
    CUstream streams[STREAMS];
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&small, module, "small"));
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < STREAMS; i++)
            CHECK(cuLaunchKernel(small, 8, 1, 1, 32, 1, 1, 0, streams[i], NULL, NULL));
        CHECK(cuCtxSynchronize());
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
