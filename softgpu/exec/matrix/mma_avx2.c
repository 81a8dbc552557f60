/*
 * mma_avx2.c - mma_vectors.h for processors with AVX2.
 */
#define SG_MATRIX_MULTIPLY_NAME sg_matrix_multiply_avx2

#include "softgpu/exec/matrix/mma_vectors.h"
