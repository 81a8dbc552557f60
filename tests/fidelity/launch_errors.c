/*
 * launch_errors.c - what comes after a launch that fails, whatever the error: which calls report it, and what still works. The
 * second launch is to fail (SOFTGPU_BEHAVE=nvidia:fail=CODE@2).
 *
 * An error that a driver reports by the launch itself may come with a later call remotely, as launches are not waited for: so
 * what is printed is the first error of the launch and of waiting for it.
 */
#include "tests/fidelity/must.h"

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry add(.param .u64 p)\n"
                          "{ .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; ld.global.u32 %v, [%a]; "
                          "add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret; }\n";

#define TELL(call) printf("%s: %d\n", #call, (int)(call))

static CUmodule module;
static CUfunction function;
static CUstream stream;
static CUdeviceptr memory;

static void prepare(void)
{
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "add"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuMemsetD32_v2(memory, 0, 1024));
    CHECK(cuCtxSynchronize());
}

static void launch(const char *which)
{
    void *parameters[] = {&memory};
    const CUresult at_once = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    const CUresult later = cuStreamSynchronize(stream);
    printf("%s launch: %d\n", which, (int)(at_once ? at_once : later));
}

static void look_around(void)
{
    unsigned value = 0;
    CUdeviceptr more = 0;
    CUevent event;
    CUcontext current;
    CUdevice device;
    TELL(cuStreamQuery(stream));
    TELL(cuMemcpyDtoH_v2(&value, memory, 4));
    TELL(cuMemAlloc_v2(&more, 64));
    TELL(cuEventCreate(&event, 0));
    TELL(cuCtxSynchronize());
    TELL(cuCtxGetCurrent(&current));
    TELL(cuCtxGetDevice(&device));
    printf("value %u\n", value);
}

int main(void)
{
    CUcontext first, second;
    CHECK(cuInit(0));
    TELL(cuDevicePrimaryCtxRetain(&first, 0));
    CHECK(cuCtxSetCurrent(first));
    prepare();
    launch("first");
    launch("second");
    look_around();
    launch("third");
    TELL(cuDevicePrimaryCtxReset(0));
    TELL(cuDevicePrimaryCtxRetain(&second, 0));
    if (cuCtxSetCurrent(second) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS) {
        prepare();
        launch("another context's");
        look_around();
    }
    return 0;
}
