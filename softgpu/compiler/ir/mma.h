/*
 * mma.h - the shapes of the instructions on matrices, and how many registers of a lane hold one. Shared by
 * the checker and the code generator; where each element is, is said in softgpu/exec/matrix/mma.c.
 */
#ifndef SG_COMPILER_IR_MMA_H
#define SG_COMPILER_IR_MMA_H

#include "softgpu/compiler/ir/ir.h"

struct sg_mma_shape {
    uint16_t m, n, k;
};

/** The shape of an instruction that has one. */
struct sg_mma_shape sg_mma_shape(const struct sg_insn *insn);
/** mma.sp: a has half of its elements, and each lane a word that says which (softgpu/exec/matrix/mma.c). */
bool sg_mma_is_sparse(const struct sg_insn *insn);
/** Of mma.sp: how many of four neighbouring lanes' words are used. */
uint32_t sg_mma_sparse_lanes(const struct sg_insn *insn);
/** The types, as bits, that a and b can have in the instruction's shape; with `sums`: c and d of wmma. */
uint64_t sg_mma_types(const struct sg_insn *insn, bool sums);
/** The type of the elements of matrix `which` (SG_MATRIX_A …). */
enum sg_type sg_mma_type(const struct sg_insn *insn, uint8_t which);
/** mma.m8n8k4 of .f16: four multiplications at once, with layouts of their own. */
bool sg_mma_is_volta(const struct sg_insn *insn);
/**
 * The registers of a lane that hold matrix `which`: their number, and as what type they are read and written.
 */
uint32_t sg_mma_registers(const struct sg_insn *insn, uint8_t which, enum sg_type *type);
/** Matrices that ldmatrix or stmatrix moves. */
uint32_t sg_mma_count(const struct sg_insn *insn);

#endif
