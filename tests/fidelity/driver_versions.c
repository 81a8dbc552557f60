/*
 * driver_versions.c - what a program sees of drivers of different ages (SOFTGPU_DRIVER_VERSION): which functions there are, and
 * that kernels of every form of image get their parameters where they expect them, though drivers before 12.4 cannot tell
 * where that is.
 *
 *   driver_versions PTX FATBIN    (driver_versions.ptx, and a fat binary of it, compressed)
 *
 * It links to no driver and takes all functions by cuGetProcAddress, as the CUDA runtime does: what is missing in one is
 * then a name that is not found.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generated/proto/api_table.h"
#include "proto/api/proc_address.h"
#include "tests/fidelity/must.h"

static CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* The function of that symbol as CUDA 12.0 has it. */
static void *find(const char *symbol)
{
    char name[64];
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    snprintf(name, sizeof name, "%s", symbol);
    char *behind = strstr(name, "_v2");
    if (behind)
        *behind = '\0';
    if (look_up(name, &function, 12000, 0, &status) == CUDA_SUCCESS && function)
        return function;
    printf("%s is not found\n", symbol);
    exit(1);
}
#define DRIVER(name) ((__typeof__(&name))find(#name))

/* --- which functions there are ------------------------------------------------------------------------------------ */

static void list_functions(void)
{
    static const int asked[] = {11080, 12000, 12020, 12040, 12080, 13000};
    for (size_t v = 0; v < sizeof asked / sizeof *asked; v++)
        for (int i = 0; i < RG_API_COUNT; i++) {
            if (i && strcmp(rg_proc_entries[i].name, rg_proc_entries[i - 1].name) == 0)
                continue;
            void *function[2];
            CUdriverProcAddressQueryResult status[2];
            for (unsigned stream = 0; stream < 2; stream++)
                CHECK(look_up(rg_proc_entries[i].name, &function[stream], asked[v],
                              stream ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                     : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                              &status[stream]));
            printf("%s for %d: %d %s, %d %s%s\n", rg_proc_entries[i].name, asked[v], (int)status[0],
                   function[0] ? "found" : "-", (int)status[1], function[1] ? "found" : "-",
                   function[0] && function[0] == function[1] ? ", the same" : "");
        }
}

static void list_attributes(void)
{
    CUdevice device;
    CHECK(DRIVER(cuDeviceGet)(&device, 0));
    for (int i = 120; i < 160; i++) {
        int value = 0;
        CUresult result = DRIVER(cuDeviceGetAttribute)(&value, (CUdevice_attribute)i, device);
        printf("device attribute %d: %d %d\n", i, (int)result, result == CUDA_SUCCESS ? value : 0);
    }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static CUdeviceptr memory;

/* Launches both kernels; `with`: makes this launch's values differ from others'. */
static void launch(const char *what, CUfunction nothing, CUfunction mixed, unsigned with)
{
    unsigned char c = (unsigned char)(7 + with);
    unsigned s[6] = {0, 0, 0, 0, 1000 + with, 0};
    float f = 1.5f + (float)with;
    unsigned short h = (unsigned short)(300 + with);
    unsigned long long last = 0x123456789aull + with;
    void *parameters[] = {&memory, &c, s, &f, &h, &last};
    unsigned out[6] = {0};
    CHECK(DRIVER(cuMemsetD8_v2)(memory, 0, sizeof out));
    CHECK(DRIVER(cuLaunchKernel)(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(DRIVER(cuLaunchKernel)(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(DRIVER(cuMemcpyDtoH_v2)(out, memory, sizeof out));
    float read;
    memcpy(&read, &out[2], sizeof read);
    printf("%s: %u %u %.1f %u %llx\n", what, out[0], out[1], (double)read, out[3],
           out[4] | (unsigned long long)out[5] << 32);
}

static void by_module(const char *what, const void *image, unsigned with)
{
    CUmodule module;
    CUfunction nothing, mixed;
    CHECK(DRIVER(cuModuleLoadData)(&module, image));
    CHECK(DRIVER(cuModuleGetFunction)(&nothing, module, "nothing"));
    CHECK(DRIVER(cuModuleGetFunction)(&mixed, module, "mixed"));
    printf("%s: no such function: %d\n", what,
           (int)DRIVER(cuModuleGetFunction)(&(CUfunction){NULL}, module, "absent"));
    launch(what, nothing, mixed, with);
    CHECK(DRIVER(cuModuleUnload)(module));
}

static void by_library(const char *what, const void *image, unsigned with)
{
    CUlibrary library;
    CUkernel nothing, mixed;
    CUfunction function;
    CUmodule module;
    CHECK(DRIVER(cuLibraryLoadData)(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(DRIVER(cuLibraryGetKernel)(&nothing, library, "nothing"));
    CHECK(DRIVER(cuLibraryGetKernel)(&mixed, library, "mixed"));
    launch(what, (CUfunction)nothing, (CUfunction)mixed, with);
    CHECK(DRIVER(cuKernelGetFunction)(&function, mixed));
    launch("its function", (CUfunction)nothing, function, with + 1);
    CHECK(DRIVER(cuLibraryGetModule)(&module, library));
    CHECK(DRIVER(cuModuleGetFunction)(&function, module, "mixed"));
    launch("its module's function", (CUfunction)nothing, function, with + 2);
    CHECK(DRIVER(cuLibraryUnload)(library));
}

static void by_linker(const char *ptx, unsigned with)
{
    CUlinkState state;
    void *cubin;
    size_t size;
    CHECK(DRIVER(cuLinkCreate_v2)(0, NULL, NULL, &state));
    CHECK(DRIVER(cuLinkAddData_v2)(state, CU_JIT_INPUT_PTX, (void *)(size_t)ptx, strlen(ptx) + 1, "some", 0,
                                   NULL, NULL));
    CHECK(DRIVER(cuLinkComplete)(state, &cubin, &size));
    by_module("linked", cubin, with);
    CHECK(DRIVER(cuLinkDestroy)(state));
}

/* Another kernel of the same name, perhaps at the same address, with other parameters. */
static void by_turns(void)
{
    static const char *const texts[] = {
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 v)\n"
        "{ .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; ld.param.u32 %v, [v]; st.global.u32 [%a], %v; "
        "ret; }",
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u16 v, .param .u64 p)\n"
        "{ .reg .b64 %a; .reg .u16 %v; ld.param.u64 %a, [p]; ld.param.u16 %v, [v]; st.global.u16 [%a], %v; "
        "ret; }"};
    for (unsigned i = 0; i < 8; i++) {
        CUmodule module;
        CUfunction function;
        unsigned value = 40 + i, out = 0;
        void *parameters[2] = {i % 2 ? (void *)&value : (void *)&memory,
                               i % 2 ? (void *)&memory : (void *)&value};
        CHECK(DRIVER(cuModuleLoadData)(&module, texts[i % 2]));
        CHECK(DRIVER(cuModuleGetFunction)(&function, module, "k"));
        CHECK(DRIVER(cuMemsetD8_v2)(memory, 0, sizeof out));
        CHECK(DRIVER(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        CHECK(DRIVER(cuMemcpyDtoH_v2)(&out, memory, sizeof out));
        printf("in turn %u: %u\n", i, out);
        CHECK(DRIVER(cuModuleUnload)(module));
    }
}

/* --- PTX of every version ----------------------------------------------------------------------------------------- */

static void load_versions(void)
{
    for (unsigned version = 78; version <= 90; version++) {
        char text[256], log[512] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)sizeof log};
        CUmodule module = NULL;
        snprintf(text, sizeof text,
                 "// some\n.version %u.%u\n.target sm_75\n.address_size 64\n.visible .entry e() { ret; }\n",
                 version / 10, version % 10);
        CUresult result = DRIVER(cuModuleLoadDataEx)(&module, text, 2, options, values);
        printf("PTX %u.%u: %d %s\n", version / 10, version % 10, (int)result, log);
        if (result == CUDA_SUCCESS)
            CHECK(DRIVER(cuModuleUnload)(module));
    }
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data = calloc(1, 1 << 16);
    *size = file && data ? fread(data, 1, (1 << 16) - 1, file) : 0;
    if (file)
        fclose(file);
    if (!*size)
        printf("%s cannot be read\n", path);
    return data;
}

int main(int argc, char **argv)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    look_up = library ? (__typeof__(look_up))dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!look_up || argc != 3) {
        fprintf(stderr, look_up ? "usage: driver_versions PTX FATBIN\n" : "there is no driver\n");
        return 1;
    }
    size_t size, ptx_size;
    char *ptx = read_file(argv[1], &ptx_size), *fatbin = read_file(argv[2], &size);
    list_functions();
    int version = 0;
    CUcontext context;
    CHECK(DRIVER(cuDriverGetVersion)(&version));
    CHECK(DRIVER(cuInit)(0));
    printf("version %d\n", version);
    list_attributes();
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
    by_module("PTX", ptx, 0);
    by_module("fat binary", fatbin, 10);
    by_library("library of PTX", ptx, 20);
    by_library("library", fatbin, 30);
    by_linker(ptx, 40);
    by_turns();
    load_versions();
    CHECK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
    free(ptx);
    free(fatbin);
    return 0;
}
