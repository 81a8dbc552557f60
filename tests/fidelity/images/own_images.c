/*
 * own_images.c - images in the program's own file, where compilers put them: loaded as libraries, as modules, as both, in
 * several contexts, unloaded and loaded again; good ones, and such as no driver takes.
 *
 *   own_images [unused]
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

/* --- the images, as nvcc lays them out ------------------------------------------------------------------------------ */

#define TEXT 2048

struct image {
    struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } container;
    struct {
        uint16_t kind, version;
        uint32_t header_size;
        uint64_t payload_size;
        uint32_t compressed_size, options;
        uint16_t ptx_minor, ptx_major;
        uint32_t architecture, name, name_size;
        uint64_t flags, reserved, size;
    } entry;
    char text[TEXT];
};

#define IMAGE(kind_, ptx)                                                                                    \
    {                                                                                                        \
        {0xba55ed50, 1, 16, sizeof(struct image) - 16},                                                      \
            {kind_, 0x0101, 64, TEXT, 0, 0, 0, 7, 75, 0, 0, 0x11, 0, 0}, ptx                                 \
    }

#define GOOD(name)                                                                                           \
    ".version 7.0\n.target sm_75\n.address_size 64\n"                                                        \
    ".visible .global .align 4 .u32 " name "_count = 7;\n.visible .const .align 4 .b8 " name "_table[24];\n" \
    ".visible .entry " name "_first(.param .u64 p, .param .u32 v)\n{\n"                                      \
    ".reg .b64 %rd<3>;\n.reg .b32 %r<4>;\nld.param.u64 %rd1, [p];\nld.param.u32 %r1, [v];\n"                 \
    "atom.global.add.u32 %r2, [" name "_count], %r1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n"                 \
    ".visible .entry " name                                                                                  \
    "_second(.param .align 8 .b8 s[40], .param .u8 b) .maxntid 64, 1, 1\n{\nret;\n}\n"

static const struct image images[] = {
    IMAGE(1, GOOD("a")),
    IMAGE(1, GOOD("b")),
    IMAGE(1, GOOD("c")),
    IMAGE(
        1,
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\nnothing.like.this %r1;\n}\n"),
    IMAGE(2, "this is no machine code"),
    IMAGE(1, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b8 vast[100000000];\n"
             ".visible .entry k()\n{\nret;\n}\n"),
    IMAGE(1, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .attribute(.managed) .align 4 "
             ".u32 both = 3;\n"
             ".visible .entry k()\n{\nret;\n}\n"),
    IMAGE(1, GOOD("a")),
};
/* So large that its bytes are sent only if the server lacks them. */
static const struct {
    struct image image;
    char blanks[100000];
} __attribute__((aligned(4096)))
large = {{{0xba55ed50, 1, 16, sizeof large - 16},
          {1, 0x0101, 64, TEXT + sizeof large.blanks, 0, 0, 0, 7, 75, 0, 0, 0x11, 0, 0},
          GOOD("d")},
         {0}};
static const struct image cut = {{0xba55ed50, 1, 16, 1ull << 40}, {0}, ""};

struct wrapper {
    uint32_t magic, version;
    const void *container, *prelinked;
};
#define WRAPPER(image)                                                                                       \
    {                                                                                                        \
        0x466243b1, 1, &(image), NULL                                                                        \
    }
static struct wrapper wrappers[]
    __attribute__((section(".nvFatBinSegment"), used)) = {WRAPPER(images[0]),
                                                          WRAPPER(images[1]),
                                                          WRAPPER(images[2]),
                                                          WRAPPER(images[3]),
                                                          WRAPPER(images[4]),
                                                          WRAPPER(images[5]),
                                                          WRAPPER(images[6]),
                                                          WRAPPER(images[7]),
                                                          WRAPPER(cut),
                                                          WRAPPER(large),
                                                          {0x466243b1, 1, (const void *)16, NULL},
                                                          {0x466243b1, 9, &images[0], NULL},
                                                          {0, 0, NULL, NULL}};
enum { A, B, C, WRONG, MACHINE_CODE, VAST, MANAGED, A_AGAIN, CUT, LARGE };

/* --- what is asked of them --------------------------------------------------------------------------------------------- */

static void about(CUfunction function)
{
    size_t offset, size;
    printf("   ");
    for (int i = 0; i < 16; i++) {
        int value = -1;
        const CUresult result = cuFuncGetAttribute(&value, (CUfunction_attribute)i, function);
        printf(" %d:%d", result, value);
    }
    for (size_t i = 0; cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++)
        printf(" %zu+%zu", offset, size);
    printf("\n");
}

static unsigned run(CUfunction function, unsigned value)
{
    CUdeviceptr memory;
    unsigned result = 0;
    void *parameters[] = {&memory, &value};
    if (cuMemAlloc_v2(&memory, sizeof result) != CUDA_SUCCESS)
        return 77777;
    CUresult status = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    if (status == CUDA_SUCCESS)
        status = cuMemcpyDtoH_v2(&result, memory, sizeof result);
    cuMemFree_v2(memory);
    return status == CUDA_SUCCESS ? result : 10000 + (unsigned)status;
}

static void variable(const char *what, CUresult result, CUdeviceptr address, size_t size)
{
    unsigned value = 0;
    printf("    %s: %d", what, result);
    if (result == CUDA_SUCCESS) {
        result = cuMemcpyDtoH_v2(&value, address, sizeof value);
        printf(", %zu bytes, %d: %u", size, result, value);
        value += 100;
        result = cuMemcpyHtoD_v2(address, &value, sizeof value);
        printf(", written %d", result);
    }
    printf("\n");
}

static CUlibrary library_of(int image, char name)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL, none = NULL;
    CUfunction function = NULL;
    CUmodule module = NULL;
    CUdeviceptr address = 0;
    size_t size = 0;
    unsigned count = 0;
    char text[32];
    CUresult result = cuLibraryLoadData(&library, &wrappers[image], NULL, NULL, 0, NULL, NULL, 0);
    printf("library %d: %d\n", image, result);
    if (result != CUDA_SUCCESS)
        return NULL;
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%c_%s", name, i ? "second" : "first");
        printf("  %s: %d", text, cuLibraryGetKernel(&kernel, library, text));
        printf(", its function: %d\n", kernel ? cuKernelGetFunction(&function, kernel) : CUDA_SUCCESS);
        if (function)
            about(function);
        if (function && !i)
            printf("    counts %u, %u\n", run(function, 1), run(function, 5));
    }
    printf("  none: %d", cuLibraryGetKernel(&none, library, "none"));
    printf(", count: %d", cuLibraryGetKernelCount(&count, library));
    printf(" %u, module: %d", count, cuLibraryGetModule(&module, library));
    printf(", unloading that: %d\n", module ? cuModuleUnload(module) : CUDA_SUCCESS);
    snprintf(text, sizeof text, "%c_count", name);
    result = cuLibraryGetGlobal(&address, &size, library, text);
    variable(text, result, address, size);
    result = cuLibraryGetGlobal(&address, &size, library, "nowhere");
    printf("    nowhere: %d\n", result);
    snprintf(text, sizeof text, "%c_table", name);
    result = cuLibraryGetGlobal(&address, &size, library, text);
    printf("    %s: %d, %zu bytes\n", text, result, size);
    return library;
}

static CUmodule module_of(int image, char name, CUfunction *first)
{
    CUmodule module = NULL, back = NULL;
    CUfunction function = NULL, none = NULL;
    CUdeviceptr address = 0;
    size_t size = 0;
    unsigned count = 0;
    char text[32];
    CUresult result = cuModuleLoadData(&module, &wrappers[image]);
    printf("module %d: %d\n", image, result);
    if (result != CUDA_SUCCESS)
        return NULL;
    snprintf(text, sizeof text, "%c_second", name);
    result = cuModuleGetFunction(&function, module, text);
    printf("  %s: %d\n", text, result);
    if (function)
        about(function);
    snprintf(text, sizeof text, "%c_first", name);
    result = cuModuleGetFunction(&function, module, text);
    printf("  %s: %d", text, result);
    result = cuFuncGetModule(&back, function);
    printf(", of the module: %d %d\n", result, back == module);
    printf("    counts %u, %u\n", run(function, 2), run(function, 3));
    if (first)
        *first = function;
    printf("  none: %d", cuModuleGetFunction(&none, module, "none"));
    printf(", count: %d", cuModuleGetFunctionCount(&count, module));
    printf(" %u\n", count);
    snprintf(text, sizeof text, "%c_count", name);
    result = cuModuleGetGlobal_v2(&address, &size, module, text);
    variable(text, result, address, size);
    result = cuModuleGetGlobal_v2(&address, &size, module, "nowhere");
    printf("    nowhere: %d\n", result);
    return module;
}

static void bad(int image)
{
    CUlibrary library = NULL;
    CUmodule module = NULL;
    CUkernel kernel;
    CUfunction function;
    CUdeviceptr address = 0;
    size_t size = 0;
    CUresult result = cuLibraryLoadData(&library, &wrappers[image], NULL, NULL, 0, NULL, NULL, 0);
    printf("library %d: %d", image, result);
    if (result == CUDA_SUCCESS) {
        printf(", kernel: %d", cuLibraryGetKernel(&kernel, library, "k"));
        result = cuLibraryGetGlobal(&address, &size, library, image == VAST ? "vast" : "both");
        printf(", variable: %d of %zu", result, size);
        printf(", unloaded: %d", cuLibraryUnload(library));
    }
    result = cuModuleLoadData(&module, &wrappers[image]);
    printf("; module: %d", result);
    if (result == CUDA_SUCCESS) {
        printf(", function: %d", cuModuleGetFunction(&function, module, "k"));
        result = cuModuleGetGlobal_v2(&address, &size, module, image == VAST ? "vast" : "both");
        printf(", variable: %d of %zu", result, size);
        printf(", unloaded: %d", cuModuleUnload(module));
    }
    printf("\n");
}

/* The same image several times and in both forms: each is its own. */
static void both(void)
{
    CUlibrary libraries[2];
    CUmodule modules[2];
    CUdeviceptr at[4] = {0};
    size_t size;
    CUfunction function;
    libraries[0] = library_of(C, 'c');
    modules[0] = module_of(C, 'c', &function);
    modules[1] = module_of(C, 'c', NULL);
    libraries[1] = library_of(C, 'c');
    for (int i = 0; i < 2; i++) {
        cuLibraryGetGlobal(&at[i], &size, libraries[i], "c_count");
        cuModuleGetGlobal_v2(&at[2 + i], &size, modules[i], "c_count");
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            printf("%s", at[i] == at[j] ? "the same " : "apart ");
    printf("\n");
    printf("unloaded: %d\n", cuModuleUnload(modules[0]));
    printf("again: %d, its function: %d\n", cuModuleUnload(modules[0]),
           cuModuleGetFunction(&function, modules[0], "c_first"));
    printf("the other: %d\n", cuModuleGetFunction(&function, modules[1], "c_first"));
    printf("counts %u\n", run(function, 1));
    printf("unloaded: %d %d %d\n", cuModuleUnload(modules[1]), cuLibraryUnload(libraries[0]),
           cuLibraryUnload(libraries[1]));
    printf("again: %d\n", cuLibraryUnload(libraries[1]));
}

static void of_memory(CUdeviceptr address)
{
    unsigned type = 0;
    printf("    memory: %d", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    printf(" %u, set: %d\n", type, cuMemsetD8_v2(address, 1, 1));
}

/* What is found by way of a library's module goes with the library. */
static void unloading(void)
{
    const int which[] = {C, MANAGED};
    const char *const kernels[] = {"c_first", "k"}, *const variables[] = {"c_count", "both"};
    for (int i = 0; i < 2; i++) {
        CUlibrary library = NULL;
        CUmodule module = NULL, alone = NULL;
        CUfunction function = NULL, of_alone = NULL;
        CUdeviceptr address = 0, of_library = 0, again = 0;
        size_t size = 0;
        int value = 0;
        printf("library %d: %d", which[i],
               cuLibraryLoadData(&library, &wrappers[which[i]], NULL, NULL, 0, NULL, NULL, 0));
        printf(", module: %d %d", cuLibraryGetModule(&module, library),
               cuModuleLoadData(&alone, &wrappers[which[i]]));
        printf(", function: %d %d", cuModuleGetFunction(&function, module, kernels[i]),
               cuModuleGetFunction(&of_alone, alone, kernels[i]));
        printf(", variable: %d", cuModuleGetGlobal_v2(&address, &size, module, variables[i]));
        printf(" %d", cuLibraryGetGlobal(&of_library, &size, library, variables[i]));
        printf(" %d", cuModuleGetGlobal_v2(&again, &size, alone, variables[i]));
        printf(", the same: %d %d\n", address == of_library, address == again);
        of_memory(address);
        of_memory(again);
        printf("unloaded: %d %d\n", cuLibraryUnload(library), cuModuleUnload(alone));
        of_memory(address);
        of_memory(again);
        printf("  attribute: %d",
               cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
        printf(" %d", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, of_alone));
        printf(", variable: %d", cuModuleGetGlobal_v2(&address, &size, module, variables[i]));
        printf(", counts %u %u\n", run(function, 1), run(of_alone, 1));
    }
}

/* A library outlives a context: what is asked of it in the next one is of that one. */
static void again(CUlibrary library)
{
    CUkernel kernel = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL, of_module = NULL;
    CUdeviceptr address = 0;
    size_t size = 0;
    printf("kernel: %d", cuLibraryGetKernel(&kernel, library, "a_first"));
    printf(", its function: %d", cuKernelGetFunction(&function, kernel));
    printf(", counts %u, %u\n", run(function, 1), run((CUfunction)kernel, 2));
    printf("module: %d", cuLibraryGetModule(&module, library));
    printf(", function: %d", cuModuleGetFunction(&of_module, module, "a_first"));
    printf(", counts %u\n", run(of_module, 3));
    CUresult result = cuModuleGetGlobal_v2(&address, &size, module, "a_count");
    variable("a_count", result, address, size);
    result = cuLibraryGetGlobal(&address, &size, library, "a_count");
    variable("a_count", result, address, size);
}

/* Contexts that end before the program has asked for any image: what was made ready for the first goes with it. */
static int unused(CUdevice device)
{
    CUcontext context;
    unsigned value = 0;
    CUdeviceptr memory = 0;
    for (int i = 0; i < 2; i++) {
        printf("made: %d\n", cuCtxCreate_v2(&context, 0, device));
        if (i == 0) /* as a library that is unloaded: an image in it need not be there for longer */
            printf("unmapped: %d\n", munmap((void *)(uintptr_t)&large, sizeof large / 4096 * 4096));
        printf("destroyed: %d\n", cuCtxDestroy_v2(context));
    }
    for (int i = 0; i < 2; i++) {
        printf("retained: %d", cuDevicePrimaryCtxRetain(&context, device));
        printf(", current: %d\n", cuCtxSetCurrent(context));
        printf("memory: %d\n", cuMemAlloc_v2(&memory, sizeof value));
        printf("set: %d", cuMemsetD32_v2(memory, 5, 1));
        printf(", got: %d", cuMemcpyDtoH_v2(&value, memory, sizeof value));
        printf(" %u, reset: %d\n", value, cuDevicePrimaryCtxReset_v2(device));
    }
    printf("retained: %d", cuDevicePrimaryCtxRetain(&context, device));
    printf(", current: %d\n", cuCtxSetCurrent(context));
    for (int image = A; image <= CUT; image++)
        bad(image);
    printf("done: %d\n", cuCtxSynchronize());
    return 0;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext primary, second;
    CUfunction function;
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS || unused(device);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(primary) != CUDA_SUCCESS)
        return 1;
    CUlibrary library = library_of(A, 'a');
    (void)library_of(A_AGAIN, 'a');
    (void)library_of(LARGE, 'd');
    CUmodule module = module_of(B, 'b', &function);
    for (int image = WRONG; image <= CUT; image++)
        if (image != A_AGAIN)
            bad(image);
    both();
    unloading();

    printf("another context: %d\n", cuCtxCreate_v2(&second, 0, device));
    (void)module_of(B, 'b', NULL);
    (void)library_of(B, 'b');
    printf("destroyed: %d\n", cuCtxDestroy_v2(second));
    printf("in the first: %d\n", cuCtxSetCurrent(primary));
    printf("counts %u\n", run(function, 1));

    printf("reset: %d\n", cuDevicePrimaryCtxReset_v2(device));
    printf("the module: %d\n", cuModuleGetFunction(&function, module, "b_first"));
    printf("retained: %d, current: %d\n", cuDevicePrimaryCtxRetain(&primary, device),
           cuCtxSetCurrent(primary));
    again(library);
    (void)module_of(B, 'b', NULL);
    (void)module_of(A, 'a', NULL);
    (void)library_of(B, 'b');
    printf("unloaded: %d\n", cuLibraryUnload(library));
    printf("done: %d\n", cuCtxSynchronize());
    return 0;
}
