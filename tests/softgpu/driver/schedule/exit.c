/*
 * The end of a process with work queued: destructors that run after main call the driver, which must answer;
 * nothing may hang or crash. The queued work never ends.
 */
#include "tests/softgpu/driver/kernels.h"

#include <stdlib.h>
#include <unistd.h>

static CUdeviceptr memory;
static CUstream stream;

static void __attribute__((destructor)) after_main(void)
{
    const CUresult first = cuMemFreeAsync(memory, NULL), second = cuMemFreeAsync(memory, NULL);
    if (first != CUDA_SUCCESS || second != CUDA_ERROR_INVALID_VALUE ||
        cuStreamQuery(stream) != CUDA_ERROR_NOT_READY || cuStreamDestroy_v2(stream) != CUDA_SUCCESS)
        _exit(3);
}

int main(void)
{
    static uint32_t never;
    CUcontext context;
    CUmodule module;
    CUfunction wait_flag;
    void *flag = &never;
    alarm(20); /* hanging is failing */
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc_v2(&memory, 64) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, kernels_ptx) != CUDA_SUCCESS ||
        cuModuleGetFunction(&wait_flag, module, "wait_flag") != CUDA_SUCCESS ||
        cuLaunchKernel(wait_flag, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&flag}, NULL) != CUDA_SUCCESS)
        return 1;
    exit(0); /* the driver must not wait for it */
}
