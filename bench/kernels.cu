/*
 * kernels.cu - the kernels that bench/device measures, as anyone would write them; compiled to PTX.
 */
#include "kernels.h"

extern "C" __global__ void empty()
{
}

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float factor, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = factor * x[i] + y[i];
}

extern "C" __global__ void triad(const double *a, const double *b, double factor, double *c, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        c[i] = a[i] + factor * b[i];
}

extern "C" __global__ void stencil(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1)
        return;
    int at = y * width + x;
    out[at] = 0.5f * in[at] + 0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
}

extern "C" __global__ void matrix_product(const float *a, const float *b, float *c, int n)
{
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int at = 0; at < n; at += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * n + at + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void tree_reduction(const float *in, float *sums)
{
    __shared__ float part[BLOCK];
    unsigned thread = threadIdx.x, first = blockIdx.x * 2 * BLOCK + thread;
    part[thread] = in[first] + in[first + BLOCK];
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
        if (thread < stride)
            part[thread] += part[thread + stride];
        __syncthreads();
    }
    if (thread == 0)
        sums[blockIdx.x] = part[0];
}

extern "C" __global__ void shuffle_reduction(const float *in, float *sums, int n)
{
    __shared__ float part[BLOCK / 32];
    float sum = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK)
        sum += in[i];
    for (int step = 16; step > 0; step >>= 1)
        sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < BLOCK / 32 ? part[threadIdx.x] : 0;
        for (int step = BLOCK / 64; step > 0; step >>= 1)
            sum += __shfl_down_sync(0xffffffff, sum, step);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = sum;
    }
}

extern "C" __global__ void scan(const int *in, int *out)
{
    __shared__ int part[2][BLOCK];
    int thread = threadIdx.x, i = blockIdx.x * BLOCK + thread, from = 0;
    part[0][thread] = in[i];
    __syncthreads();
    for (int step = 1; step < BLOCK; step *= 2) {
        int sum = part[from][thread];
        if (thread >= step)
            sum += part[from][thread - step];
        part[1 - from][thread] = sum;
        from = 1 - from;
        __syncthreads();
    }
    out[i] = part[from][thread];
}

extern "C" __global__ void histogram(const unsigned char *in, unsigned *counts, int n)
{
    __shared__ unsigned part[256];
    part[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK)
        atomicAdd(&part[in[i]], 1);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], part[threadIdx.x]);
}
