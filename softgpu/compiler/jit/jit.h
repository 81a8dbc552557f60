/*
 * jit.h - LLVM modules to machine code in memory.
 */
#ifndef SG_COMPILER_JIT_JIT_H
#define SG_COMPILER_JIT_JIT_H

#include "softgpu/compiler/base/support.h"
#include "softgpu/compiler/jit/emit.h"
#include "softgpu/kernel_abi.h"

#include <llvm-c/Core.h>

struct sg_jit;

/** NULL with a message in `log` if LLVM cannot do this. */
struct sg_jit *sg_jit_create(struct sg_text *log);
void sg_jit_destroy(struct sg_jit *jit);
/** Does the host convert between half precision and float by itself? */
bool sg_jit_has_half(const struct sg_jit *jit);
/** A context of its own for one module. */
LLVMContextRef sg_jit_context(const struct sg_jit *jit);
/** What the code of this JIT is for: compiler, machine, processor and its features. */
const char *sg_jit_host(const struct sg_jit *jit);
/** Binds names to addresses for all code that is loaded later; ended by a NULL name. */
bool sg_jit_define(struct sg_jit *jit, const struct sg_rt_symbol *symbols, struct sg_text *log);
/** Says in a module for which target it is. */
void sg_jit_prepare(const struct sg_jit *jit, LLVMModuleRef module);
/**
 * Makes an object of a prepared module as the emitter does (emit.h), or NULL with a message in `log`. The module is gone
 * afterwards. One thread at a time.
 */
LLVMMemoryBufferRef sg_jit_compile(struct sg_jit *jit, LLVMModuleRef module, const char *symbol,
                                   enum sg_effort effort, bool guarded, struct sg_text *log);
/**
 * Loads an object, which is the JIT's from here on: the address of `symbol`, or NULL with a message in `log`
 * and nothing loaded. One thread at a time.
 */
void *sg_jit_load(struct sg_jit *jit, LLVMMemoryBufferRef object, const char *symbol, struct sg_text *log);

#endif
