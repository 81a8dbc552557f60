/*
 * emit.h - LLVM modules to objects: optimisation, the guard, machine code.
 *
 * An emitter belongs to one thread at a time, and so does the context of what it is given; several of both may be at
 * work at once.
 */
#ifndef SG_COMPILER_JIT_EMIT_H
#define SG_COMPILER_JIT_EMIT_H

#include "softgpu/compiler/base/support.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/TargetMachine.h>
#include <stdbool.h>

/**
 * Instructions of LLVM's, as generated, from which on a module is worth quick code first: full effort takes about a second of a core for
 * so many (kernels of CUB, and unrolled rounds of hash functions), and a quarter to a tenth of that.
 */
#define SG_JIT_LARGE 30000
/** With more there are few optimisations alone. Kernels of hash functions have a quarter of it, those of NCCL several times as many. */
#define SG_JIT_HUGE 1000000

enum sg_effort {
    SG_EFFORT_NONE,  /* no optimisation, for developers */
    SG_EFFORT_QUICK, /* code soon, which runs slower */
    SG_EFFORT_FULL,  /* code that runs fast */
};

struct sg_emitter;

/** How many instructions a module has. */
uint32_t sg_emitter_size(LLVMModuleRef module);

/** NULL with a message in `log`. */
struct sg_emitter *sg_emitter_create(struct sg_text *log);
void sg_emitter_destroy(struct sg_emitter *emitter);

/**
 * Checks, optimises and, if it is to be guarded, confines a module, whose triple and data layout are set. *effort is what was
 * asked for, and then what was done: full effort is not made for huge modules. False with a message in `log`.
 */
bool sg_emitter_optimise(const struct sg_emitter *emitter, LLVMModuleRef module, const char *symbol,
                         enum sg_effort *effort, bool guarded, struct sg_text *log);
/** An object, relocatable and free of addresses, of an optimised module; NULL with a message in `log`. */
LLVMMemoryBufferRef sg_emitter_emit(const struct sg_emitter *emitter, LLVMModuleRef module,
                                    const char *symbol, enum sg_effort effort, struct sg_text *log);

/** The host as a target. NULL with a message in `log`. */
LLVMTargetMachineRef sg_machine_create(LLVMCodeGenOptLevel level, struct sg_text *log);
/** What code of this host is for: compiler, machine, processor and its features; to be freed. NULL: no memory. */
char *sg_machine_describe(bool *has_half);
/** Tells the error and frees it; true if there was one. */
bool sg_llvm_failed(LLVMErrorRef error, struct sg_text *log);

#endif
