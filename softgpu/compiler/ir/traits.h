/*
 * traits.h - what analyses ask of single instructions.
 */
#ifndef SG_COMPILER_IR_TRAITS_H
#define SG_COMPILER_IR_TRAITS_H

#include "softgpu/compiler/ir/ir.h"

/** Calls `visit` for each register that the instruction reads or writes (`maybe`: perhaps not). */
typedef void (*sg_register_visitor)(void *user, uint32_t reg, bool written, bool maybe);
/** In any order; a register that stands in several places is visited as often. */
void sg_visit_registers(const struct sg_insn *insn, sg_register_visitor visit, void *user);

/** mma, wmma, ldmatrix, stmatrix, movmatrix. */
bool sg_is_matrix(const struct sg_insn *insn);
/** Do threads meet at the instruction? */
bool sg_is_meeting(const struct sg_insn *insn);
/**
 * Is the instruction a point, at which kernels in loop form are cut? Meetings are, places where threads wait,
 * and jumps that they had better take together (lockstep.c).
 */
bool sg_is_point(const struct sg_insn *insn);
/** Does it only compute its result from its operands, cheaply? */
bool sg_is_arithmetic(enum sg_op op);

#endif
