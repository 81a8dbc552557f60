/*
 * Reduces an array to its sum, smallest, largest and number of even elements: shuffles within a warp, shared
 * memory between warps, atomics between blocks, votes for the count. A sum of floats in two passes has a
 * fixed order, so it gives the same bits every time.
 */
#include "example.h"
#include <algorithm>
#include <cmath>
#include <vector>

constexpr int threads_per_block = 256;
constexpr unsigned whole_warp = 0xffffffffu;

struct totals {
    unsigned long long sum;
    unsigned smallest;
    unsigned largest;
    unsigned even;
};

__global__ void reduce(const unsigned *values, int count, struct totals *totals)
{
    __shared__ unsigned long long warp_sums[threads_per_block / 32];
    unsigned long long sum = 0;
    unsigned smallest = 0xffffffffu, largest = 0, even = 0;

    /* Whole warps stay in the loop together: the vote below names every lane. */
    int stride = gridDim.x * blockDim.x;
    for (int base = blockIdx.x * blockDim.x; base < count; base += stride) {
        int i = base + threadIdx.x;
        unsigned value = i < count ? values[i] : 0;

        if (i < count) {
            sum += value;
            smallest = min(smallest, value);
            largest = max(largest, value);
        }
        even += __popc(__ballot_sync(whole_warp, i < count && value % 2 == 0));
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(whole_warp, sum, offset);
        smallest = min(smallest, __shfl_xor_sync(whole_warp, smallest, offset));
        largest = max(largest, __shfl_xor_sync(whole_warp, largest, offset));
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) {
        warp_sums[warp] = sum;
        atomicMin(&totals->smallest, smallest);
        atomicMax(&totals->largest, largest);
        atomicAdd(&totals->even, even);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < threads_per_block / 32; i++) {
            sum += warp_sums[i];
        }
        atomicAdd(&totals->sum, sum);
    }
}

__global__ void sum_floats(const unsigned *values, const float *partial, int count, float *sums)
{
    __shared__ float shared[threads_per_block];
    float sum = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        sum += values ? (float)(values[i] >> 8) / 65536.0f : partial[i];
    }
    shared[threadIdx.x] = sum;
    for (int half = threads_per_block / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = shared[0];
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("reduction", "[ELEMENTS [BLOCKS]]", argc, argv);
    int count = example_number(&example, 0, 1, 1 << 28, 500009);
    int blocks = example_number(&example, 1, 1, 1024, 24);
    std::vector<unsigned> values(count);
    struct totals expected = {0, 0xffffffffu, 0, 0};
    double expected_float = 0;

    for (int i = 0; i < count; i++) {
        values[i] = example_mix(i);
        expected.sum += values[i];
        expected.smallest = std::min(expected.smallest, values[i]);
        expected.largest = std::max(expected.largest, values[i]);
        expected.even += values[i] % 2 == 0;
        expected_float += (values[i] >> 8) / 65536.0;
    }

    unsigned *device_values;
    struct totals *device_totals, totals = {0, 0xffffffffu, 0, 0};
    float *device_sums, sum;
    CHECK(cudaMalloc(&device_values, values.size() * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_totals, sizeof(struct totals)));
    CHECK(cudaMalloc(&device_sums, (blocks + 1) * sizeof(float)));
    CHECK(cudaMemcpy(device_values, values.data(), values.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_totals, &totals, sizeof totals, cudaMemcpyHostToDevice));

    reduce<<<blocks, threads_per_block>>>(device_values, count, device_totals);
    CHECK_LAUNCH();
    sum_floats<<<blocks, threads_per_block>>>(device_values, NULL, count, device_sums);
    CHECK_LAUNCH();
    sum_floats<<<1, threads_per_block>>>(NULL, device_sums, blocks, device_sums + blocks);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&totals, device_totals, sizeof totals, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&sum, device_sums + blocks, sizeof sum, cudaMemcpyDeviceToHost));

    double off = std::fabs(sum - expected_float) / expected_float;
    printf("sum %llu, smallest %u, largest %u, %u even\n", totals.sum, totals.smallest, totals.largest,
           totals.even);
    printf("sum of floats %.9g, expected %.9g\n", sum, expected_float);

    CHECK(cudaFree(device_values));
    CHECK(cudaFree(device_totals));
    CHECK(cudaFree(device_sums));
    return example_end(&example, totals.sum == expected.sum && totals.smallest == expected.smallest &&
                                     totals.largest == expected.largest && totals.even == expected.even &&
                                     off < 1e-5);
}
