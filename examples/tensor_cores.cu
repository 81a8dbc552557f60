/*
 * Multiplies matrices of half precision on tensor cores, summing in float: with the warp matrix functions of CUDA C++,
 * and with the instructions themselves (ldmatrix and mma, which say where each element is). The elements are small
 * multiples of a quarter, so that the results are exact in any order of summation.
 */
#include "example.h"
#include <cuda_fp16.h>
#include <mma.h>
#include <vector>

namespace wmma = nvcuda::wmma;

constexpr int tile = 16;
constexpr int warps = 4;

/* product = scale * a b: a warp computes one tile. a is row by row, b column by column. */
__global__ void multiply_wmma(const half *a, const half *b, float *product, int columns, int inner,
                              float scale)
{
    int row = blockIdx.y * tile, column = (blockIdx.x * warps + threadIdx.y) * tile;
    wmma::fragment<wmma::matrix_a, tile, tile, tile, half, wmma::row_major> part_a;
    wmma::fragment<wmma::matrix_b, tile, tile, tile, half, wmma::col_major> part_b;
    wmma::fragment<wmma::accumulator, tile, tile, tile, float> sum;

    if (column >= columns) {
        return;
    }
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < inner; k += tile) {
        wmma::load_matrix_sync(part_a, a + (size_t)row * inner + k, inner);
        wmma::load_matrix_sync(part_b, b + (size_t)column * inner + k, inner);
        wmma::mma_sync(sum, part_a, part_b, sum);
    }
    for (int i = 0; i < sum.num_elements; i++) {
        sum.x[i] *= scale;
    }
    wmma::store_matrix_sync(product + (size_t)row * columns + column, sum, columns, wmma::mem_row_major);
}

/* The same by hand: a block of one warp computes 16 rows and 8 columns, 16 products deep at a time. */
__global__ void multiply_mma(const half *a, const half *b, float *product, int columns, int inner,
                             float scale)
{
    __shared__ __align__(16) half part_a[16][16], part_b[8][16];
    int row = blockIdx.y * 16, column = blockIdx.x * 8, lane = threadIdx.x;
    float sum[4] = {0, 0, 0, 0};

    for (int k = 0; k < inner; k += 16) {
        /* 16 bytes a copy: two of them are a row of 16 */
        *(uint4 *)&part_a[lane / 2][lane % 2 * 8] =
            *(const uint4 *)&a[(size_t)(row + lane / 2) * inner + k + lane % 2 * 8];
        if (lane < 16) {
            *(uint4 *)&part_b[lane / 2][lane % 2 * 8] =
                *(const uint4 *)&b[(size_t)(column + lane / 2) * inner + k + lane % 2 * 8];
        }
        __syncwarp();
        uint32_t fragment_a[4], fragment_b[2];
        uint32_t address_a = (uint32_t)__cvta_generic_to_shared(&part_a[lane % 16][lane / 16 * 8]);
        uint32_t address_b = (uint32_t)__cvta_generic_to_shared(&part_b[lane % 8][lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragment_a[0]), "=r"(fragment_a[1]), "=r"(fragment_a[2]), "=r"(fragment_a[3])
                     : "r"(address_a)
                     : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fragment_b[0]), "=r"(fragment_b[1])
                     : "r"(address_b)
                     : "memory");
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(fragment_a[0]), "r"(fragment_a[1]), "r"(fragment_a[2]), "r"(fragment_a[3]),
                       "r"(fragment_b[0]), "r"(fragment_b[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {
        product[(size_t)(row + lane / 4 + i / 2 * 8) * columns + column + lane % 4 * 2 + i % 2] =
            sum[i] * scale;
    }
}

static int check(const char *what, const std::vector<float> &product, const std::vector<float> &expected)
{
    int wrong = 0;
    double total = 0;

    for (size_t i = 0; i < product.size(); i++) {
        wrong += product[i] != expected[i];
        total += product[i];
    }
    printf("%s: sum %.3f, %d of %zu wrong\n", what, total, wrong, product.size());
    return wrong == 0;
}

int main(int argc, char **argv)
{
    struct example example =
        example_begin("tensor_cores", "[ROWS [INNER [COLUMNS]]] (in tiles of 16)", argc, argv);
    int rows = tile * example_number(&example, 0, 1, 256, 5);
    int inner = tile * example_number(&example, 1, 1, 256, 7);
    int columns = tile * example_number(&example, 2, 1, 256, 6);
    const float scale = 0.5f;
    std::vector<half> a((size_t)rows * inner), b((size_t)inner * columns);
    std::vector<float> product((size_t)rows * columns), expected(product.size());

    for (size_t i = 0; i < a.size(); i++) {
        a[i] = __float2half((float)(example_mix(i) % 33) / 4 - 4.0f);
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = __float2half((float)(example_mix(~i) % 33) / 4 - 4.0f);
    }
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            float sum = 0;

            for (int k = 0; k < inner; k++) {
                sum += __half2float(a[(size_t)row * inner + k]) * __half2float(b[(size_t)column * inner + k]);
            }
            expected[(size_t)row * columns + column] = sum * scale;
        }
    }

    half *device_a, *device_b;
    float *device_product;
    size_t product_size = product.size() * sizeof(float);
    CHECK(cudaMalloc(&device_a, a.size() * sizeof(half)));
    CHECK(cudaMalloc(&device_b, b.size() * sizeof(half)));
    CHECK(cudaMalloc(&device_product, product_size));
    CHECK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(half), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(half), cudaMemcpyHostToDevice));

    int good = 1;
    dim3 blocks((columns / tile + warps - 1) / warps, rows / tile);
    CHECK(cudaMemset(device_product, 0xff, product_size));
    multiply_wmma<<<blocks, dim3(32, warps)>>>(device_a, device_b, device_product, columns, inner, scale);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(product.data(), device_product, product_size, cudaMemcpyDeviceToHost));
    good &= check("wmma", product, expected);

    CHECK(cudaMemset(device_product, 0xff, product_size));
    multiply_mma<<<dim3(columns / 8, rows / 16), 32>>>(device_a, device_b, device_product, columns, inner,
                                                       scale);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(product.data(), device_product, product_size, cudaMemcpyDeviceToHost));
    good &= check("mma", product, expected);

    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_product));
    return example_end(&example, good);
}
