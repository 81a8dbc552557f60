/*
 * mig.c - NVML's functions about instances of GPUs that MIG has divided.
 *
 * Of a server, instances are devices themselves: what they are is told, and the GPU that they are of is not shown.
 */
#include "client/nvml/functions.h"
#include "client/nvml/nvml.h"

int nvmlDeviceIsMigDeviceHandle(rg_nvml_device device, unsigned *is_one)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, is_one));
    *is_one = info.mig;
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(rg_nvml_device device, unsigned index, rg_nvml_device *out)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, out));
    return rg_nvml_instance(device, index, out);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(rg_nvml_device device, rg_nvml_device *out)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, out));
    return info.mig ? rg_nvml_whole(device, out) : RG_NVML_INVALID_ARGUMENT;
}

/* The same of what only an instance has. */
static enum rg_nvml_return look_for_instance(rg_nvml_device device, struct rg_device_info *info,
                                             const void *out)
{
    RG_TRY(rg_nvml_look_for(device, info, NULL, out));
    return info->mig ? RG_NVML_SUCCESS : RG_NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceId(rg_nvml_device device, unsigned *id)
{
    struct rg_device_info info;
    RG_TRY(look_for_instance(device, &info, id));
    *id = info.gpu_instance;
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(rg_nvml_device device, unsigned *id)
{
    struct rg_device_info info;
    RG_TRY(look_for_instance(device, &info, id));
    *id = info.compute_instance;
    return RG_NVML_SUCCESS;
}
