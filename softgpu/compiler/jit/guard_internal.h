/*
 * guard_internal.h - what the two passes of guard.h have in common.
 */
#ifndef SG_COMPILER_JIT_GUARD_INTERNAL_H
#define SG_COMPILER_JIT_GUARD_INTERNAL_H

#include "softgpu/compiler/base/support.h"

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>

struct confined {
    LLVMValueRef pointer, value;
    uint64_t distance; /* the most that was added to the root */
};

/** A module in work. */
struct guard {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMTargetDataRef layout;
    LLVMBuilderRef builder;
    LLVMValueRef function;
    struct confined *map; /* of the function, by pointer: open addressing */
    size_t n, capacity;
    bool no_memory;
    struct sg_text *log;
};

/** guard_locals.c: of the function in work. False, with a message: there is one that cannot be moved. */
bool sg_guard_move_locals(struct guard *guard);

#endif
