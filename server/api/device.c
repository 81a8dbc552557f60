/* device.c - attributes of a device, many at once. */
#include "generated/server/execute.h"

CUresult rg_execute_rgDeviceAttributes(struct rg_request *request, CUdevice dev, unsigned int first,
                                       unsigned int count, int *values, unsigned int *results)
{
    (void)request;
    for (unsigned i = 0; i < count; i++)
        results[i] =
            (unsigned)rg_driver.cuDeviceGetAttribute(&values[i], (CUdevice_attribute)(first + i), dev);
    return CUDA_SUCCESS;
}
