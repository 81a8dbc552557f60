/*
 * fake_driver.c - a libcuda.so.1 with just what the probe asks for, so that the daemon can be tested without
 * any driver. CUDA_FAKE_DRIVER_DEVICES: how many devices (default 2); CUDA_FAKE_DRIVER_MODE: "fail" (cuInit fails),
 * "crash", "hang", "print" (talks on stdout); CUDA_FAKE_DRIVER_HANG: it hangs once this file is there;
 * CUDA_FAKE_DRIVER_VERSION: its version (default 13000).
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int devices(void)
{
    const char *text = getenv("CUDA_FAKE_DRIVER_DEVICES");
    return text ? atoi(text) : 2;
}

EXPORT CUresult cuInit(unsigned flags)
{
    const char *mode = getenv("CUDA_FAKE_DRIVER_MODE");
    (void)flags;
    const char *hang = getenv("CUDA_FAKE_DRIVER_HANG");
    if ((mode && strcmp(mode, "hang") == 0) || (hang && access(hang, F_OK) == 0))
        pause();
    if (mode && strcmp(mode, "crash") == 0)
        abort();
    if (mode && strcmp(mode, "print") == 0)
        printf("a driver that talks\n");
    return mode && strcmp(mode, "fail") == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    const char *text = getenv("CUDA_FAKE_DRIVER_VERSION");
    *version = text ? atoi(text) : 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = devices();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal < devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Fake GPU %d \033[31m", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(0x10 * (device + 1) + i);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)(device + 1) << 33;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
                 ? getenv("CUDA_FAKE_DRIVER_PAGEABLE") != NULL
                 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    snprintf(text, (size_t)size, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
