/*
 * guard.h - confines what kernels access to their own memory (softgpu/guest.h).
 *
 * Pointers that a kernel has computed are pointers to an address space of their own in LLVM's terms, from the
 * generator on. LLVM keeps the two apart, and processors know no difference, so that loops become vectors as
 * ever. When all has been optimised, each pointer of that space that something is accessed by is confined: the
 * upper bits are masked away where its value comes from, once for all that is at a small distance of it.
 */
#ifndef SG_COMPILER_JIT_GUARD_H
#define SG_COMPILER_JIT_GUARD_H

#include "softgpu/compiler/base/support.h"

#include <llvm-c/Core.h>
#include <stdbool.h>

/** LLVM's number of the address space of what kernels compute. */
#define SG_GUEST_SPACE 1u
/** Bytes that an access may reach beyond the variable that it begins in: the largest access. */
#define SG_GUARD_OVERHANG 64u

/**
 * Confines all accesses of an optimised module. False, with a message in `log`, if there is one that it does
 * not know how to confine; the module is to be thrown away then.
 */
bool sg_guard_confine(LLVMModuleRef module, struct sg_text *log);

#endif
