/*
 * first_use.c - functions are loaded when they are first used, and that can fail: nothing else does because of it, and the next
 * use loads the function. The second one to be used is to fail (SOFTGPU_BEHAVE=nvidia:load=CODE@2).
 *
 * Remotely the error of a launch may come with a later call, so what is printed is the first error of it and of waiting for it.
 */
#include "tests/fidelity/must.h"

static const char ptx[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry one(.param .u64 p) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; "
    "ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret; }\n"
    ".visible .entry ten(.param .u64 p) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; "
    "ld.global.u32 %v, [%a]; add.u32 %v, %v, 10; st.global.u32 [%a], %v; ret; }\n"
    ".visible .entry hundred(.param .u64 p) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; "
    "ld.global.u32 %v, [%a]; add.u32 %v, %v, 100; st.global.u32 [%a], %v; ret; }\n";

static CUmodule module;
static CUdeviceptr memory;

static void launch(const char *name)
{
    CUfunction function;
    unsigned value = 0;
    void *parameters[] = {&memory};
    CHECK(cuModuleGetFunction(&function, module, name));
    const CUresult at_once = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    const CUresult later = cuCtxSynchronize();
    CHECK(cuMemcpyDtoH_v2(&value, memory, sizeof value));
    printf("%s: %d, %u\n", name, (int)(at_once ? at_once : later), value);
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUfunction function;
    (void)argv;
    CHECK(cuInit(0));
    CHECK(cuCtxCreate_v2(&context, 0, 0));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuMemAlloc_v2(&memory, 4));
    CHECK(cuMemsetD32_v2(memory, 0, 1));
    launch("one");
    if (argc > 1) { /* ahead of its launch */
        CHECK(cuModuleGetFunction(&function, module, "ten"));
        printf("load: %d\n", (int)cuFuncLoad(function));
        printf("again: %d\n", (int)cuFuncLoad(function));
    }
    for (int i = 0; i < 3; i++) {
        launch("ten");
        launch("hundred");
        launch("one");
    }
    return 0;
}
