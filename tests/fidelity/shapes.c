/*
 * shapes.c - machine code: what a module has in it, asked of the driver; for a device that takes it for its shape
 * (SOFTGPU_BEHAVE=nvidia:cubins=1), on which launches do nothing. Arguments: images, the last for another device.
 */
#include "tests/fidelity/must.h"

#include <string.h>

#define MOST 64

static void tell_function(CUfunction function)
{
    const char *name = NULL;
    size_t offset, size, n = 0;
    int threads = -1;
    CHECK(cuFuncGetName(&name, function));
    CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    printf("%s:", name);
    for (; cuFuncGetParamInfo(function, n, &offset, &size) == CUDA_SUCCESS; n++)
        printf(" %zu+%zu", offset, size);
    printf("\n");
    unsigned char zeros[4096] = {0};
    void *parameters[MOST];
    for (size_t i = 0; i < MOST; i++)
        parameters[i] = zeros;
    printf("launch: %d\n",
           n < MOST ? (int)cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL) : -1);
    printf("wait: %d\n", (int)cuCtxSynchronize());
}

static void look(const char *path)
{
    CUmodule module;
    CUfunction functions[MOST];
    unsigned n = 0;
    const CUresult loaded = cuModuleLoad(&module, path);
    printf("load %s: %d\n", strrchr(path, '/') ? strrchr(path, '/') + 1 : path, (int)loaded);
    if (loaded != CUDA_SUCCESS)
        return;
    CHECK(cuModuleGetFunctionCount(&n, module));
    CHECK(cuModuleEnumerateFunctions(functions, n < MOST ? n : MOST, module));
    printf("%u functions\n", n);
    for (unsigned i = 0; i < n && i < MOST; i++)
        tell_function(functions[i]);
    static const char *const variables[] = {"numbers", "constants", "shared_by_all", "nothing"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        CUdeviceptr address = 0;
        size_t size = 0;
        const CUresult found = cuModuleGetGlobal_v2(&address, &size, module, variables[i]);
        printf("%s: %d, %zu bytes\n", variables[i], (int)found, size);
        if (found == CUDA_SUCCESS)
            printf("set: %d\n", (int)cuMemsetD8_v2(address, 0, size));
    }
    CHECK(cuModuleUnload(module));
}

int main(int argc, char **argv)
{
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 1; i < argc; i++)
        look(argv[i]);
    return 0;
}
