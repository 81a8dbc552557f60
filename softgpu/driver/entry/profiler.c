/* profiler.c - there is no profiler to attach: starting and stopping one has no effect, as without a tool. */
#include "softgpu/driver/driver.h"

#pragma GCC visibility push(default)
#include <cudaProfiler.h>
#pragma GCC visibility pop

CUresult cuProfilerStart(void)
{
    struct sg_context *context;
    return sg_enter_context(&context);
}

CUresult cuProfilerStop(void)
{
    struct sg_context *context;
    return sg_enter_context(&context);
}
