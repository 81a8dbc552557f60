/*
 * reduce.h - what NCCL is to compute, computed by the host.
 */
#ifndef TESTS_FIDELITY_NCCL_REDUCE_H
#define TESTS_FIDELITY_NCCL_REDUCE_H

#include "common/cuda/nccl.h"

#include <stdbool.h>
#include <stddef.h>

#define DEVICES_MAX 8
#define SIZE        ((size_t)1 << 20)

extern unsigned char *inputs[DEVICES_MAX], *expected; /* of SIZE bytes each */

void reduce_begin(int ranks);
/* Gives a rank `count` elements of the type, the same ones in each run. */
void fill(int rank, ncclDataType_t type, size_t count);
/* Element `i` reduced in the order of a ring that ends at rank `last`, with the inputs multiplied by factors[rank] first. */
void reduce_element(unsigned char *to, ncclDataType_t type, int op, size_t i, int last,
                    const double *factors);
/* The bits of a small positive integer, or of its negative, in a floating format. */
unsigned small_float(int value, int exponent_bits, int mantissa);
/* Of a type whose arithmetic this program does not have: that is done with integers, which are exact in it. */
bool has_small_floats(ncclDataType_t type, int *exponent, int *mantissa);
/* Into `expected`; root -1: each block ends at its own rank. */
void reduce_all(ncclDataType_t type, int op, size_t count, int root, const double *factors);

#endif
