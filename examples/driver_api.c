/*
 * A program of the driver API, in C, linked to libcuda itself. It loads the same kernels twice: from PTX text
 * as a module into a context of its own, and from a fat binary as a library into the primary context. It
 * launches them with a parameter array, with a packed buffer (`extra`) and with cuLaunchKernelEx, and reads
 * their attributes.
 */
#include <cuda.h>

#include "example.h"

extern const char kernels_ptx[];
extern const char kernels_fatbin[];

struct range {
    int first;
    short step;
    double scale;
};

enum { COUNT = 3001, THREADS = 128, BLOCKS = (COUNT + THREADS - 1) / THREADS };

static void check(CUresult result, const char *call, int line)
{
    if (result != CUDA_SUCCESS) {
        const char *name = "?", *text = "?";

        cuGetErrorName(result, &name);
        cuGetErrorString(result, &text);
        fflush(stdout);
        fprintf(stderr, "driver_api.c:%d: %s: %s (%s)\n", line, call, name, text);
        printf("FAILED\n");
        exit(1);
    }
}

#define CHECK(call) check((call), #call, __LINE__)

static double expected_value(struct range range, float offset, int i)
{
    /* Each block is reversed within itself. */
    int base = i / THREADS * THREADS;
    int length = COUNT - base < THREADS ? COUNT - base : THREADS;
    int from = base + length - 1 - (i - base);

    return (range.first + from * range.step) * range.scale + offset;
}

/* Compares `values` with what fill and reverse make of `range`, and prints the outcome. */
static int wrong_values(const char *way, const double *values, struct range range, float offset)
{
    int wrong = 0;

    for (int i = 0; i < COUNT; i++) {
        wrong += values[i] != expected_value(range, offset, i);
    }
    printf("%s: %d values, %d wrong, the last is %g\n", way, COUNT, wrong, values[COUNT - 1]);
    return wrong;
}

static int try_module(CUdevice device)
{
    struct range range = {-5, 3, 0.125};
    float offset = 2.5f;
    CUcontext context, popped;
    CUmodule module;
    CUfunction fill, reverse;
    CUdeviceptr values, symbol;
    size_t symbol_size = 0;
    unsigned launches = 77;
    double result[COUNT];
    char log[4096] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *option_values[] = {log, (void *)sizeof log};

#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, NULL, CU_CTX_SCHED_BLOCKING_SYNC, device));
#else
    CHECK(cuCtxCreate(&context, CU_CTX_SCHED_BLOCKING_SYNC, device));
#endif
    CHECK(cuModuleLoadDataEx(&module, kernels_ptx, 2, options, option_values));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetFunction(&reverse, module, "reverse"));
    CHECK(cuModuleGetGlobal(&symbol, &symbol_size, module, "offset"));
    CHECK(cuMemcpyHtoD(symbol, &offset, sizeof offset));
    CHECK(cuMemAlloc(&values, sizeof result));
    CHECK(cuMemsetD32(values, 0xffffffff, sizeof result / 4));

    int count = COUNT;
    void *parameters[] = {&values, &count, &range};
    CHECK(cuLaunchKernel(fill, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL));

    /* The parameters packed as the kernel lays them out: a pointer at 0, an int at 8. */
    struct {
        CUdeviceptr values;
        int count;
    } packed = {values, COUNT};
    size_t packed_size = offsetof(__typeof__(packed), count) + sizeof packed.count;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                     CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(reverse, BLOCKS, 1, 1, THREADS, 1, 1, THREADS * sizeof(double), NULL, NULL, extra));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(result, values, sizeof result));
    int wrong = wrong_values("module from PTX", result, range, offset);

    CHECK(cuModuleGetGlobal(&symbol, &symbol_size, module, "launches"));
    CHECK(cuMemcpyDtoH(&launches, symbol, sizeof launches));
    CUresult missing = cuModuleGetFunction(&fill, module, "no_such_kernel");
    printf("%u launches counted, a kernel that is not there: %s\n", launches,
           missing == CUDA_ERROR_NOT_FOUND ? "not found" : "wrong result");
    wrong += launches != 2 || missing != CUDA_ERROR_NOT_FOUND || symbol_size != sizeof launches;

    CHECK(cuMemFree(values));
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxPopCurrent(&popped));
    wrong += popped != context;
    CHECK(cuCtxDestroy(context));
    return wrong;
}

/* What can be asked of functions; how many answers are wrong. */
static int ask_of(CUfunction fill, CUfunction reverse)
{
    size_t offset[3], size[3];
    int most_threads = 0, registers = 0, blocks = 0;

    for (int i = 0; i < 3; i++) {
        CHECK(cuFuncGetParamInfo(fill, (size_t)i, &offset[i], &size[i]));
        printf("parameter %d of fill: offset %zu, size %zu\n", i, offset[i], size[i]);
    }
    CHECK(cuFuncGetAttribute(&most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
    CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, fill));
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, THREADS, THREADS * sizeof(double)));
    int plausible = most_threads >= THREADS && registers > 0 && blocks > 0;
    printf("attributes and occupancy: %s\n", plausible ? "plausible" : "not plausible");
    return !plausible || offset[1] != 8 || offset[2] != 16 || size[2] != 16;
}

static int try_library(CUdevice device)
{
    struct range range = {1000, -7, 0.5};
    float offset = -1;
    CUcontext context;
    CUlibrary library;
    CUkernel fill, reverse;
    CUfunction fill_function, reverse_function;
    CUdeviceptr values, symbol;
    CUstream stream;
    size_t symbol_size;
    double *result;
    int count = COUNT;

    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuLibraryLoadData(&library, kernels_fatbin, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&fill, library, "fill"));
    CHECK(cuLibraryGetKernel(&reverse, library, "reverse"));
    CHECK(cuKernelGetFunction(&fill_function, fill));
    CHECK(cuKernelGetFunction(&reverse_function, reverse));
    CHECK(cuLibraryGetGlobal(&symbol, &symbol_size, library, "offset"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocHost((void **)&result, COUNT * sizeof(double)));
    CHECK(cuMemAlloc(&values, COUNT * sizeof(double)));

    int wrong = ask_of(fill_function, reverse_function);

    CHECK(cuMemcpyHtoDAsync(symbol, &offset, sizeof offset, stream));
    void *fill_parameters[] = {&values, &count, &range}, *reverse_parameters[] = {&values, &count};
    CHECK(cuLaunchKernel((CUfunction)fill, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, fill_parameters, NULL));
    CUlaunchConfig config = {.gridDimX = BLOCKS,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = THREADS,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = THREADS * sizeof(double),
                             .hStream = stream};
    CHECK(cuLaunchKernelEx(&config, reverse_function, reverse_parameters, NULL));
    CHECK(cuMemcpyDtoHAsync(result, values, COUNT * sizeof(double), stream));
    CHECK(cuStreamSynchronize(stream));
    wrong += wrong_values("library from a fat binary", result, range, offset);

    CHECK(cuMemFree(values));
    CHECK(cuMemFreeHost(result));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuLibraryUnload(library));
    CHECK(cuCtxPopCurrent(&context));
    CHECK(cuDevicePrimaryCtxRelease(device));
    return wrong;
}

/* PTX that cannot be compiled must not load, and the log must say why. */
static int try_bad_ptx(CUdevice device)
{
    static const char bad[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry broken()\n{\n    frobnicate.s32 %r1, %r2;\n    ret;\n}\n";
    char log[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *option_values[] = {log, (void *)sizeof log};
    CUcontext context;
    CUmodule module;

    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CUresult result = cuModuleLoadDataEx(&module, bad, 2, options, option_values);
    int good = result == CUDA_ERROR_INVALID_PTX && log[0] != 0;

    printf("broken PTX: %s\n", good ? "refused, with a reason" : "wrong result");
    if (!good) {
        fprintf(stderr, "driver_api: broken PTX gave %d and the log '%s'\n", (int)result, log);
    }
    CHECK(cuDevicePrimaryCtxRelease(device));
    return !good;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("driver_api", "", argc, argv);
    int version = 0, count = 0, wrong = 0;
    CUdevice device;
    char name[256] = "";

    CHECK(cuInit(0));
    CHECK(cuDriverGetVersion(&version));
    CHECK(cuDeviceGetCount(&count));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    wrong += version < 12000 || count < 1 || name[0] == 0;
    wrong += try_module(device);
    wrong += try_library(device);
    wrong += try_bad_ptx(device);
    return example_end(&example, wrong == 0);
}
