/*
 * startup.c - how long a program of many device libraries takes to start, as frameworks do: most register their fat
 * binaries with the runtime as nvcc's code does, some load them themselves.
 *
 *   startup [LIBRARIES]      60 unless said otherwise
 *
 * Two thirds of the libraries are the runtime's, one sixth are loaded by cuLibraryLoadData, one sixth by
 * cuModuleLoadData. Two of each library's kernels are looked up, asked for their attributes, and launched; one variable
 * is looked up. Prints a measurement a line, as measure.h says: until the first launch has been made, and until the last
 * result is there. Checks the results.
 */
#include "measure.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARIES STARTUP_LIBRARIES
#define USED      2 /* kernels of each */
#define COUNT     256

struct wrapper {
    unsigned magic, version;
    const void *container, *unused;
};
extern const struct wrapper startup_wrappers[LIBRARIES];

/* The runtime's registration, which nvcc's code calls and no header declares. */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads,
                            void *tid, void *bid, void *block, void *grid, int *size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global);

enum way { RUNTIME, LIBRARY, MODULE };

struct library {
    enum way way;
    char kernel[USED][32], table[32];
    void **registered;
    char host[USED], host_table[64]; /* their addresses stand for what is registered */
    CUfunction function[USED];
};

static struct library libraries[LIBRARIES];
static int n_libraries = LIBRARIES;

static void good(int status, const char *what)
{
    if (status)
        fail("%s: error %d", what, status);
}

#define CHECK(call) good((int)(call), #call)

static void prepare(struct library *library, int number)
{
    library->way = number % 6 < 4 ? RUNTIME : number % 6 == 4 ? LIBRARY : MODULE;
    for (int i = 0; i < USED; i++)
        snprintf(library->kernel[i], sizeof library->kernel[i], "lib%02d_kernel%d", number, 10 + 11 * i);
    snprintf(library->table, sizeof library->table, "lib%02d_table", number);
    if (library->way != RUNTIME)
        return;
    library->registered = __cudaRegisterFatBinary((void *)&startup_wrappers[number]);
    for (int i = 0; i < USED; i++)
        __cudaRegisterFunction(library->registered, &library->host[i], library->kernel[i], library->kernel[i],
                               -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(library->registered, library->host_table, library->table, library->table, 0, 64, 0, 0);
    __cudaRegisterFatBinaryEnd(library->registered);
}

static void load(struct library *library, int number)
{
    const void *image = &startup_wrappers[number];
    CUdeviceptr address;
    size_t size;
    if (library->way == LIBRARY) {
        CUlibrary loaded;
        CUkernel kernel;
        CHECK(cuLibraryLoadData(&loaded, image, NULL, NULL, 0, NULL, NULL, 0));
        for (int i = 0; i < USED; i++) {
            CHECK(cuLibraryGetKernel(&kernel, loaded, library->kernel[i]));
            CHECK(cuKernelGetFunction(&library->function[i], kernel));
        }
        CHECK(cuLibraryGetGlobal(&address, &size, loaded, library->table));
    } else {
        CUmodule loaded;
        CHECK(cuModuleLoadData(&loaded, image));
        for (int i = 0; i < USED; i++)
            CHECK(cuModuleGetFunction(&library->function[i], loaded, library->kernel[i]));
        CHECK(cuModuleGetGlobal(&address, &size, loaded, library->table));
    }
    if (size != 64)
        fail("%s has %zu bytes", library->table, size);
}

/* Asks what libraries ask before they launch, and launches. */
static void use(struct library *library, float *data)
{
    float factor = 1;
    int count = COUNT;
    void *parameters[] = {&data, &factor, &count};
    for (int i = 0; i < USED; i++) {
        if (library->way == RUNTIME) {
            struct cudaFuncAttributes attributes;
            CHECK(cudaFuncGetAttributes(&attributes, &library->host[i]));
            CHECK(cudaLaunchKernel(&library->host[i], (struct dim3){1, 1, 1}, (struct dim3){COUNT, 1, 1},
                                   parameters, 0, NULL));
        } else {
            int registers;
            CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, library->function[i]));
            CHECK(cuLaunchKernel(library->function[i], 1, 1, 1, COUNT, 1, 1, 0, NULL, parameters, NULL));
        }
    }
}

static void print(const char *name, uint64_t ns)
{
    static struct samples samples;
    samples_add(&samples, (double)ns);
    samples_print(&samples, name, "ns");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_libraries = atoi(argv[1]);
    if (n_libraries < 6 || n_libraries > LIBRARIES)
        fail("the number of libraries is 6 to %d", LIBRARIES);
    const uint64_t began = now_ns();
    for (int i = 0; i < n_libraries; i++)
        prepare(&libraries[i], i);

    int devices;
    struct cudaDeviceProp properties;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaSetDevice(0));
    float *data, results[COUNT];
    CHECK(cudaMalloc((void **)&data, sizeof results));
    CHECK(cudaMemset(data, 0, sizeof results));
    for (int i = 0; i < n_libraries; i++) {
        if (libraries[i].way != RUNTIME)
            load(&libraries[i], i);
        use(&libraries[i], data);
        if (i == 0)
            print("startup.first_launch", now_ns() - began);
    }
    print("startup.last_launch", now_ns() - began);
    CHECK(cudaMemcpy(results, data, sizeof results, cudaMemcpyDeviceToHost));
    print("startup.result", now_ns() - began);
    for (int i = 0; i < COUNT; i++)
        if (results[i] != (float)(n_libraries * (10 + 21)))
            fail("element %d is %g", i, (double)results[i]);
    for (int i = 0; i < n_libraries; i++)
        if (libraries[i].way == RUNTIME)
            __cudaUnregisterFatBinary(libraries[i].registered);
    return 0;
}
