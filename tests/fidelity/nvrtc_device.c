/*
 * nvrtc_device.c - a program that compiles for exactly the device that it finds, with the NVRTC that it has (its path is the
 * argument), loaded before cuInit as by programs that are linked with it: NVRTC must know the capability that is shown.
 */
#include "tests/fidelity/must.h"

#include <dlfcn.h>
#include <stdlib.h>

static const char source[] =
    "extern \"C\" __global__ void square(int *p) { p[threadIdx.x] *= p[threadIdx.x]; }";

static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        printf("%s is not there\n", name);
    if (!found)
        exit(1);
    return found;
}

static char *compile(int capability)
{
    int (*create)(void **, const char *, const char *, int, const void *, const void *) = (int (*)(
        void **, const char *, const char *, int, const void *, const void *))function("nvrtcCreateProgram");
    int (*build)(void *, int, const char **) =
        (int (*)(void *, int, const char **))function("nvrtcCompileProgram");
    int (*size_of)(void *, size_t *) = (int (*)(void *, size_t *))function("nvrtcGetPTXSize");
    int (*get)(void *, char *) = (int (*)(void *, char *))function("nvrtcGetPTX");
    char option[64];
    const char *options[] = {option};
    void *program;
    size_t size = 0;
    snprintf(option, sizeof option, "--gpu-architecture=compute_%d", capability);
    printf("create: %d\n", create(&program, source, "square.cu", 0, NULL, NULL));
    printf("compile: %d\n", build(program, 1, options));
    printf("size: %d\n", size_of(program, &size));
    char *text = calloc(1, size + 1);
    printf("text: %d\n", get(program, text));
    return text;
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdevice device;
    CUmodule module;
    CUfunction square;
    CUdeviceptr memory;
    int major = 0, minor = 0, values[32];
    void *parameters[] = {&memory};
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        printf("no NVRTC: %s\n", argc > 1 ? dlerror() : "its path is the argument");
        return 1;
    }
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    printf("capability %d.%d\n", major, minor);
    char *text = compile(major * 10 + minor);
    CHECK(cuCtxCreate_v2(&context, 0, device));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&square, module, "square"));
    for (int i = 0; i < 32; i++)
        values[i] = i;
    CHECK(cuMemAlloc_v2(&memory, sizeof values));
    CHECK(cuMemcpyHtoD_v2(memory, values, sizeof values));
    CHECK(cuLaunchKernel(square, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuMemcpyDtoH_v2(values, memory, sizeof values));
    printf("%d %d\n", values[5], values[31]);
    free(text);
    return 0;
}
