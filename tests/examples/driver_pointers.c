/*
 * driver_pointers.c - a library of a program that loads the driver itself, and keeps its functions in variables with their names. Who puts
 * the driver's functions before those of all libraries has it write to them.
 */
#include <dlfcn.h>
#include <stddef.h>

extern int (*cuInit)(unsigned);
extern int (*cuDeviceGetCount)(int *);
int (*cuInit)(unsigned);
int (*cuDeviceGetCount)(int *);

/** The number of devices, or less than 0. */
int count_devices(void);
int count_devices(void)
{
    int n = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return -1;
    cuInit = (int (*)(unsigned))dlsym(driver, "cuInit");
    cuDeviceGetCount = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    return cuInit(0) == 0 && cuDeviceGetCount(&n) == 0 ? n : -2;
}
