/* node_params.h - what tests put into graphs: kernels of one block, and copies of so many bytes. */
#ifndef TESTS_NODE_PARAMS_H
#define TESTS_NODE_PARAMS_H

#include <cuda.h>
#include <stddef.h>

static inline CUDA_KERNEL_NODE_PARAMS one_block(CUfunction f, unsigned threads, void **args)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = f,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = threads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args};
}

static inline CUDA_MEMCPY3D copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = size,
                           .Height = 1,
                           .Depth = 1};
}

static inline CUDA_MEMCPY3D copy_to_host(void *to, CUdeviceptr from, size_t size)
{
    CUDA_MEMCPY3D copy = copy_on_device(0, from, size);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    return copy;
}

static inline CUDA_MEMCPY3D copy_to_device(CUdeviceptr to, const void *from, size_t size)
{
    CUDA_MEMCPY3D copy = copy_on_device(to, 0, size);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    return copy;
}

#endif
