/*
 * loops.h - the loops over a block's threads around a kernel's body, in block form and in loop form, and the
 * parts of a body in loop form.
 */
#ifndef SG_COMPILER_CODEGEN_LOOPS_LOOPS_H
#define SG_COMPILER_CODEGEN_LOOPS_LOOPS_H

#include "softgpu/compiler/codegen/builder/builder.h"

/* Names of functions that the frame calls. */
#define SG_GEN_BODY       "sg.body"
#define SG_GEN_GUARD      "sg.guard"
#define SG_GEN_DIVERGENCE "sg.divergence"

/** Makes gen->llvm with the loops of block form or loop form; false after an error in the log. */
bool sg_gen_frame(struct sg_codegen *gen, const char *symbol);
/** Defines `symbol` as the sg_loop_code of a kernel in loop form; after its body. */
void sg_gen_loop_code(struct sg_codegen *gen, const char *symbol);
/** The function that asks the guards of a kernel in block form. */
void sg_gen_guard_function(struct sg_codegen *gen, struct sg_ptx_function *kernel);
/** The function that tells how the threads part that begin at a point, if that is known. */
void sg_gen_divergence_function(struct sg_codegen *gen, struct sg_ptx_function *kernel, uint32_t point);

/** After the function's slots have been made: leaves the builder where a thread begins. */
void sg_gen_points_begin(struct sg_codegen *gen);
/**
 * At a point: the thread returns to the frame, and goes on behind. True if the instruction is done.
 */
bool sg_emit_point(struct sg_codegen *gen);
/** Loads the registers that are affine behind a point. */
void sg_gen_load_affine(struct sg_codegen *gen, uint32_t point);
/** Computes a register anew, if it can be; `done`: by instruction, what has been. */
void sg_gen_rematerialise(struct sg_codegen *gen, uint8_t *done, uint32_t reg);

#endif
