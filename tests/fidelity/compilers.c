/*
 * Programs that compile at run time: NVRTC to PTX and to machine code, nvJitLink and cuLink of several parts. What is
 * made is loaded and run, the results are printed. The folder of the toolkit's libraries and the
 * software device's ptxas are the arguments.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <nvJitLink.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_MAJOR      13
#define STRING(x)       #x
#define STRING_OF(x)    STRING(x)
#define OK(call)        expect(#call, (int)(call), 0)
#define NVRTC(name)     ((__typeof__(nvrtc##name) *)look_up(nvrtc, "nvrtc" #name))
#define NVJITLINK(name) ((__typeof__(nvJitLink##name) *)look_up(nvjitlink, STRING_OF(nvJitLink##name)))

static void *nvrtc, *nvjitlink;

static void *look_up(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        printf("%s is missing\n", name);
        exit(1);
    }
    return symbol;
}

static void expect(const char *what, int got, int wanted)
{
    if (got == wanted)
        return;
    printf("%s: %d instead of %d\n", what, got, wanted);
    exit(1);
}

static void *open_library(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return library;
}

struct code {
    void *data;
    size_t size;
};

static struct code room(size_t size)
{
    struct code code = {calloc(1, size + 1), size};
    if (code.data == NULL)
        exit(1);
    return code;
}

enum product { PTX, MACHINE_CODE, LTO_CODE };

/* Compiles with NVRTC. */
static struct code compile(const char *source, enum product product, int n, const char *const *options)
{
    nvrtcProgram program;
    size_t size;
    OK(NVRTC(CreateProgram)(&program, source, "source.cu", 0, NULL, NULL));
    OK(NVRTC(CompileProgram)(program, n, options));
    OK((product == PTX            ? NVRTC(GetPTXSize)
        : product == MACHINE_CODE ? NVRTC(GetCUBINSize)
                                  : NVRTC(GetLTOIRSize))(program, &size));
    struct code code = room(size);
    OK((product == PTX            ? NVRTC(GetPTX)
        : product == MACHINE_CODE ? NVRTC(GetCUBIN)
                                  : NVRTC(GetLTOIR))(program, code.data));
    OK(NVRTC(DestroyProgram)(&program));
    printf("  NVRTC: %s\n", memcmp(code.data, "\177ELF", 4) == 0 ? "an ELF file"
                            : strlen(code.data) + 1 == size      ? "text"
                                                                 : "other");
    return code;
}

/* Loads it and runs its kernel `k`, which changes 4 numbers. */
static void run(const char *what, struct code code)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    int numbers[4] = {1, 2, 3, 4};
    OK(cuModuleLoadDataEx(&module, code.data, 0, NULL, NULL));
    OK(cuModuleGetFunction(&function, module, "k"));
    OK(cuMemAlloc_v2(&memory, sizeof numbers));
    OK(cuMemcpyHtoD_v2(memory, numbers, sizeof numbers));
    void *parameters[] = {&memory};
    OK(cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, NULL, parameters, NULL));
    OK(cuMemcpyDtoH_v2(numbers, memory, sizeof numbers));
    printf("%s: %d %d %d %d\n", what, numbers[0], numbers[1], numbers[2], numbers[3]);
    OK(cuMemFree_v2(memory));
    OK(cuModuleUnload(module));
}

static void run_library(const char *what, struct code code)
{
    CUlibrary library;
    unsigned kernels = 0;
    OK(cuLibraryLoadData(&library, code.data, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&kernels, library));
    printf("%s: %u kernel\n", what, kernels);
    OK(cuLibraryUnload(library));
}

static struct code nvjitlink_of(int n, const char **options, nvJitLinkInputType type, struct code a,
                                struct code b)
{
    nvJitLinkHandle link;
    size_t size;
    OK(NVJITLINK(Create)(&link, (unsigned)n, options));
    OK(NVJITLINK(AddData)(link, type, a.data, a.size, "a"));
    OK(NVJITLINK(AddData)(link, type, b.data, b.size, "b"));
    OK(NVJITLINK(Complete)(link));
    OK(NVJITLINK(GetLinkedCubinSize)(link, &size));
    struct code code = room(size);
    OK(NVJITLINK(GetLinkedCubin)(link, code.data));
    OK(NVJITLINK(Destroy)(&link));
    return code;
}

static struct code cu_link(CUjitInputType type, struct code a, CUjitInputType other, struct code b)
{
    CUlinkState link;
    void *image;
    char log[1000] = "";
    size_t size;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    OK(cuLinkCreate_v2(2, options, values, &link));
    OK(cuLinkAddData_v2(link, type, a.data, a.size, "a", 0, NULL, NULL));
    OK(cuLinkAddData_v2(link, other, b.data, b.size, "b", 0, NULL, NULL));
    CUresult result = cuLinkComplete(link, &image, &size);
    if (result != CUDA_SUCCESS)
        printf("cuLinkComplete: %s\n", log);
    OK(result);
    struct code code = room(size);
    memcpy(code.data, image, size);
    OK(cuLinkDestroy(link));
    return code;
}

/* Assembles PTX with the device's ptxas, a program. */
static struct code assemble(const char *ptxas, const char *architecture, struct code ptx)
{
    char command[8192], from[] = "/tmp/compilers-XXXXXX", to[sizeof from + 6];
    const int fd = mkstemp(from);
    snprintf(to, sizeof to, "%s.cubin", from);
    if (fd < 0 || write(fd, ptx.data, ptx.size - 1) != (ssize_t)ptx.size - 1 || close(fd) != 0)
        exit(1);
    snprintf(command, sizeof command, "%s -v --opt-level 3 %s %s -o %s", ptxas, architecture, from, to);
    OK(system(command));
    FILE *file = fopen(to, "r");
    struct code code = room(1 << 16);
    if (file == NULL || (code.size = fread(code.data, 1, code.size, file)) < 64)
        exit(1);
    fclose(file);
    unlink(from);
    unlink(to);
    return code;
}

/* What the driver's linker says of code that it does not link. */
static void refuse(CUjitInputType type, struct code code)
{
    CUlinkState link;
    char log[1000] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    OK(cuLinkCreate_v2(2, options, values, &link));
    const CUresult result = cuLinkAddData_v2(link, type, code.data, code.size, "code", 0, NULL, NULL);
    printf("cuLinkAddData of type %d: %d, %s\n", (int)type, (int)result, log);
    OK(cuLinkDestroy(link));
}

static const char whole[] = "extern \"C\" __global__ void k(int *x) { x[threadIdx.x] *= 3; }";
static const char part_a[] = "__device__ int f(int);\n"
                             "extern \"C\" __global__ void k(int *x) { x[threadIdx.x] = f(x[threadIdx.x]); }";
static const char part_b[] = "__device__ int added = 100;\n__device__ int f(int x) { return x + added; }";

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    int major, minor;
    if (argc != 3)
        return 2;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    nvrtc = open_library(argv[1], "libnvrtc.so." STRING_OF(CUDA_MAJOR));
    nvjitlink = open_library(argv[1], "libnvJitLink.so." STRING_OF(CUDA_MAJOR));

    static const int capabilities[] = {75, 90, 120};
    for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++) {
        const int capability = capabilities[i];
        char real[32], virtual[32];
        if (capability > major * 10 + minor)
            continue;
        snprintf(real, sizeof real, "-arch=sm_%d", capability);
        snprintf(virtual, sizeof virtual, "-arch=compute_%d", capability);
        const char *options[] = {virtual, "-rdc=true", "-dlto"}, *link_options[] = {real, "-lto"};
        printf("for %d\n", capability);
        struct code ptx = compile(whole, PTX, 1, options);
        run("PTX", ptx);
        run("ptxas", assemble(argv[2], real, ptx));
        struct code ptx_a = compile(part_a, PTX, 2, options), ptx_b = compile(part_b, PTX, 2, options);
        run("cuLink of PTX", cu_link(CU_JIT_INPUT_PTX, ptx_a, CU_JIT_INPUT_PTX, ptx_b));
        struct code linked = nvjitlink_of(1, link_options, NVJITLINK_INPUT_PTX, ptx_a, ptx_b);
        run("nvJitLink of PTX", linked);
        run_library("nvJitLink of PTX", linked);
        run("nvJitLink of LTO code",
            nvjitlink_of(2, link_options, NVJITLINK_INPUT_LTOIR, compile(part_a, LTO_CODE, 3, options),
                         compile(part_b, LTO_CODE, 3, options)));
        refuse(CU_JIT_INPUT_NVVM, compile(part_a, LTO_CODE, 3, options));
        refuse(CU_JIT_INPUT_LIBRARY, ptx_a);
        refuse(CU_JIT_INPUT_CUBIN, ptx_a);
        options[0] = real;
        struct code machine_code = compile(whole, MACHINE_CODE, 1, options);
        run("machine code", machine_code);
        run_library("machine code", machine_code);
        struct code a = compile(part_a, MACHINE_CODE, 2, options),
                    b = compile(part_b, MACHINE_CODE, 2, options);
        run("nvJitLink of machine code", nvjitlink_of(1, link_options, NVJITLINK_INPUT_CUBIN, a, b));
        run("cuLink of machine code", cu_link(CU_JIT_INPUT_CUBIN, a, CU_JIT_INPUT_CUBIN, b));
        run("cuLink of PTX and machine code", cu_link(CU_JIT_INPUT_PTX, ptx_a, CU_JIT_INPUT_CUBIN, b));
    }
    OK(cuDevicePrimaryCtxRelease_v2(device));
    printf("ok\n");
    return 0;
}
