/*
 * threads.h - jumps and calls, and what threads do together: barriers, operations of a warp, matrices.
 */
#ifndef SG_COMPILER_CODEGEN_THREADS_THREADS_H
#define SG_COMPILER_CODEGEN_THREADS_THREADS_H

#include "softgpu/compiler/codegen/builder/builder.h"

/* Emitters: see arithmetic.h. */
LLVMValueRef sg_emit_control(struct sg_codegen *gen); /* control.c */
LLVMValueRef sg_emit_warp(struct sg_codegen *gen);    /* warp.c */
LLVMValueRef sg_emit_matrix(struct sg_codegen *gen);  /* mma.c */

/** The kernel's thread ends. */
void sg_gen_end(struct sg_codegen *gen);
/** Writes what elect.sync gives: the lowest lane of the ballot, and whether it is this one. */
void sg_gen_elected(struct sg_codegen *gen, LLVMValueRef ballot);
/** The operation of a redux.sync as the engine knows it. */
uint32_t sg_gen_redux(const struct sg_codegen *gen);
/** Its operand and its result as the engine's integers. */
LLVMValueRef sg_gen_redux_operand(struct sg_codegen *gen);
LLVMValueRef sg_gen_redux_result(struct sg_codegen *gen, LLVMValueRef key);
/** Loop form, at the first of a run on matrices: appends what the engine has to do to gen->matrices. */
void sg_gen_matrix_run(struct sg_codegen *gen);

#endif
