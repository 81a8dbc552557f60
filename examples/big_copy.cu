/*
 * Sends a large pattern to the device and back, in one piece, from pageable memory and into pinned memory;
 * the device checks what it got before it sends back every bit inverted.
 */
#include "example.h"
#include <vector>

__host__ __device__ static uint64_t pattern(uint64_t i)
{
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15ull;

    return mixed ^ mixed >> 29;
}

__global__ void check_and_invert(uint64_t *words, uint64_t count, unsigned long long *wrong)
{
    unsigned long long mine = 0;

    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        mine += words[i] != pattern(i);
        words[i] = ~words[i];
    }
    if (mine) {
        atomicAdd(wrong, mine);
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("big_copy", "[MEGABYTES]", argc, argv);
    int megabytes = example_number(&example, 0, 1, 65536, 100);
    uint64_t count = (uint64_t)megabytes * 1000000 / sizeof(uint64_t);
    size_t size = count * sizeof(uint64_t);
    std::vector<uint64_t> source(count);
    uint64_t *pinned, *device, *second;
    unsigned long long *device_wrong, wrong_there, wrong_here = 0;

    for (uint64_t i = 0; i < count; i++) {
        source[i] = pattern(i);
    }
    CHECK(cudaMalloc(&device, size));
    CHECK(cudaMalloc(&second, size));
    CHECK(cudaMalloc(&device_wrong, sizeof *device_wrong));
    CHECK(cudaMallocHost(&pinned, size));
    CHECK(cudaMemset(device_wrong, 0, sizeof *device_wrong));

    CHECK(cudaMemcpy(device, source.data(), size, cudaMemcpyHostToDevice));
    check_and_invert<<<64, 256>>>(device, count, device_wrong);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(second, device, size, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(pinned, second, size, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&wrong_there, device_wrong, sizeof wrong_there, cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < count; i++) {
        wrong_here += pinned[i] != ~pattern(i);
    }
    printf("%d MB there and back, words wrong there %llu, here %llu\n", megabytes, wrong_there, wrong_here);

    CHECK(cudaFree(device));
    CHECK(cudaFree(second));
    CHECK(cudaFree(device_wrong));
    CHECK(cudaFreeHost(pinned));
    return example_end(&example, wrong_there == 0 && wrong_here == 0);
}
