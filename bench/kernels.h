/*
 * kernels.h - what the kernels of kernels.cu do, in plain C for the host's cores (kernels_host.c): the same algorithms
 * with the same blocks, for bench/device to compare the software device with.
 */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#define TILE  16  /* side of a block of the matrix product and of the stencil's rows */
#define BLOCK 256 /* threads of the other kernels' blocks */

#ifndef __CUDACC__

/** What the kernels of the same names compute, on the host: `n` elements each, by one thread. */
void host_vector_add(const float *a, const float *b, float *c, int n);
void host_saxpy(float factor, const float *x, float *y, int n);
void host_triad(const double *a, const double *b, double factor, double *c, int n);
/** Five points of a width × height field; the border is left as it is. */
void host_stencil(const float *in, float *out, int width, int height);
/** c = a × b of n × n; n is a multiple of TILE. */
void host_matrix_product(const float *a, const float *b, float *c, int n);
/** One sum for each 2 × BLOCK elements; n is a multiple of that. */
void host_tree_reduction(const float *in, float *sums, int n);
/** One sum for each of `blocks` blocks that share the elements. */
void host_shuffle_reduction(const float *in, float *sums, int n, int blocks);
/** Sums up to and including each element within its block; n is a multiple of BLOCK. */
void host_scan(const int *in, int *out, int n);
/** How many bytes have each value. */
void host_histogram(const unsigned char *in, unsigned *counts, int n);

#endif
#endif
