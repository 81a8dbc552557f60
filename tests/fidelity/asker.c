/* asker.c - a part of a program that asks for itself, in a library of its own (who_asks.c). */
#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

typedef CUresult attribute_function(int *, CUdevice_attribute, CUdevice);
typedef CUresult capability_function(int *, int *, CUdevice);

EXPORT int ask_attributes(attribute_function *ask, CUdevice device);
EXPORT int ask_capability(capability_function *ask, CUdevice device);

int ask_attributes(attribute_function *ask, CUdevice device)
{
    int major = 0, minor = 0;
    const CUresult one = ask(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    const CUresult other = ask(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return one == CUDA_SUCCESS && other == CUDA_SUCCESS ? major * 10 + minor : -1;
}

int ask_capability(capability_function *ask, CUdevice device)
{
    int major = 0, minor = 0;
    const CUresult result = ask(&major, &minor, device);
    return result == CUDA_SUCCESS ? major * 10 + minor : -1;
}
