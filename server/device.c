/* device.c - attributes of a device, many at once. */
#include "generated/server/serve.h"
#include "server/worker.h"

CUresult rg_serve_rgDeviceAttributes(struct rg_job *job, CUdevice dev, unsigned int first, unsigned int count,
                                     int *values, unsigned int *results)
{
    (void)job;
    for (unsigned i = 0; i < count; i++)
        results[i] =
            (unsigned)rg_driver.cuDeviceGetAttribute(&values[i], (CUdevice_attribute)(first + i), dev);
    return CUDA_SUCCESS;
}
