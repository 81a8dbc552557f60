/*
 * Multiplies two matrices through tiles in shared memory. The sizes are no multiples of the tile, so the
 * edges are tried too; the elements are small whole numbers, so that the result is exact in any order of
 * summation.
 */
#include "example.h"
#include <vector>

constexpr int tile = 16;

__global__ void multiply(const float *a, const float *b, float *product, int rows, int inner, int columns)
{
    __shared__ float tile_a[tile][tile];
    __shared__ float tile_b[tile][tile + 1];
    int row = blockIdx.y * tile + threadIdx.y;
    int column = blockIdx.x * tile + threadIdx.x;
    float sum = 0;

    for (int start = 0; start < inner; start += tile) {
        int a_column = start + threadIdx.x;
        int b_row = start + threadIdx.y;

        tile_a[threadIdx.y][threadIdx.x] = row < rows && a_column < inner ? a[row * inner + a_column] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] =
            b_row < inner && column < columns ? b[b_row * columns + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < tile; k++) {
            sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < rows && column < columns) {
        product[row * columns + column] = sum;
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("matrix_mul", "[ROWS [INNER [COLUMNS]]]", argc, argv);
    int rows = example_number(&example, 0, 1, 8192, 203);
    int inner = example_number(&example, 1, 1, 8192, 178);
    int columns = example_number(&example, 2, 1, 8192, 157);
    std::vector<float> a((size_t)rows * inner), b((size_t)inner * columns), product((size_t)rows * columns);

    for (size_t i = 0; i < a.size(); i++) {
        a[i] = (float)(example_mix(i) % 15) - 7.0f;
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = (float)(example_mix(~i) % 15) - 7.0f;
    }

    float *device_a, *device_b, *device_product;
    CHECK(cudaMalloc(&device_a, a.size() * sizeof(float)));
    CHECK(cudaMalloc(&device_b, b.size() * sizeof(float)));
    CHECK(cudaMalloc(&device_product, product.size() * sizeof(float)));
    CHECK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));

    dim3 threads(tile, tile);
    dim3 blocks((columns + tile - 1) / tile, (rows + tile - 1) / tile);
    multiply<<<blocks, threads>>>(device_a, device_b, device_product, rows, inner, columns);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(product.data(), device_product, product.size() * sizeof(float), cudaMemcpyDeviceToHost));

    std::vector<float> expected(product.size());
    for (int row = 0; row < rows; row++) {
        for (int k = 0; k < inner; k++) {
            for (int column = 0; column < columns; column++) {
                expected[(size_t)row * columns + column] +=
                    a[(size_t)row * inner + k] * b[(size_t)k * columns + column];
            }
        }
    }
    int wrong = 0;
    double total = 0;
    for (size_t i = 0; i < product.size(); i++) {
        wrong += product[i] != expected[i];
        total += product[i];
    }
    printf("(%d x %d) times (%d x %d), %d wrong, total %.0f\n", rows, inner, inner, columns, wrong, total);

    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_product));
    return example_end(&example, wrong == 0);
}
