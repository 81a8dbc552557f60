/* device_calls.c - calls that find devices and name them, and what one can do with another's memory. Any thread. */
#include "softgpu/driver/core/device.h"

#include "softgpu/driver/behaviour/behave.h"

#include <stdio.h>

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    RG_TRY(sg_enter());
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sg_state.n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (name == NULL || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)size, "%s", device->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->memory_total;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (text == NULL || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    int n = snprintf(text, (size_t)size, "%04X:%02X:%02X.0", (unsigned)device->pci_domain,
                     (unsigned)device->pci_bus, (unsigned)device->pci_device);
    return n < size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text)
{
    RG_TRY(sg_enter());
    if (out == NULL || text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus, device, function = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
        domain = 0x5347;
        if (sscanf(text, "%x:%x.%x", &bus, &device, &function) < 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < sg_state.n_devices; i++) {
        const struct sg_device *d = &sg_state.devices[i];
        if ((unsigned)d->pci_domain == domain && (unsigned)d->pci_bus == bus &&
            (unsigned)d->pci_device == device && function == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (value == NULL || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
    SG_DEVICE_OR_RETURN(one, a);
    const struct sg_device *other = sg_device(b);
    if (other == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (can == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *can = one != other && sg_behaviour()->peers;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    SG_DEVICE_OR_RETURN(one, from);
    const struct sg_device *other = sg_device(to);
    if (value == NULL) /* of the two documented errors the one that needs no device */
        return CUDA_ERROR_INVALID_VALUE;
    if (other == NULL || one == other)
        return CUDA_ERROR_INVALID_DEVICE;
    switch ((unsigned)attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Devices and host share the machine's memory and its atomic instructions. */
static CUresult atomic_capabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                    unsigned int count)
{
    if (capabilities == NULL || operations == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX)
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const bool real = operations[i] >= CU_ATOMIC_OPERATION_FLOAT_ADD;
        const bool swap =
            operations[i] == CU_ATOMIC_OPERATION_EXCHANGE || operations[i] == CU_ATOMIC_OPERATION_CAS;
        capabilities[i] = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
        if (!real)
            capabilities[i] |= swap ? 0 : CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice device)
{
    SG_DEVICE_OR_RETURN(named, device);
    return atomic_capabilities(capabilities, operations, count);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                          unsigned int count, CUdevice from, CUdevice to)
{
    RG_TRY(sg_enter());
    if (sg_device(from) == NULL || sg_device(to) == NULL || from == to)
        return CUDA_ERROR_INVALID_DEVICE;
    return atomic_capabilities(capabilities, operations, count);
}
