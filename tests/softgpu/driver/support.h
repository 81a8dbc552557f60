/* support.h - for the Criterion tests of the driver: calls that must succeed, and a device to start with. */
#ifndef TESTS_SOFTGPU_DRIVER_SUPPORT_H
#define TESTS_SOFTGPU_DRIVER_SUPPORT_H

#include "tests/softgpu/driver/kernels.h"

#include <criterion/criterion.h>

#define OK(call) EXPECT(CUDA_SUCCESS, call)
#define EXPECT(expected, call)                                                                               \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        const char *got_ = "?", *want_ = "?";                                                                \
        cuGetErrorName(result_, &got_);                                                                      \
        cuGetErrorName(expected, &want_);                                                                    \
        cr_assert(result_ == (expected), "%s: %s instead of %s", #call, got_, want_);                        \
    } while (0)

/* cuInit and the primary context of device 0, current. */
static inline CUcontext start_device(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

static inline CUfunction get_function(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (module == NULL)
        OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* One block of one thread. */
static inline void launch_one(const char *name, CUstream stream, void **params)
{
    OK(cuLaunchKernel(get_function(name), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* Holds `stream` up until release_stream. */
static inline volatile uint32_t *hold_stream(CUstream stream)
{
    void *flag;
    OK(cuMemHostAlloc(&flag, 4, 0));
    *(uint32_t *)flag = 0;
    launch_one("wait_flag", stream, (void *[]){&flag});
    return flag;
}

static inline void release_stream(volatile uint32_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

#endif
