/*
 * launch_events.c - events that a launch records by its attributes: who waits for one whose kernel triggers nothing finds what the
 * kernel wrote, in this thread and in another stream; events that cannot be meant are refused. Argument: how often.
 */
#include "tests/fidelity/must.h"

#include <stdio.h>
#include <stdlib.h>

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry late(.param .u64 at, .param .u32 value)\n"
                            "{\n"
                            "    .reg .u64 %a, %from, %now;\n"
                            "    .reg .u32 %v;\n"
                            "    .reg .pred %p;\n"
                            "    ld.param.u64 %a, [at];\n"
                            "    ld.param.u32 %v, [value];\n"
                            "    mov.u64 %from, %globaltimer;\n"
                            "again:\n"
                            "    mov.u64 %now, %globaltimer;\n"
                            "    sub.u64 %now, %now, %from;\n"
                            "    setp.lt.u64 %p, %now, 20000000;\n"
                            "    @%p bra again;\n"
                            "    st.global.u32 [%a], %v;\n"
                            "    ret;\n"
                            "}\n";

static CUfunction kernel;
static CUdeviceptr memory;

static CUresult launch(CUstream stream, CUlaunchAttributeID attribute, CUevent event, unsigned value)
{
    CUlaunchAttribute of = {.id = attribute};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
        of.value.programmaticEvent.event = event;
    else
        of.value.launchCompletionEvent.event = event;
    const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &of, 1};
    void *parameters[] = {&memory, &value};
    return cuLaunchKernelEx(&config, kernel, parameters, NULL);
}

static unsigned read_in(CUstream stream)
{
    unsigned value = 0;
    CHECK(cuMemcpyDtoHAsync_v2(&value, memory, sizeof value, stream));
    CHECK(cuStreamSynchronize(stream));
    return value;
}

static void record(CUstream first, CUstream second, CUevent event)
{
    CHECK(launch(first, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, event, 7));
    CHECK(cuEventSynchronize(event));
    printf("who has waited reads %u\n", read_in(second));
    CHECK(launch(first, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, event, 8));
    CHECK(cuStreamWaitEvent(second, event, 0));
    printf("a stream that has waited reads %u\n", read_in(second));
    CHECK(launch(first, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, event, 9));
    CHECK(cuEventSynchronize(event)); /* it has begun, no more */
    printf("the kernel's stream reads %u\n", read_in(first));
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    CUcontext context, other;
    CUmodule module;
    CUstream first, second;
    CUevent event, foreign;
    CHECK(cuInit(0));
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    CHECK(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxCreate_v2(&context, 0, 0));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&kernel, module, "late"));
    CHECK(cuMemAlloc_v2(&memory, sizeof(unsigned)));
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

    for (int round = 0; round < rounds; round++)
        record(first, second, event);
    printf("another context's: %d\n", (int)launch(first, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, foreign, 1));
    CHECK(cuEventDestroy_v2(event));
    printf("none that lives: %d\n",
           (int)launch(first, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, event, 1));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuCtxDestroy_v2(context));
    CHECK(cuCtxDestroy_v2(other));
    return 0;
}
