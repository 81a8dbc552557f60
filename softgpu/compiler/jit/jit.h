/*
 * jit.h - LLVM modules to machine code in memory.
 */
#ifndef SG_COMPILER_JIT_JIT_H
#define SG_COMPILER_JIT_JIT_H

#include "softgpu/compiler/base/support.h"
#include "softgpu/kernel_abi.h"

#include <llvm-c/Core.h>

struct sg_jit;

/** Modules with more instructions of LLVM's are compiled with few optimisations, so that it takes seconds. */
#define SG_JIT_LARGE 40000

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
/**
 * Checks, optimises (if it is wanted) and compiles a module to an object, relocatable and free of addresses,
 * or NULL with a message in `log`. The module is gone afterwards. One thread at a time.
 */
LLVMMemoryBufferRef sg_jit_compile(struct sg_jit *jit, LLVMModuleRef module, const char *symbol,
                                   bool optimised, bool guarded, struct sg_text *log);
/**
 * Loads an object, which is the JIT's from here on: the address of `symbol`, or NULL with a message in `log`
 * and nothing loaded. One thread at a time.
 */
void *sg_jit_load(struct sg_jit *jit, LLVMMemoryBufferRef object, const char *symbol, struct sg_text *log);

#endif
