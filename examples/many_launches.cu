/*
 * Launches a small kernel very many times and waits once. Each launch depends on the one before it, so a
 * lost, a doubled or a misplaced one changes the result.
 */
#include "example.h"

__global__ void chain(unsigned *value, unsigned i)
{
    *value = example_mix(*value + i);
}

int main(int argc, char **argv)
{
    struct example example = example_begin("many_launches", "[LAUNCHES]", argc, argv);
    int launches = example_number(&example, 0, 1, 100000000, 10000);
    unsigned *device_value, value = 0, expected = 0;

    CHECK(cudaMalloc(&device_value, sizeof value));
    CHECK(cudaMemset(device_value, 0, sizeof value));
    for (int i = 0; i < launches; i++) {
        chain<<<1, 1>>>(device_value, i);
        expected = example_mix(expected + i);
    }
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&value, device_value, sizeof value, cudaMemcpyDeviceToHost));
    printf("%d launches: %08x, expected %08x\n", launches, value, expected);
    CHECK(cudaFree(device_value));
    return example_end(&example, value == expected);
}
