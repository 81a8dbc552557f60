/*
 * Counts the values of a byte array: a histogram for each block in shared memory, by shared atomics, then one
 * of the whole by global ones. The most frequent value is found by compare-and-swap.
 */
#include "example.h"
#include <vector>

constexpr int bins = 256;

__global__ void count_values(const unsigned char *values, int count, unsigned *histogram)
{
    __shared__ unsigned block_histogram[bins];

    for (int i = threadIdx.x; i < bins; i += blockDim.x) {
        block_histogram[i] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        atomicAdd(&block_histogram[values[i]], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < bins; i += blockDim.x) {
        atomicAdd(&histogram[i], block_histogram[i]);
    }
}

/* The winner is the count in the upper half and the complement of the value below, so that the smallest value
 * with the highest count wins, whatever the order of the threads. */
__global__ void find_most_frequent(const unsigned *histogram, unsigned long long *winner)
{
    unsigned long long mine = (unsigned long long)histogram[threadIdx.x] << 32 | (bins - 1 - threadIdx.x);
    unsigned long long seen = *winner;

    while (mine > seen) {
        unsigned long long before = atomicCAS(winner, seen, mine);

        if (before == seen) {
            break;
        }
        seen = before;
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("histogram", "[BYTES]", argc, argv);
    int count = example_number(&example, 0, 1, 1 << 30, 1 << 20);
    std::vector<unsigned char> values(count);
    std::vector<unsigned> expected(bins), histogram(bins);

    for (int i = 0; i < count; i++) {
        unsigned mixed = example_mix(i);

        /* The sum of two throws favours the middle. */
        values[i] = (unsigned char)((mixed % 128) + (mixed / 128 % 129));
        expected[values[i]]++;
    }

    unsigned char *device_values;
    unsigned *device_histogram;
    unsigned long long *device_winner, winner;
    CHECK(cudaMalloc(&device_values, values.size()));
    CHECK(cudaMalloc(&device_histogram, bins * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_winner, sizeof winner));
    CHECK(cudaMemcpy(device_values, values.data(), values.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_histogram, 0, bins * sizeof(unsigned)));
    CHECK(cudaMemset(device_winner, 0, sizeof winner));

    count_values<<<32, 128>>>(device_values, count, device_histogram);
    CHECK_LAUNCH();
    find_most_frequent<<<1, bins>>>(device_histogram, device_winner);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(histogram.data(), device_histogram, bins * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&winner, device_winner, sizeof winner, cudaMemcpyDeviceToHost));

    int wrong = 0, most_frequent = 0;
    for (int i = 0; i < bins; i++) {
        wrong += histogram[i] != expected[i];
        if (expected[i] > expected[most_frequent]) {
            most_frequent = i;
        }
    }
    int found = bins - 1 - (int)(winner & 0xffffffffu);
    printf("%d bytes, %d wrong bins, most frequent is %d with %u\n", count, wrong, found,
           (unsigned)(winner >> 32));

    CHECK(cudaFree(device_values));
    CHECK(cudaFree(device_histogram));
    CHECK(cudaFree(device_winner));
    return example_end(&example,
                       wrong == 0 && found == most_frequent && winner >> 32 == expected[most_frequent]);
}
