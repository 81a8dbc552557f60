/*
 * mma_avx512.c - mma_vectors.h for processors with AVX512.
 */
#define SG_MATRIX_MULTIPLY_NAME sg_matrix_multiply_avx512

#include "softgpu/exec/matrix/mma_vectors.h"
