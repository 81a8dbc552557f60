/*
 * llvm_inside.h - what the library llvm_inside exports.
 */
#ifndef TESTS_SOFTGPU_COMPILER_JIT_LLVM_INSIDE_H
#define TESTS_SOFTGPU_COMPILER_JIT_LLVM_INSIDE_H

/** Registers `own` as an exit handler of the library's, and `destroy` as the destructor of an object of LLVM's; 0, or what went wrong. */
typedef int register_both_function(void (*own)(void), void (*destroy)(void *));

#endif
