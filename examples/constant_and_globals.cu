/*
 * Variables of the device by name: constant memory, initialised and zeroed globals, a pointer that is
 * initialised with another variable's address, and the copies, addresses and sizes that the host asks for by
 * symbol.
 */
#include "example.h"
#include <vector>

constexpr int degree = 6;

__constant__ int coefficients[degree];
__constant__ double scale = 0.25;
__device__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int *second_prime = &primes[1];
__device__ const char greeting[] = "from the device";
__device__ unsigned calls;
__device__ struct {
    short low;
    double middle;
    unsigned char high[3];
} mixed = {-7, 1.5, {1, 2, 255}};

__global__ void evaluate(const int *x, long long *y, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        long long value = 0;

        for (int k = 0; k < degree; k++) {
            value = value * x[i] + coefficients[k];
        }
        y[i] = value;
        atomicAdd(&calls, 1u);
    }
}

__global__ void read_globals(double *out)
{
    out[0] = scale;
    out[1] = *second_prime;
    out[2] = second_prime[3];
    out[3] = greeting[5];
    out[4] = mixed.low + mixed.middle + mixed.high[2];
    primes[7] = 23;
    *second_prime = 4;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("constant_and_globals", "[ELEMENTS]", argc, argv);
    int count = example_number(&example, 0, 1, 1 << 24, 10007);
    std::vector<int> x(count);
    std::vector<long long> y(count);
    int first[degree] = {1, -2, 3, -4, 5, -6}, second[degree] = {-3, 0, 0, 7, 0, 1};
    int *device_x;
    long long *device_y;
    int wrong = 0;

    for (int i = 0; i < count; i++) {
        x[i] = i % 201 - 100;
    }
    CHECK(cudaMalloc(&device_x, count * sizeof(int)));
    CHECK(cudaMalloc(&device_y, count * sizeof(long long)));
    CHECK(cudaMemcpy(device_x, x.data(), count * sizeof(int), cudaMemcpyHostToDevice));
    for (const int *set : {first, second}) {
        CHECK(cudaMemcpyToSymbol(coefficients, set, sizeof first));
        evaluate<<<(count + 127) / 128, 128>>>(device_x, device_y, count);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(y.data(), device_y, count * sizeof(long long), cudaMemcpyDeviceToHost));
        for (int i = 0; i < count; i++) {
            long long value = 0;

            for (int k = 0; k < degree; k++) {
                value = value * x[i] + set[k];
            }
            wrong += y[i] != value;
        }
    }
    unsigned called = 0;
    CHECK(cudaMemcpyFromSymbol(&called, calls, sizeof called));
    printf("two polynomials at %d points, %d wrong, %u evaluations counted\n", count, wrong, called);

    double out[5], *device_out;
    CHECK(cudaMalloc(&device_out, sizeof out));
    read_globals<<<1, 1>>>(device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(out, device_out, sizeof out, cudaMemcpyDeviceToHost));
    printf("initial values %g %g %g %g %g\n", out[0], out[1], out[2], out[3], out[4]);

    int read[8];
    size_t size = 0;
    void *address = NULL;
    CHECK(cudaMemcpyFromSymbol(read, primes, sizeof read));
    CHECK(cudaGetSymbolSize(&size, primes));
    CHECK(cudaGetSymbolAddress(&address, primes));
    printf("changed by the kernel %d and %d, size %zu\n", read[1], read[7], size);

    /* A part of a symbol, in a stream; the address and the symbol are the same memory. */
    cudaStream_t stream;
    int part[2] = {101, 103}, by_address[8];
    CHECK(cudaStreamCreate(&stream));
    CHECK(
        cudaMemcpyToSymbolAsync(primes, part, sizeof part, 3 * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyFromSymbolAsync(read, primes, sizeof read, 0, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(by_address, address, sizeof by_address, cudaMemcpyDeviceToHost));
    printf("after a copy into the middle:");
    for (int value : read) {
        printf(" %d", value);
    }
    printf("\n");
    const int expected[8] = {2, 4, 5, 101, 103, 13, 17, 23};
    bool good = wrong == 0 && called == 2u * count && out[0] == 0.25 && out[1] == 3 && out[2] == 11 &&
                out[3] == 't' && out[4] == 249.5 && size == sizeof read &&
                memcmp(read, expected, sizeof read) == 0 && memcmp(by_address, expected, sizeof read) == 0;

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device_x));
    CHECK(cudaFree(device_y));
    CHECK(cudaFree(device_out));
    return example_end(&example, good);
}
