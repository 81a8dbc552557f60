// Tensor cores as CUDA programmers use them; tensor_cores.c knows the results.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

// d = a b + c for one tile, a row by row, b column by column, c and d row by row; the tile goes through shared memory,
// and elements of fragments are worked on one by one.
template <int M, int N, int K, typename Factor, typename Stored, typename Sum>
__device__ void tile(Sum *d, const Stored *a, const Stored *b, const Sum *c)
{
    __shared__ Sum result[M * N];
    wmma::fragment<wmma::matrix_a, M, N, K, Factor, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, Factor, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> fc, product;
    wmma::load_matrix_sync(fa, a, K);
    wmma::load_matrix_sync(fb, b, K);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    wmma::fill_fragment(product, Sum(0));
    wmma::mma_sync(product, fa, fb, product);
    for (int i = 0; i < product.num_elements; i++)
        product.x[i] = product.x[i] + fc.x[i];
    wmma::store_matrix_sync(result, product, N, wmma::mem_row_major);
    for (int i = threadIdx.x; i < M * N; i += 32)
        d[i] = result[i];
}

#define TILE(name, m, n, k, factor, stored, sum)                                                             \
    extern "C" __global__ void name(sum *d, const stored *a, const stored *b, const sum *c)                  \
    {                                                                                                        \
        tile<m, n, k, factor, stored, sum>(d, a, b, c);                                                      \
    }
TILE(half_16_16, 16, 16, 16, half, half, float)
TILE(half_32_8, 32, 8, 16, half, half, float)
TILE(half_8_32, 8, 32, 16, half, half, float)
TILE(bfloat_16_16, 16, 16, 16, __nv_bfloat16, __nv_bfloat16, float)
TILE(bfloat_32_8, 32, 8, 16, __nv_bfloat16, __nv_bfloat16, float)
TILE(bfloat_8_32, 8, 32, 16, __nv_bfloat16, __nv_bfloat16, float)
TILE(tf32_16_16, 16, 16, 8, wmma::precision::tf32, float, float)
TILE(signed_16_16, 16, 16, 16, signed char, signed char, int)
TILE(unsigned_32_8, 32, 8, 16, unsigned char, unsigned char, int)
TILE(signed_8_32, 8, 32, 16, signed char, signed char, int)
TILE(double_8_8, 8, 8, 4, double, double, double)

// Sums in halves.
extern "C" __global__ void half_sum(half *d, const half *a, const half *b, const half *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> sum;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(d, sum, 16, wmma::mem_row_major);
}

// 16 by 8 by 16 with ldmatrix and mma; lanes write shared memory and read that of others.
extern "C" __global__ void by_hand(float *d, const half *a, const half *b, const float *c)
{
    __shared__ __align__(16) half sa[16][16], sb[8][16];
    int lane = threadIdx.x;
    for (int i = lane; i < 16 * 16; i += 32)
        sa[i / 16][i % 16] = a[i];
    for (int i = lane; i < 8 * 16; i += 32)
        sb[i / 16][i % 16] = b[i];
    __syncwarp();
    unsigned ra[4], rb[2], pa = (unsigned)__cvta_generic_to_shared(&sa[lane % 16][lane / 16 * 8]),
                           pb = (unsigned)__cvta_generic_to_shared(&sb[lane % 8][lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
                 : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(rb[0]), "=r"(rb[1])
                 : "r"(pb));
    float r[4];
    for (int i = 0; i < 4; i++)
        r[i] = c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
        : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = r[i];
}

// Larger products by the warps of a block: tiles in shared memory, a loop along k, converted elements, sums that several
// fragments hold, an epilogue; nothing here is rounded in a way that depends on the form of the code.
template <int M, int N, int K, typename Factor, typename Stored, typename Sum>
__device__ void product(Sum *d, const Stored *a, const Stored *b, const Sum *c, int depth)
{
    __shared__ __align__(32) Stored sa[2 * M][2 * K], sb[4 * N][2 * K];
    int warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sums[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::load_matrix_sync(sums[i][j], c + (i * M * 4 + (2 * warp + j)) * N, 4 * N, wmma::mem_row_major);
    for (int at = 0; at < depth; at += 2 * K) {
        for (int i = threadIdx.x; i < 2 * M * 2 * K; i += blockDim.x)
            sa[i / (2 * K)][i % (2 * K)] = a[i / (2 * K) * depth + at + i % (2 * K)];
        for (int i = threadIdx.x; i < 4 * N * 2 * K; i += blockDim.x)
            sb[i / (2 * K)][i % (2 * K)] = b[i / (2 * K) * depth + at + i % (2 * K)];
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 2; step++) {
            wmma::fragment<wmma::matrix_a, M, N, K, Factor, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, M, N, K, Factor, wmma::col_major> fb[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(fa[i], &sa[i * M][step * K], 2 * K);
                for (int e = 0; e < fa[i].num_elements; e++)
                    fa[i].x[e] = fa[i].x[e] + fa[i].x[e];
            }
            for (int j = 0; j < 2; j++) {
                wmma::load_matrix_sync(fb[j], &sb[(2 * warp + j) * N][step * K], 2 * K);
                for (int i = 0; i < 2; i++)
                    wmma::mma_sync(sums[i][j], fa[i], fb[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            for (int e = 0; e < sums[i][j].num_elements; e++)
                sums[i][j].x[e] = sums[i][j].x[e] - Sum(threadIdx.x % 2);
            wmma::store_matrix_sync(d + (2 * warp + j) * N * 2 * M + i * M, sums[i][j], 2 * M, wmma::mem_col_major);
        }
}

#define PRODUCT(name, m, n, k, factor, stored, sum)                                                          \
    extern "C" __global__ void name(sum *d, const stored *a, const stored *b, const sum *c, int depth)       \
    {                                                                                                        \
        product<m, n, k, factor, stored, sum>(d, a, b, c, depth);                                            \
    }
PRODUCT(half_product, 16, 16, 16, half, half, float)
PRODUCT(half_half_product, 32, 8, 16, half, half, half)
PRODUCT(bfloat_product, 8, 32, 16, __nv_bfloat16, __nv_bfloat16, float)
PRODUCT(tf32_product, 16, 16, 8, wmma::precision::tf32, float, float)
PRODUCT(signed_product, 16, 16, 16, signed char, signed char, int)
PRODUCT(double_product, 8, 8, 4, double, double, double)
