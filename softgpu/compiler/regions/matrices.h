/*
 * matrices.h - instructions on matrices in kernels in loop form: runs of them are one point.
 */
#ifndef SG_COMPILER_REGIONS_MATRICES_H
#define SG_COMPILER_REGIONS_MATRICES_H

#include "softgpu/compiler/ir/traits.h"

/** Does it load or store? */
bool sg_matrix_accesses(const struct sg_insn *insn);
/** Are its matrices in registers alone, so that they can be handed over in the context? */
bool sg_matrix_in_columns(const struct sg_insn *insn);
/** Visits the registers that hold its matrices: d first, then a, b, c. */
void sg_matrix_visit(const struct sg_insn *insn, sg_register_visitor visit, void *user);
/** The last instruction of the run that begins at `i`: `i` itself, unless others join it. */
uint32_t sg_matrix_run_end(const struct sg_ptx_function *function, uint32_t i);
/** Orders the kernel's instructions so that those on matrices stand together, and marks what joins others. */
void sg_analyse_matrices(struct sg_arena *arena, struct sg_ptx_function *kernel);

#endif
