/*
 * compiling.c - one thread loads device code that takes long to compile, another one launches kernels and waits for them
 * meanwhile: it must not stand behind the first. Each image is a new one, so that nobody has it compiled already.
 *
 *   compiling
 *
 * A pause of the second thread counts if it is more than half of what the first one took: what makes both slow is no pause.
 */
#include "tests/fidelity/must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 800, KERNELS = 2, ATTEMPTS = 3 };

static const char small[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                            ".visible .entry set(.param .u64 at, .param .u32 value)\n"
                            "{\n"
                            "  .reg .u64 %a; .reg .u32 %v;\n"
                            "  ld.param.u64 %a, [at];\n"
                            "  ld.param.u32 %v, [value];\n"
                            "  cvta.to.global.u64 %a, %a;\n"
                            "  st.global.u32 [%a], %v;\n"
                            "  ret;\n"
                            "}\n";

static CUcontext context;
static CUmodule set_module;
static CUfunction set;
static CUdeviceptr memory;
static atomic_bool stop;
static bool wrong;             /* a result */
static uint64_t longest_pause; /* of the thread that goes on, in ns */

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* --- device code that takes long --------------------------------------------------------------------------------- */

/* Kernels of many steps, each with a number of its own. */
static char *long_image(uint32_t *expected)
{
    static uint32_t seed;
    char *text;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (seed == 0)
        seed = (uint32_t)(now() ^ (uint64_t)getpid() << 20);
    fprintf(out, ".version 6.0\n.target sm_50\n.address_size 64\n");
    for (int k = 0; k < KERNELS; k++) {
        uint32_t value = 1;
        fprintf(out, ".visible .entry long%d(.param .u64 at)\n{\n  .reg .u64 %%a; .reg .u32 %%v, %%w;\n", k);
        fprintf(out,
                "  ld.param.u64 %%a, [at];\n  cvta.to.global.u64 %%a, %%a;\n  ld.global.u32 %%v, [%%a];\n");
        for (int i = 0; i < STEPS; i++) {
            seed = seed * 1664525u + 1013904223u;
            fprintf(out, "  mul.lo.u32 %%w, %%v, %u;\n  xor.b32 %%v, %%w, %u;\n", seed | 1, seed >> 3);
            value = value * (seed | 1) ^ seed >> 3;
        }
        fprintf(out, "  st.global.u32 [%%a], %%v;\n  ret;\n}\n");
        expected[k] = value;
    }
    fclose(out);
    return text;
}

static void run(CUfunction function, uint32_t expected, CUstream stream)
{
    uint32_t value = 1;
    void *parameters[] = {&memory};
    CHECK(cuMemcpyHtoDAsync_v2(memory, &value, 4, stream));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuMemcpyDtoHAsync_v2(&value, memory, 4, stream));
    CHECK(cuStreamSynchronize(stream));
    wrong |= value != expected;
}

/* --- the thread that goes on ------------------------------------------------------------------------------------- */

static void *go_on(void *argument)
{
    CUdeviceptr own;
    CUstream stream;
    unsigned round = 0;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&own, 4));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    *(atomic_bool *)argument = true;
    for (uint64_t last = now(); !atomic_load(&stop);) {
        unsigned value = 0;
        void *parameters[] = {&own, &(unsigned){++round}};
        CHECK(cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        CHECK(cuMemcpyDtoHAsync_v2(&value, own, 4, stream));
        CHECK(cuStreamSynchronize(stream));
        if (value != round)
            printf("round %u gave %u\n", round, value);
        const uint64_t time = now();
        longest_pause = time - last > longest_pause ? time - last : longest_pause;
        last = time;
    }
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuMemFree_v2(own));
    return NULL;
}

/* --- what takes long ------------------------------------------------------------------------------------------------ */

static void load_module(const char *image, const uint32_t *expected)
{
    CUmodule module;
    CUfunction function;
    char name[16];
    CHECK(cuModuleLoadData(&module, image));
    for (int k = 0; k < KERNELS; k++) {
        snprintf(name, sizeof name, "long%d", k);
        CHECK(cuModuleGetFunction(&function, module, name));
        run(function, expected[k], NULL);
    }
    CHECK(cuModuleUnload(module));
}

static void load_library(const char *image, const uint32_t *expected)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    char name[16];
    CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    for (int k = 0; k < KERNELS; k++) {
        snprintf(name, sizeof name, "long%d", k);
        CHECK(cuLibraryGetKernel(&kernel, library, name));
        CHECK(cuKernelGetFunction(&function, kernel));
        run(function, expected[k], NULL);
    }
    CHECK(cuLibraryUnload(library));
}

static void load_and_list(const char *image, const uint32_t *expected)
{
    CUmodule module;
    CUfunction functions[KERNELS];
    (void)expected;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleEnumerateFunctions(functions, KERNELS, module));
    CHECK(cuFuncLoad(functions[0]));
    CHECK(cuModuleUnload(module));
}

static void link_module(const char *image, const uint32_t *expected)
{
    CUlinkState state;
    void *cubin;
    size_t size;
    CHECK(cuLinkCreate_v2(0, NULL, NULL, &state));
    CHECK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)image, strlen(image) + 1, "long", 0,
                           NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    load_module(cubin, expected);
    CHECK(cuLinkDestroy(state));
}

/* Whether the other thread is held up while `call` runs with an image of its own. */
static bool holds_up(const char *name, void (*call)(const char *image, const uint32_t *expected))
{
    pthread_t thread;
    atomic_bool ready = false;
    uint32_t expected[KERNELS];
    char *image = long_image(expected);
    atomic_store(&stop, false);
    longest_pause = 0;
    if (pthread_create(&thread, NULL, go_on, &ready) != 0)
        _exit(1);
    while (!atomic_load(&ready))
        usleep(1000);
    const uint64_t began = now();
    call(image, expected);
    const uint64_t took = now() - began;
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    free(image);
    fprintf(stderr, "%s: %llu ms; longest pause of the other thread: %llu ms\n", name,
            (unsigned long long)(took / 1000000), (unsigned long long)(longest_pause / 1000000));
    return took > 300000000u && longest_pause > took / 2;
}

/* It is held up if it is each time: a machine with much else to do holds up threads too, now and then. */
static void try(const char *name, void (*call)(const char *image, const uint32_t *expected))
{
    bool held_up = true;
    for (int i = 0; i < ATTEMPTS && held_up; i++)
        held_up = holds_up(name, call);
    printf("%s: the results are %s, the other thread %s\n", name, wrong ? "WRONG" : "right",
           held_up ? "was HELD UP" : "went on");
    wrong = false;
}

int main(void)
{
    CUdevice device;
    context = use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuModuleLoadData(&set_module, small));
    CHECK(cuModuleGetFunction(&set, set_module, "set"));
    CHECK(cuMemAlloc_v2(&memory, 4));
    try("a module", load_module);
    try("a library", load_library);
    try("a module whose functions are listed", load_and_list);
    try("linked code", link_module);
    return 0;
}
