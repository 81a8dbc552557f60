// The mathematical functions of CUDA, one kernel each; cuda.c compares them with the host's.
#include <cmath>

#define ONE(name)                                                                                             \
    extern "C" __global__ void name##_f(float *out, const float *in, const float *, int n)                     \
    {                                                                                                         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                        \
        if (i < n)                                                                                            \
            out[i] = name##f(in[i]);                                                                          \
    }                                                                                                         \
    extern "C" __global__ void name##_d(double *out, const double *in, const double *, int n)                  \
    {                                                                                                         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                        \
        if (i < n)                                                                                            \
            out[i] = name(in[i]);                                                                             \
    }

#define TWO(name)                                                                                             \
    extern "C" __global__ void name##_f(float *out, const float *in, const float *second, int n)               \
    {                                                                                                         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                        \
        if (i < n)                                                                                            \
            out[i] = name##f(in[i], second[i]);                                                               \
    }                                                                                                         \
    extern "C" __global__ void name##_d(double *out, const double *in, const double *second, int n)            \
    {                                                                                                         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                        \
        if (i < n)                                                                                            \
            out[i] = name(in[i], second[i]);                                                                  \
    }

#include "mathematics.inc"
