/*
 * reduce.h - the arithmetic of reductions, on host memory.
 *
 * Inputs are combined in the order in which they are given, and after each the result is rounded to the type, as around a ring whose
 * members pass partial results on. Integers wrap. An average multiplies each input by 1/n where the type is a floating one, and
 * divides the sum where it is an integer, towards zero. Minimum and maximum prefer numbers to NaN. Types of 8 and 16 bits are
 * computed in float; FP8 saturates at its largest finite value.
 */
#ifndef SG_NCCL_REDUCE_H
#define SG_NCCL_REDUCE_H

#include "common/cuda/nccl.h"

#include <stdint.h>

/** What ncclRedOpCreatePreMulSum makes: each input is multiplied by its own scalar. */
#define SG_NCCL_PRE_MUL_SUM ncclNumOps

struct sg_reduction {
    ncclDataType_t type;
    int op; /* ncclSum … ncclAvg, SG_NCCL_PRE_MUL_SUM */
    int n;  /* inputs */
};

/**
 * out[i] = the inputs' elements i combined, for `count` elements. `scalars`: of each input one element of the type in 8 bytes, read
 * for SG_NCCL_PRE_MUL_SUM alone. `out` may be one of the inputs, and overlaps no other. Any thread.
 */
void sg_reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
               const void *const *scalars, size_t count);

#endif
