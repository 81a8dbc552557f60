/*
 * Adds two vectors: the smallest complete program of the CUDA runtime API.
 */
#include "example.h"
#include <vector>

__global__ void add(const float *a, const float *b, float *sum, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        sum[i] = a[i] + b[i];
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("vector_add", "[ELEMENTS]", argc, argv);
    int count = example_number(&example, 0, 1, 1 << 28, 1000003);
    size_t size = (size_t)count * sizeof(float);
    std::vector<float> a(count), b(count), sum(count);

    for (int i = 0; i < count; i++) {
        a[i] = (float)(example_mix(i) >> 8) / 1024.0f;
        b[i] = (float)(example_mix(~i) >> 8) / 4096.0f;
    }

    float *device_a, *device_b, *device_sum;
    CHECK(cudaMalloc(&device_a, size));
    CHECK(cudaMalloc(&device_b, size));
    CHECK(cudaMalloc(&device_sum, size));
    CHECK(cudaMemcpy(device_a, a.data(), size, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), size, cudaMemcpyHostToDevice));

    int threads = 256;
    int blocks = (count + threads - 1) / threads;
    add<<<blocks, threads>>>(device_a, device_b, device_sum, count);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(sum.data(), device_sum, size, cudaMemcpyDeviceToHost));

    int wrong = 0;
    double total = 0;
    for (int i = 0; i < count; i++) {
        wrong += sum[i] != a[i] + b[i];
        total += sum[i];
    }
    printf("%d elements in %d blocks, %d wrong, total %.6f\n", count, blocks, wrong, total);

    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_sum));
    return example_end(&example, wrong == 0);
}
