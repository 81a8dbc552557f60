// common.cuh - what the kernels of loops.cu and waits.cu begin with.
#pragma once

#define KERNEL(name) extern "C" __global__ void name(unsigned *out, const unsigned *in, int n)

static __device__ unsigned linear()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static __device__ unsigned size()
{
    return blockDim.x * blockDim.y * blockDim.z;
}
static __device__ unsigned place()
{
    return blockIdx.x * size() + linear();
}
static __device__ unsigned mix(unsigned a, unsigned b)
{
    a = (a ^ b) * 0x9e3779b1u;
    return a ^ a >> 15;
}
