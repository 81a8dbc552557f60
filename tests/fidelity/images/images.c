/*
 * images.c - device code of all sizes and kinds: images that are sent at once and those that are named by a digest first,
 * good and bad ones, the same one again, memory that changes right after the load, several threads at once.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .align 4 .b8 %s_table[%d];\n"
    ".visible .entry %s(.param .u64 p, .param .u32 v)\n{\n"
    ".reg .b64 %%rd<2>;\n.reg .b32 %%r<2>;\n"
    "ld.param.u64 %%rd1, [p];\nld.param.u32 %%r1, [v];\nst.global.u32 [%%rd1], %%r1;\nret;\n}\n";

/* PTX of one kernel and one variable, with so many blanks behind it. */
static char *ptx(const char *name, int table, size_t blanks)
{
    char *image = malloc(sizeof text + 200 + blanks);
    int length = sprintf(image, text, name, table, name);
    memset(image + length, ' ', blanks);
    image[(size_t)length + blanks] = 0;
    return image;
}

static int launch(CUfunction function, int value)
{
    CUdeviceptr memory;
    int result = -1;
    void *parameters[] = {&memory, &value};
    if (cuMemAlloc_v2(&memory, sizeof result) != CUDA_SUCCESS)
        return -2;
    CUresult status = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    if (status == CUDA_SUCCESS)
        status = cuMemcpyDtoH_v2(&result, memory, sizeof result);
    cuMemFree_v2(memory);
    return status == CUDA_SUCCESS ? result : -(int)status;
}

static void module_of(const char *name, size_t blanks, int value)
{
    CUmodule module = NULL;
    CUfunction function = NULL, none = NULL;
    CUdeviceptr table = 0;
    size_t size = 0;
    char *image = ptx(name, value, blanks), variable[64];
    CUresult status = cuModuleLoadData(&module, image);
    memset(image, '?', strlen(image)); /* the driver has what it needs */
    free(image);
    printf("module %s with %zu blanks: %d", name, blanks, status);
    printf(", function %d", cuModuleGetFunction(&function, module, name));
    printf(", none %d", cuModuleGetFunction(&none, module, "none"));
    sprintf(variable, "%s_table", name);
    status = cuModuleGetGlobal_v2(&table, &size, module, variable);
    printf(", variable %d of %zu", status, size);
    CUdeviceptr again = 0;
    status = cuModuleGetGlobal_v2(&again, &size, module, variable);
    printf(", again %d %s", status, again == table && table ? "the same" : "another");
    printf(", none %d", cuModuleGetGlobal_v2(&again, &size, module, "none"));
    printf(", result %d", launch(function, value));
    int registers = -1, shared = -1;
    printf(", attributes %d", cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    status = cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    printf(" %d %d, %s", status, shared, registers > 0 ? "registers" : "no registers");
    printf(", unload %d\n", cuModuleUnload(module));
}

/* What a graph's node of it says that its kernel is: by handle where there is one, as the CUDA runtime asks. */
static const char *kernel_of_node(CUfunction function, CUkernel kernel)
{
    CUgraph graph;
    CUgraphNode node;
    CUdeviceptr memory = 0;
    int value = 1;
    void *parameters[] = {&memory, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS ||
        cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params) != CUDA_SUCCESS)
        return "no node";
    params = (CUDA_KERNEL_NODE_PARAMS){0};
    const CUresult status = cuGraphKernelNodeGetParams_v2(node, &params);
    cuGraphDestroy(graph);
    if (status != CUDA_SUCCESS || params.func != function)
        return "another function";
    return params.kern == kernel ? "the kernel" : params.kern ? "another kernel" : "no kernel";
}

static void library_of(const char *name, size_t blanks, int value)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL, again = NULL;
    CUfunction function = NULL, by_module = NULL;
    CUmodule module = NULL;
    CUdeviceptr table = 0;
    size_t size = 0;
    char *image = ptx(name, value, blanks), variable[64];
    CUresult status = cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    memset(image, '?', strlen(image));
    free(image);
    printf("library %s with %zu blanks: %d", name, blanks, status);
    printf(", kernel %d", cuLibraryGetKernel(&kernel, library, name));
    printf(", again %d", cuLibraryGetKernel(&again, library, name));
    printf(" %s", again == kernel ? "the same" : "another");
    printf(", none %d", cuLibraryGetKernel(&again, library, "none"));
    printf(", function %d", cuKernelGetFunction(&function, kernel));
    sprintf(variable, "%s_table", name);
    status = cuLibraryGetGlobal(&table, &size, library, variable);
    printf(", variable %d of %zu", status, size);
    printf(", results %d", launch(function, value));
    printf(" %d", launch((CUfunction)kernel, value + 1));
    int limit = -1;
    status = cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, kernel, 0);
    printf(", set %d", status);
    status = cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function);
    printf(", carveout %d %d", status, limit);
    status = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 25);
    printf(", set %d", status);
    status = cuKernelGetAttribute(&limit, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kernel, 0);
    printf(", carveout %d %d", status, limit);
    status = cuLibraryGetModule(&module, library);
    printf(", module %d", status);
    printf(", its function %d", cuModuleGetFunction(&by_module, module, name));
    printf(", result %d", launch(by_module, value + 2));
    printf(", in graphs %s, %s, %s", kernel_of_node(function, kernel), kernel_of_node(by_module, kernel),
           kernel_of_node((CUfunction)kernel, kernel));
    printf(", unload %d\n", cuLibraryUnload(library));
}

/* Images that no driver takes. */
static void bad(const char *what, const void *data, size_t size)
{
    CUmodule module;
    CUlibrary library;
    char *image = malloc(size + 64);
    memset(image + size, 0, 64);
    memcpy(image, data, size);
    for (int again = 0; again < 2; again++) {
        CUresult as_module = cuModuleLoadData(&module, image);
        CUresult as_library = cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
        printf("%s: module %d, library %d\n", what, as_module, as_library);
    }
    free(image);
}

static void bad_images(void)
{
    const size_t size = 300000;
    char *image = malloc(size);
    memset(image, 'x', size);
    bad("letters", image, size);
    memset(image, ' ', size);
    memcpy(image, ".version 7.0\n.target sm_50\n.address_size 64\nnonsense", 52);
    bad("long nonsense", image, size);
    bad("short nonsense", image, 52);
    memset(image, 0, size);
    const unsigned magic = 0xba55ed50u;
    const unsigned short version = 1, header = 16;
    const unsigned long long length = size - 16;
    memcpy(image, &magic, 4);
    memcpy(image + 4, &version, 2);
    memcpy(image + 6, &header, 2);
    memcpy(image + 8, &length, 8);
    bad("an empty container", image, size);
    free(image);
}

/* --- several threads -------------------------------------------------------------------------------------------- */

enum { THREADS = 4 };
static CUcontext context;
static int results[THREADS];

static void *work(void *argument)
{
    const int number = (int)(size_t)argument;
    cuCtxSetCurrent(context);
    for (int i = 0; i < 10; i++) {
        CUmodule module;
        CUfunction function;
        char *image = ptx("shared", 16, i % 2 ? 100000 : 0);
        CUresult status = cuModuleLoadData(&module, image);
        free(image);
        if (status == CUDA_SUCCESS && cuModuleGetFunction(&function, module, "shared") == CUDA_SUCCESS)
            results[number] += launch(function, i) == i;
        cuModuleUnload(module);
    }
    return NULL;
}

int main(void)
{
    printf("init %d, ", cuInit(0));
    printf("retain %d, ", cuDevicePrimaryCtxRetain(&context, 0));
    printf("set %d\n", cuCtxSetCurrent(context));
    static const size_t blanks[] = {0, 1, 65000, 65536, 70000};
    for (int i = 0; i < 5; i++) {
        module_of("first", blanks[i], 16 + i);
        module_of("first", blanks[i], 16 + i);
        library_of("second", blanks[i], 32 + i);
        library_of("second", blanks[i], 32 + i);
    }
    module_of("first", 4300000, 24); /* more than one part */
    library_of("second", 4300000, 25);
    bad_images();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(size_t)i);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("thread %d: %d\n", i, results[i]);
    }
    /* The context begins anew: what was known of its contents has ended. */
    printf("reset %d\n", cuDevicePrimaryCtxReset_v2(0));
    printf("retain %d, set %d\n", cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context));
    module_of("third", 100000, 8);
    library_of("third", 100000, 8);
    return 0;
}
