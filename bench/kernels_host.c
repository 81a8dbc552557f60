/*
 * kernels_host.c - see kernels.h. Compiled with -O3 -march=native -fopenmp: what a C programmer gets from the same cores
 * for the same algorithm, block by block, where the device's blocks are what is spread over the cores.
 */
#include "kernels.h"

#include <string.h>

void host_vector_add(const float *restrict a, const float *restrict b, float *restrict c, int n)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        c[i] = a[i] + b[i];
}

void host_saxpy(float factor, const float *restrict x, float *restrict y, int n)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        y[i] = factor * x[i] + y[i];
}

void host_triad(const double *restrict a, const double *restrict b, double factor, double *restrict c, int n)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        c[i] = a[i] + factor * b[i];
}

void host_stencil(const float *restrict in, float *restrict out, int width, int height)
{
#pragma omp parallel for schedule(static)
    for (int y = 1; y < height - 1; y++)
        for (int x = 1; x < width - 1; x++) {
            int at = y * width + x;
            out[at] = 0.5f * in[at] + 0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
        }
}

static void multiply_tile(const float *restrict a, const float *restrict b, float *restrict c, int n, int row,
                          int column)
{
    float tile_a[TILE][TILE], tile_b[TILE][TILE], sum[TILE][TILE];
    memset(sum, 0, sizeof(sum));
    for (int at = 0; at < n; at += TILE) {
        for (int y = 0; y < TILE; y++)
            for (int x = 0; x < TILE; x++) {
                tile_a[y][x] = a[(row + y) * n + at + x];
                tile_b[y][x] = b[(at + y) * n + column + x];
            }
        for (int y = 0; y < TILE; y++)
            for (int k = 0; k < TILE; k++)
                for (int x = 0; x < TILE; x++)
                    sum[y][x] += tile_a[y][k] * tile_b[k][x];
    }
    for (int y = 0; y < TILE; y++)
        for (int x = 0; x < TILE; x++)
            c[(row + y) * n + column + x] = sum[y][x];
}

void host_matrix_product(const float *a, const float *b, float *c, int n)
{
#pragma omp parallel for collapse(2) schedule(static)
    for (int row = 0; row < n; row += TILE)
        for (int column = 0; column < n; column += TILE)
            multiply_tile(a, b, c, n, row, column);
}

void host_tree_reduction(const float *restrict in, float *restrict sums, int n)
{
#pragma omp parallel for schedule(static)
    for (int block = 0; block < n / (2 * BLOCK); block++) {
        float part[BLOCK];
        const float *mine = in + (long)block * 2 * BLOCK;
        for (int i = 0; i < BLOCK; i++)
            part[i] = mine[i] + mine[i + BLOCK];
        for (int stride = BLOCK / 2; stride > 0; stride >>= 1)
            for (int i = 0; i < stride; i++)
                part[i] += part[i + stride];
        sums[block] = part[0];
    }
}

void host_shuffle_reduction(const float *restrict in, float *restrict sums, int n, int blocks)
{
#pragma omp parallel for schedule(static)
    for (int block = 0; block < blocks; block++) {
        float part[BLOCK] = {0};
        for (int at = block * BLOCK; at < n; at += blocks * BLOCK) {
            int end = n - at < BLOCK ? n - at : BLOCK;
            for (int i = 0; i < end; i++)
                part[i] += in[at + i];
        }
        for (int first = 0; first < BLOCK; first += 32)
            for (int step = 16; step > 0; step >>= 1)
                for (int i = 0; i < step; i++)
                    part[first + i] += part[first + i + step];
        float warps[BLOCK / 32];
        for (int i = 0; i < BLOCK / 32; i++)
            warps[i] = part[32 * i];
        for (int step = BLOCK / 64; step > 0; step >>= 1)
            for (int i = 0; i < step; i++)
                warps[i] += warps[i + step];
        sums[block] = warps[0];
    }
}

void host_scan(const int *restrict in, int *restrict out, int n)
{
#pragma omp parallel for schedule(static)
    for (int block = 0; block < n / BLOCK; block++) {
        int part[2][BLOCK], from = 0;
        memcpy(part[0], in + (long)block * BLOCK, sizeof(part[0]));
        for (int step = 1; step < BLOCK; step *= 2) {
            for (int i = 0; i < step; i++)
                part[1 - from][i] = part[from][i];
            for (int i = step; i < BLOCK; i++)
                part[1 - from][i] = part[from][i] + part[from][i - step];
            from = 1 - from;
        }
        memcpy(out + (long)block * BLOCK, part[from], sizeof(part[0]));
    }
}

void host_histogram(const unsigned char *in, unsigned *counts, int n)
{
#pragma omp parallel
    {
        unsigned part[256] = {0};
#pragma omp for schedule(static)
        for (int i = 0; i < n; i++)
            part[in[i]]++;
        for (int i = 0; i < 256; i++)
#pragma omp atomic
            counts[i] += part[i];
    }
}
