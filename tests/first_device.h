/* first_device.h - the device that most tests of the driver API use. */
#ifndef TESTS_FIRST_DEVICE_H
#define TESTS_FIRST_DEVICE_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/** Makes the first device's primary context current; ends the program where that fails. */
static inline CUcontext use_first_device(void)
{
    CUcontext context = NULL;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        return context;
    printf("the first device cannot be used: %d\n", (int)result);
    exit(1);
}

#endif
