/*
 * codegen.h - the code generator: one kernel, with the functions it reaches, to one LLVM module.
 */
#ifndef SG_COMPILER_CODEGEN_CODEGEN_H
#define SG_COMPILER_CODEGEN_CODEGEN_H

#include "softgpu/compiler/codegen/builder/builder.h"

/**
 * Builds the module of a kernel; its code is the function `symbol`. The caller sets arena, module, reach,
 * shared, form, watched, has_half and context. NULL after an error in the log.
 */
LLVMModuleRef sg_generate(struct sg_codegen *gen, struct sg_ptx_function *kernel, const char *symbol);

/* function.c, for codegen.c only */
void sg_gen_function(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self);
/** What gen->emit is. */
void sg_gen_instruction(struct sg_codegen *gen);

#endif
