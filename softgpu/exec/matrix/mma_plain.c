/*
 * mma_plain.c - mma_vectors.h for any processor.
 */
#define SG_MATRIX_MULTIPLY_NAME sg_matrix_multiply_plain

#include "softgpu/exec/matrix/mma_vectors.h"
