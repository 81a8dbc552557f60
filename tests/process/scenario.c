/* scenario.c - see scenario.h. */
#include "scenario.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1024, PATIENCE = 60 };

static const char image[] = ".version 7.0\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry mix(.param .u64 data, .param .u32 seed)\n"
                            "{\n"
                            "    .reg .u32 %r<6>;\n"
                            "    .reg .u64 %rd<4>;\n"
                            "    ld.param.u64 %rd1, [data];\n"
                            "    ld.param.u32 %r1, [seed];\n"
                            "    cvta.to.global.u64 %rd1, %rd1;\n"
                            "    mov.u32 %r2, %tid.x;\n"
                            "    mad.wide.u32 %rd2, %r2, 4, %rd1;\n"
                            "    ld.global.u32 %r3, [%rd2];\n"
                            "    mad.lo.u32 %r4, %r3, %r1, %r2;\n"
                            "    st.global.u32 [%rd2], %r4;\n"
                            "    ret;\n"
                            "}\n";

CUcontext device_context;
const char *program_path;
static CUfunction mix;
static CUdeviceptr held;

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

int try_said(const char *text, int result)
{
    say("%s: %d\n", text, result);
    return result;
}

static void must(const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    say("%s fails: %d\n", what, (int)result);
    exit(9);
}

void device_up(void)
{
    CUmodule module;
    must("cuInit", cuInit(0));
    must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&device_context, 0));
    must("cuCtxSetCurrent", cuCtxSetCurrent(device_context));
    must("cuModuleLoadData", cuModuleLoadData(&module, image));
    must("cuModuleGetFunction", cuModuleGetFunction(&mix, module, "mix"));
    must("cuMemAlloc", cuMemAlloc_v2(&held, 64));
}

static int rounds_on(CUdeviceptr data, CUstream stream, unsigned seed)
{
    unsigned values[COUNT];
    void *arguments[] = {&data, &seed};
    for (unsigned i = 0; i < COUNT; i++)
        values[i] = i * seed + 1;
    CUresult result = cuMemcpyHtoDAsync_v2(data, values, sizeof values, stream);
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(mix, 1, 1, 1, COUNT, 1, 1, 0, stream, arguments, NULL);
    memset(values, 0, sizeof values);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoHAsync_v2(values, data, sizeof values, stream);
    if (result == CUDA_SUCCESS)
        result = cuStreamSynchronize(stream);
    for (unsigned i = 0; i < COUNT && result == CUDA_SUCCESS; i++)
        if (values[i] != (i * seed + 1) * seed + i)
            return -1;
    return (int)result;
}

int device_work(unsigned seed)
{
    CUdeviceptr data;
    CUstream stream;
    CUresult result = cuCtxSetCurrent(device_context);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc_v2(&data, COUNT * sizeof(unsigned));
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    int outcome = (int)result;
    if (result == CUDA_SUCCESS) {
        outcome = rounds_on(data, stream, seed);
        result = cuStreamDestroy_v2(stream);
    }
    CUresult freed = cuMemFree_v2(data);
    return outcome ? outcome : result ? (int)result : (int)freed;
}

void calls_without_device(void)
{
    CUdeviceptr data = held;
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUmodule module;
    void *memory, *arguments[2] = {&data, &data};
    int value;
    char bytes[16];
    TRY(cuMemAlloc_v2(&data, 16));
    TRY(cuMemFree_v2(held));
    TRY(cuMemcpyDtoH_v2(bytes, held, sizeof bytes));
    TRY(cuMemsetD8_v2(held, 1, 16));
    TRY(cuMemHostAlloc(&memory, 100, 0));
    TRY(cuCtxSynchronize());
    TRY(cuCtxGetCurrent(&context));
    TRY(cuCtxSetCurrent(device_context));
    TRY(cuCtxCreate_v2(&context, 0, 0));
    TRY(cuStreamCreate(&stream, 0));
    TRY(cuStreamQuery(NULL));
    TRY(cuStreamSynchronize(NULL));
    TRY(cuEventCreate(&event, 0));
    TRY(cuModuleLoadData(&module, image));
    TRY(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    TRY(cuDeviceGetCount(&value));
    TRY(cuDeviceGet(&value, 0));
    TRY(cuDeviceGetAttribute(&value, 1, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuInit(0));
    TRY(cuMemAlloc_v2(&data, 16));
    TRY(cuDriverGetVersion(&value));
    const char *text;
    TRY(cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &text));
}

void say_child(const char *what, int pid)
{
    int status = 0;
    if (pid < 0) {
        say("%s: not started\n", what);
        return;
    }
    while (waitpid(pid, &status, 0) < 0)
        ;
    if (WIFSIGNALED(status))
        say("%s: signal %d\n", what, WTERMSIG(status));
    else
        say("%s: exit status %d\n", what, WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
    program_path = "/proc/self/exe";
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (const struct scenario *at = scenarios; at->name; at++)
            if (at->name[0] != '.')
                say("%s\n", at->name);
        return 0;
    }
    for (const struct scenario *at = scenarios; at->name && argc >= 2; at++)
        if (strcmp(argv[1], at->name) == 0) {
            alarm(PATIENCE); /* what hangs ends by SIGALRM */
            return at->run();
        }
    fprintf(stderr, "usage: %s SCENARIO | list\n", argv[0]);
    return 2;
}
