/*
 * llvm_inside.c - a library that LLVM is part of, as far as exit handlers go: a function of LLVM's lies in it, and calls of __cxa_atexit
 * by both go through its one relocation.
 */
#include "tests/softgpu/compiler/jit/llvm_inside.h"

#include "softgpu/compiler/jit/llvm_library.h"

#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>

extern void *const __dso_handle __attribute__((visibility("hidden")));
int __cxa_atexit(void (*destroy)(void *), void *object, void *library);

__attribute__((visibility("default"))) register_both_function register_both;

/* By its address the library is known as LLVM's. */
__attribute__((visibility("hidden"))) LLVMErrorRef LLVMRunPasses(LLVMModuleRef module, const char *passes,
                                                                 LLVMTargetMachineRef machine,
                                                                 LLVMPassBuilderOptionsRef options)
{
    (void)module;
    (void)passes;
    (void)machine;
    (void)options;
    return NULL;
}

int register_both(void (*own)(void), void (*destroy)(void *))
{
    static int object;
    sg_llvm_keep_objects();
    const int failed = atexit(own);
    return failed ? failed : __cxa_atexit(destroy, &object, (void *)&__dso_handle);
}
