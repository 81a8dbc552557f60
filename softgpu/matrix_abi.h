/*
 * matrix_abi.h - what compiler and engine agree on about matrices that the registers of a warp hold. Part of kernel_abi.h.
 */
#ifndef SOFTGPU_MATRIX_ABI_H
#define SOFTGPU_MATRIX_ABI_H

#include <stdint.h>

enum sg_matrix_operation {
    SG_MATRIX_MULTIPLY,   /* mma.sync, wmma.mma */
    SG_MATRIX_LOAD,       /* wmma.load */
    SG_MATRIX_STORE,      /* wmma.store */
    SG_MATRIX_LOAD_ROWS,  /* ldmatrix */
    SG_MATRIX_STORE_ROWS, /* stmatrix */
    SG_MATRIX_TRANSPOSE,  /* movmatrix */
};
enum sg_matrix_type {
    SG_MATRIX_F16,
    SG_MATRIX_BF16,
    SG_MATRIX_TF32,
    SG_MATRIX_F32,
    SG_MATRIX_F64,
    SG_MATRIX_S8,
    SG_MATRIX_U8,
    SG_MATRIX_S4,
    SG_MATRIX_U4,
    SG_MATRIX_B1,
    SG_MATRIX_S32,
    SG_MATRIX_E4M3, /* bytes */
    SG_MATRIX_E5M2,
    SG_MATRIX_E2M1, /* in bits 2 to 5 of a byte */
    SG_MATRIX_E2M3, /* in bits 0 to 5 of a byte */
    SG_MATRIX_E3M2,
};
#define SG_MATRIX_SATURATE  1u  /* .satfinite */
#define SG_MATRIX_XOR       2u  /* of .b1: xor instead of and */
#define SG_MATRIX_COLUMNS   4u  /* in memory: column by column; .trans */
#define SG_MATRIX_A_COLUMNS 8u  /* m8n8k4 of .f16: .col of a */
#define SG_MATRIX_B_ROWS    16u /* .row of b */
#define SG_MATRIX_SPARSE    32u /* mma.sp: a has half of its elements, and metadata says which */
#define SG_MATRIX_SPARSE_LANE                                                                                \
    6 /* two bits from here on: the first of four neighbouring lanes whose metadata is used */

/** What is done; passed as the 64-bit word that it is in memory. */
struct sg_matrix_kind {
    uint8_t operation;
    uint8_t m, n,
        k_quarter; /* shape, with a quarter of k; of ldmatrix and stmatrix, m is the number of matrices */
    uint8_t a;     /* type of a's elements, or of those that are loaded or stored */
    uint8_t b;     /* type of b's elements; in loads and stores, the fragment's registers */
    uint8_t c_d;   /* types of c and d, 4 bits each; in loads and stores 0 a, 1 b, 2 c, 3 d */
    uint8_t flags;
};

/**
 * The same of lanes in loop form. Registers are columns of the context, of 32 bits (64 for .f64); the engine reads them
 * there and leaves the result there.
 */
struct sg_matrix_op {
    struct sg_matrix_kind kind;
    uint32_t address; /* column of addresses, of loads and stores */
    uint32_t strides; /* column of strides; SG_MATRIX_STRIDE: they are `stride` */
    uint32_t stride;
    uint32_t metadata;                   /* column, of mma.sp */
    uint32_t a[16], b[16], c[16], d[16]; /* d: also what is loaded; c: what is stored, transposed */
};
#define SG_MATRIX_STRIDE UINT32_MAX

#endif
