/*
 * Several host threads, each with its own stream and memory, work on one device at once. One call of each
 * thread fails on purpose: an error belongs to the thread that made it, and no other thread may see it.
 */
#include "example.h"
#include <thread>
#include <vector>

__global__ void step(unsigned *values, int count, unsigned salt)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        values[i] = example_mix(values[i] + salt);
    }
}

struct outcome {
    int wrong;
    int foreign_errors;
    int missed_errors;
    unsigned checksum;
};

static void work(int thread, int rounds, int count, struct outcome *outcome)
{
    size_t size = count * sizeof(unsigned);
    std::vector<unsigned> values(count), result(count);
    cudaStream_t stream;
    unsigned *device_values;

    for (int i = 0; i < count; i++) {
        values[i] = example_mix(thread * count + i);
    }
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device_values, size));
    CHECK(cudaMemcpyAsync(device_values, values.data(), size, cudaMemcpyHostToDevice, stream));
    for (int round = 0; round < rounds; round++) {
        step<<<(count + 127) / 128, 128, 0, stream>>>(device_values, count, thread * 1000 + round);
        outcome->foreign_errors += cudaPeekAtLastError() != cudaSuccess;
        if (round == thread % rounds) {
            /* No device has this number. */
            outcome->missed_errors += cudaSetDevice(12345) != cudaErrorInvalidDevice;
            outcome->missed_errors += cudaGetLastError() != cudaErrorInvalidDevice;
        }
        if (round % 3 == 2) {
            CHECK(cudaStreamSynchronize(stream));
        }
    }
    CHECK(cudaMemcpyAsync(result.data(), device_values, size, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; i++) {
        unsigned value = values[i];

        for (int round = 0; round < rounds; round++) {
            value = example_mix(value + thread * 1000 + round);
        }
        outcome->wrong += value != result[i];
        outcome->checksum = outcome->checksum * 31 + result[i];
    }
    CHECK(cudaFree(device_values));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    struct example example = example_begin("host_threads", "[THREADS [ROUNDS [ELEMENTS]]]", argc, argv);
    int thread_count = example_number(&example, 0, 1, 256, 6);
    int rounds = example_number(&example, 1, 1, INT_MAX, 20);
    int count = example_number(&example, 2, 1, 1 << 24, 5001);
    std::vector<struct outcome> outcomes(thread_count);
    std::vector<std::thread> threads;
    bool good = true;

    for (int i = 0; i < thread_count; i++) {
        threads.emplace_back(work, i, rounds, count, &outcomes[i]);
    }
    for (int i = 0; i < thread_count; i++) {
        threads[i].join();
        printf("thread %d: %d wrong, %d foreign errors, %d missed errors, checksum %08x\n", i,
               outcomes[i].wrong, outcomes[i].foreign_errors, outcomes[i].missed_errors,
               outcomes[i].checksum);
        good = good && !outcomes[i].wrong && !outcomes[i].foreign_errors && !outcomes[i].missed_errors;
    }
    return example_end(&example, good);
}
