/* cuda_program.h - what programs of the driver API among the benchmarks begin with. */
#ifndef BENCH_CUDA_PROGRAM_H
#define BENCH_CUDA_PROGRAM_H

#include "measure.h"

#include <cuda.h>

static inline void check_call(CUresult result, const char *file, int line, const char *call)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fail("%s:%d: %s: %s (%d)", file, line, call, name ? name : "an unknown error", (int)result);
}
/** Ends the program where a call has failed. */
#define CHECK(call) check_call((call), __FILE__, __LINE__, #call)

/** Makes the first device's primary context current, and returns the device. */
static inline CUdevice use_first_device(void)
{
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return device;
}

#endif
