/*
 * marker.c - a program whose data and device code are known again in what travels: a text is copied to the device and
 * back, and a kernel has a name that nothing else has.
 *
 * usage: security_marker MIB ROUNDS [hold | until FILE]
 *
 * With "until" there are more rounds until there is such a file.
 * Prints "ok" if all came back as it was sent. With "hold" it then says "ready" and goes on with small copies until a
 * call fails, and prints that error.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char text[] = "a-text-that-only-this-program-sends/"; /* run.py looks for it */

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry a_kernel_that_only_this_program_has()\n{\n    ret;\n}\n";

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: error %d\n", what, (int)result);
    exit(1);
}

int main(int argc, char **argv)
{
    const size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20;
    const unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    char *out = malloc(size), *back = malloc(size);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    if (!out || !back)
        return 1;
    for (size_t i = 0; i < size; i++)
        out[i] = text[i % (sizeof text - 1)];
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    must(cuModuleGetFunction(&function, module, "a_kernel_that_only_this_program_has"),
         "cuModuleGetFunction");
    must(cuMemAlloc_v2(&memory, size), "cuMemAlloc");
    const char *until = argc > 4 && strcmp(argv[3], "until") == 0 ? argv[4] : NULL;
    for (unsigned i = 0; i < rounds || (until && access(until, F_OK) != 0); i++) {
        memset(back, 0, size);
        must(cuMemcpyHtoD_v2(memory, out, size), "cuMemcpyHtoD");
        must(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        must(cuMemcpyDtoH_v2(back, memory, size), "cuMemcpyDtoH");
        if (memcmp(out, back, size) != 0) {
            printf("what came back is not what was sent\n");
            return 1;
        }
    }
    printf("ok\n");
    fflush(stdout);
    if (argc > 3 && strcmp(argv[3], "hold") == 0) {
        printf("ready\n");
        fflush(stdout);
        CUresult result;
        while ((result = cuMemcpyDtoH_v2(back, memory, 64)) == CUDA_SUCCESS)
            usleep(20000);
        printf("ended with error %d\n", (int)result);
    }
    return 0;
}
