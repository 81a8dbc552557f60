/*
 * loads_beside.c - a program of one thread loads code, and asks what is in it, while a kernel of its own runs that ends only when
 * the program lets it go on, by a call that comes afterwards. Drivers load functions when they are first used, and may wait for the
 * context's work then; nothing that the program does here is a use, so it must come to its end.
 */
#include "tests/fidelity/must.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3 };

static const char code[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                           ".visible .global .align 4 .u32 variable = %u;\n"
                           ".visible .entry spin(.param .u64 at)\n"
                           "{\n"
                           "  .reg .u64 %%a; .reg .u32 %%v; .reg .pred %%p;\n"
                           "  ld.param.u64 %%a, [at];\n"
                           "again:\n"
                           "  ld.volatile.global.u32 %%v, [%%a];\n"
                           "  setp.eq.u32 %%p, %%v, 0;\n"
                           "  @%%p bra again;\n"
                           "  ret;\n"
                           "}\n"
                           ".visible .entry add(.param .u64 at, .param .u32 value)\n"
                           "{\n"
                           "  .reg .u64 %%a; .reg .u32 %%v, %%w;\n"
                           "  ld.param.u64 %%a, [at];\n"
                           "  ld.param.u32 %%v, [value];\n"
                           "  ld.global.u32 %%w, [%%a];\n"
                           "  add.u32 %%w, %%w, %%v;\n"
                           "  st.global.u32 [%%a], %%w;\n"
                           "  ret;\n"
                           "}\n";

static CUstream held, other;
static CUdeviceptr gate, sum;
static CUfunction spin;

/* An image that has not been loaded before. */
static const char *another_image(void)
{
    static char text[sizeof code + 16];
    static unsigned n;
    snprintf(text, sizeof text, code, n++);
    return text;
}

static void hold(void)
{
    void *parameters[] = {&gate};
    CHECK(cuMemsetD32Async(gate, 0, 1, held));
    CHECK(cuStreamSynchronize(held));
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, held, parameters, NULL));
}

static void let_go(const char *after)
{
    printf("%s: still held: %d\n", after, (int)cuStreamQuery(held));
    CHECK(cuStreamWriteValue32_v2(other, gate, 1, 0));
    CHECK(cuCtxSynchronize());
    fflush(stdout);
}

static void add(CUfunction function, unsigned value)
{
    unsigned result = 0;
    void *parameters[] = {&sum, &value};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
    CHECK(cuMemcpyDtoHAsync_v2(&result, sum, sizeof result, other));
    CHECK(cuStreamSynchronize(other));
    printf("  the sum is %u\n", result);
}

static void ask_attributes(CUfunction function)
{
    int threads = 0, constant = -1;
    CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(cuFuncGetAttribute(&constant, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, function));
    printf("  threads %d, constants %d\n", threads, constant);
}

static void load_module(void)
{
    CUmodule module;
    CUfunction function;
    const char *name;
    size_t offset, size;
    unsigned count = 0;
    const char *image = another_image();
    hold();
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunctionCount(&count, module));
    CHECK(cuModuleGetFunction(&function, module, "add"));
    CHECK(cuFuncGetName(&name, function));
    CHECK(cuFuncGetParamInfo(function, 1, &offset, &size));
    printf("%u functions; %s has %zu bytes at %zu\n", count, name, size, offset);
    let_go("a module");
    add(function, 1);
    ask_attributes(function);
    CHECK(cuModuleUnload(module));
}

static void enumerate_module(void)
{
    CUmodule module;
    CUfunction functions[2];
    hold();
    CHECK(cuModuleLoadData(&module, another_image()));
    CHECK(cuModuleEnumerateFunctions(functions, 2, module));
    let_go("functions, listed");
    ask_attributes(functions[0]);
    ask_attributes(functions[1]);
    CHECK(cuModuleUnload(module));
}

static void load_library(void)
{
    CUlibrary library;
    CUkernel kernel;
    const char *name;
    size_t offset, size;
    unsigned count = 0;
    hold();
    CHECK(cuLibraryLoadData(&library, another_image(), NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernelCount(&count, library));
    CHECK(cuLibraryGetKernel(&kernel, library, "add"));
    CHECK(cuKernelGetName(&name, kernel));
    CHECK(cuKernelGetParamInfo(kernel, 1, &offset, &size));
    printf("%u kernels; %s has %zu bytes at %zu\n", count, name, size, offset);
    let_go("a library");
    add((CUfunction)kernel, 10);
    CHECK(cuLibraryUnload(library));
}

static void enumerate_library(void)
{
    CUlibrary library;
    CUkernel kernels[2];
    hold();
    CHECK(cuLibraryLoadData(&library, another_image(), NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryEnumerateKernels(kernels, 2, library));
    let_go("kernels, listed");
    CHECK(cuLibraryUnload(library));
}

/* Of the function nothing has been used when the kernel begins that holds it up. */
static void find_later(void)
{
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, another_image()));
    CHECK(cuCtxSynchronize());
    hold();
    CHECK(cuModuleGetFunction(&function, module, "add"));
    let_go("a function of a module that is there");
    add(function, 100);
    CHECK(cuModuleUnload(module));
}

/* What was asked about while nothing ran is loaded, as the runtime asks for cudaFuncGetAttributes: its launch need not wait. */
static void ask_before(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUdevice device;
    int threads = 0;
    unsigned value = 1000;
    void *parameters[] = {&sum, &value};
    CHECK(cuCtxGetDevice(&device));
    CHECK(cuLibraryLoadData(&library, another_image(), NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "add"));
    CHECK(cuKernelGetFunction(&function, kernel));
    CHECK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    hold();
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
    let_go("a kernel, asked about before");
    CHECK(cuLibraryUnload(library));
}

int main(void)
{
    CUmodule module;
    alarm(100); /* where one waits for the other */
    use_first_device();
    CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&gate, 64));
    CHECK(cuMemAlloc_v2(&sum, 64));
    CHECK(cuMemsetD32_v2(sum, 0, 1));
    CHECK(cuModuleLoadData(&module, another_image()));
    CHECK(cuModuleGetFunction(&spin, module, "spin"));
    CHECK(cuFuncLoad(spin));
    for (int round = 0; round < ROUNDS; round++) {
        load_module();
        enumerate_module();
        load_library();
        enumerate_library();
        find_later();
        ask_before();
    }
    return 0;
}
