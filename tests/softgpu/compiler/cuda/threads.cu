// Kernels whose threads work together, as CUDA programmers write them; cuda.c knows the results.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda/barrier>

namespace cg = cooperative_groups;

extern "C" __global__ void matrix_multiply(float *c, const float *a, const float *b, int n)
{
    __shared__ float tile_a[16][16], tile_b[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        tile_a[y][x] = a[(blockIdx.y * 16 + y) * n + k + x];
        tile_b[y][x] = b[(k + y) * n + blockIdx.x * 16 + x];
        __syncthreads();
        for (int i = 0; i < 16; i++)
            sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    c[(blockIdx.y * 16 + y) * n + blockIdx.x * 16 + x] = sum;
}

extern "C" __global__ void reduce(int *out, const int *in, int n)
{
    __shared__ int partial[32];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sum = cg::reduce(warp, sum, cg::plus<int>());
    if (warp.thread_rank() == 0)
        partial[warp.meta_group_rank()] = sum;
    block.sync();
    if (block.thread_rank() == 0) {
        int total = 0;
        for (unsigned i = 0; i < warp.meta_group_size(); i++)
            total += partial[i];
        atomicAdd(out, total);
    }
}

extern "C" __global__ void scan_warp(int *out, const int *in)
{
    int value = in[threadIdx.x];
    for (int delta = 1; delta < 32; delta *= 2) {
        int other = __shfl_up_sync(~0u, value, delta);
        if ((threadIdx.x & 31) >= delta)
            value += other;
    }
    out[threadIdx.x] = value + 1000 * __popc(__ballot_sync(~0u, in[threadIdx.x] & 1));
}

// a lock that every thread takes once
extern "C" __global__ void lock_counter(int *lock, int *counter)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)counter = *(volatile int *)counter + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// double addition as it was done before there was an instruction
extern "C" __global__ void add_by_exchange(unsigned long long *sum, double value)
{
    unsigned long long old = *sum, assumed;
    do {
        assumed = old;
        old = atomicCAS(sum, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
}

struct shape {
    int size;
    __device__ virtual int area() const { return size; }
};
struct square : shape {
    __device__ int area() const override { return size * size; }
};

extern "C" __global__ void virtual_call(int *out)
{
    shape *s = threadIdx.x % 2 ? new square : new shape;
    s->size = threadIdx.x;
    out[threadIdx.x] = s->area();
    delete s;
}

__device__ int deep(int n)
{
    return n == 0 ? 0 : 1 + deep(n - 1) * (n > 0);
}

extern "C" __global__ void recursion(int *out, int n)
{
    out[threadIdx.x] = deep(n + threadIdx.x);
}

// arrive, do other work, wait: twice, so that the barrier changes its phase and back
extern "C" __global__ void split_barrier(int *out)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int values[128];
    if (threadIdx.x == 0)
        init(&barrier, blockDim.x);
    __syncthreads();
    int sum = 0;
    for (int round = 0; round < 3; round++) {
        values[threadIdx.x] = threadIdx.x * (round + 1);
        auto token = barrier.arrive();
        sum += 1000;
        barrier.wait(cuda::std::move(token));
        sum += values[(threadIdx.x + 1) % blockDim.x];
        barrier.arrive_and_wait();
    }
    out[threadIdx.x] = sum;
}

// tiles of more than a warp work together through memory that the device keeps for this
extern "C" __global__ void large_tiles(int *out)
{
#if __CUDA_ARCH__ >= 800
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
#else
    __shared__ cg::block_tile_memory<128> memory;
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
#endif
    int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    tile.sync();
    out[threadIdx.x] = sum + tile.shfl((int)threadIdx.x, 40);
}

// quotients and remainders of 128 bits, without sign and with
extern "C" __global__ void divide_wide(unsigned __int128 *out, const unsigned __int128 *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned __int128 a = in[2 * i], b = in[2 * i + 1];
    out[4 * i] = a / b;
    out[4 * i + 1] = a % b;
    out[4 * i + 2] = (unsigned __int128)((__int128)a / (__int128)b);
    out[4 * i + 3] = (unsigned __int128)((__int128)a % (__int128)b);
}
