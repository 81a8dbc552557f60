/*
 * who_asks.c - the compute capability that a program with PyTorch finds, and what one of NVIDIA's libraries in it is told. The arguments are
 * libraries with the names of both. They ask by the functions that cuGetProcAddress gives, as the CUDA runtime in them does.
 */
#include "tests/fidelity/must.h"

#include <dlfcn.h>
#include <stdlib.h>

static void *symbol(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (!found)
        printf("%s\n", dlerror());
    if (!found)
        exit(1);
    return found;
}

/* What the code in a library is told, both ways. */
static int told(const char *library, CUdevice device)
{
    int (*attributes)(void *, CUdevice) = (int (*)(void *, CUdevice))symbol(library, "ask_attributes");
    int (*capability)(void *, CUdevice) = (int (*)(void *, CUdevice))symbol(library, "ask_capability");
    void *attribute_function, *capability_function;
    CUdriverProcAddressQueryResult status;
    CHECK(cuGetProcAddress_v2("cuDeviceGetAttribute", &attribute_function, 12000, 0, &status));
    CHECK(cuGetProcAddress_v2("cuDeviceComputeCapability", &capability_function, 12000, 0, &status));
    const int one = attributes(attribute_function, device), other = capability(capability_function, device);
    printf("told: %d %d\n", one, other);
    return one == other ? one : -1;
}

int main(int argc, char **argv)
{
    CUdevice device;
    if (argc < 3)
        return 1;
    (void)symbol(argv[1], "ask_attributes"); /* loaded before cuInit */
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    const int program = told(argv[1], device), library = told(argv[2], device);
    return program == 121 && library == 130 && told(argv[1], device) == program ? 0 : 1;
}
