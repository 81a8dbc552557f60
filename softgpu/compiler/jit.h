/*
 * jit.h - LLVM modules to machine code in memory.
 */
#ifndef SG_COMPILER_JIT_H
#define SG_COMPILER_JIT_H

#include "softgpu/compiler/support.h"

#include <llvm-c/Core.h>

struct sg_jit;

/** NULL with a message in `log` if LLVM cannot do this. */
struct sg_jit *sg_jit_create(struct sg_text *log);
void sg_jit_destroy(struct sg_jit *jit);
/** Does the host convert between half precision and float by itself? */
bool sg_jit_has_half(const struct sg_jit *jit);
/** A context of its own for one module. */
LLVMContextRef sg_jit_context(const struct sg_jit *jit);
/**
 * Checks, optimises and compiles a module and returns the address of `symbol`, or NULL with a message in
 * `log`. The module is the JIT's from here on. One thread at a time.
 */
void *sg_jit_compile(struct sg_jit *jit, LLVMModuleRef module, const char *symbol, struct sg_text *log);

#endif
