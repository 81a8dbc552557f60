/*
 * llvm_library.h - the object file that LLVM is in: a library of its own, or this one.
 */
#ifndef SG_COMPILER_JIT_LLVM_LIBRARY_H
#define SG_COMPILER_JIT_LLVM_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

/** Finds the addresses [first, end) of its code; false: there is none. Any thread, also in an exit handler. */
bool sg_llvm_code(uintptr_t *first, uintptr_t *end);
/**
 * From here on LLVM's objects within functions, each of which is made when its function is first called, are not destroyed when the process
 * exits. The destructors of those that are made during a compilation would run before an exit handler that was registered before it, and so
 * before anything could wait for the compilation (exit_gate.h) or stop it (improve.h). Where the library can't be changed all is as before.
 */
void sg_llvm_keep_objects(void);

#endif
