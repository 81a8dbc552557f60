/*
 * device.c - device queries. All attributes of a device come with the server's hello; what this client
 * cannot offer is reported as absent, whatever the server's device can do.
 */
#include "client/api/device.h"

#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/query/servers.h"
#include "common/cuda/program/capability.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTRIBUTES CU_DEVICE_ATTRIBUTE_MAX

struct attributes {
    int values[ATTRIBUTES];
    unsigned results[ATTRIBUTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct attributes *known[RG_DEVICES_MAX];

/*
 * Not offered remotely: memory mapped into both address spaces, and sharing that needs the device's own
 * machine.
 */
static const CUdevice_attribute absent[] = {
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_NUMA_CONFIG,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
};

/* Numbers of the server's machine, which mean others on this one: "none". */
static const CUdevice_attribute elsewhere[] = {
    CU_DEVICE_ATTRIBUTE_NUMA_ID,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
};

static CUresult fetch(CUdevice device, struct attributes **out)
{
    pthread_mutex_lock(&lock);
    struct attributes *attributes = known[device];
    pthread_mutex_unlock(&lock);
    if (attributes && rg_optimise[RG_OPT_QUERY_CACHE]) {
        rg_probe_saved(RG_OPT_QUERY_CACHE);
        *out = attributes;
        return CUDA_SUCCESS;
    }
    attributes = calloc(1, sizeof *attributes);
    if (!attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = CUDA_SUCCESS;
    const struct rg_device_info *info = rg_device(device);
    if (rg_optimise[RG_OPT_QUERY_CACHE] && info->n_attributes >= ATTRIBUTES) {
        memcpy(attributes->values, info->attributes, sizeof attributes->values);
        memcpy(attributes->results, info->attribute_results, sizeof attributes->results);
    } else {
        status = rg_op_rgDeviceAttributes(device, 0, ATTRIBUTES, attributes->values, attributes->results);
    }
    if (status != CUDA_SUCCESS) {
        free(attributes);
        return status;
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        attributes->values[absent[i]] = 0;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        attributes->values[elsewhere[i]] = -1;
    attributes->values[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] &=
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    int *domain = &attributes->values[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
    *domain = (int)(((unsigned)*domain + rg_device_session(device)->place * RG_SERVER_DOMAINS) & 0xffff);
    const int shared = !rg_several_own_servers();
    attributes->values[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] =
        shared; /* both made here: client/managed/managed.h */
    attributes->values[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = shared;
    attributes->values[CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED] =
        shared; /* common/cuda/host_pools/ */
    attributes->values[CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED] = shared;
    pthread_mutex_lock(&lock);
    if (!known[device])
        known[device] = attributes;
    else
        free(attributes); /* the same as those known */
    *out = known[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

int rg_device_attribute(CUdevice device, CUdevice_attribute attribute)
{
    struct attributes *attributes;
    if (!rg_device(device) || fetch(device, &attributes) != CUDA_SUCCESS)
        return 0;
    return attributes->values[attribute];
}

/* Common to all queries of a device; `out` is where the answer goes. */
static CUresult check(const void *out, CUdevice device, const struct rg_device_info **info)
{
    RG_TRY(rg_call_allowed(0));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *info = rg_device(device);
    return *info ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* A compute capability, as is said to the code at `caller`; in a profile, to who called the wrapper. */
static unsigned told(CUdevice device, const void *caller)
{
    const struct rg_device_info *info = rg_device(device);
    const unsigned capability = info->compute_major * 10 + info->compute_minor;
    const bool soft = strcmp(rg_device_session(device)->hello.driver.kind, "soft") == 0;
    return soft ? rg_capability_told(rg_probe ? rg_capability_asker : caller, capability) : capability;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(pi, dev, &info));
    if (attrib <= 0 || attrib >= ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    struct attributes *attributes;
    RG_TRY(fetch(dev, &attributes));
    RG_TRY((CUresult)attributes->results[attrib]);
    *pi = attributes->values[attrib];
    if (attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *pi = (int)told(dev, __builtin_return_address(0)) / 10;
    else if (attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *pi = (int)told(dev, __builtin_return_address(0)) % 10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    const struct rg_device_info *info;
    RG_TRY(check(device, ordinal, &info));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    RG_TRY(rg_call_allowed(0));
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)rg_device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(name, dev, &info));
    if (len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "%s", info->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(uuid, dev, &info));
    memcpy(uuid, info->uuid, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(bytes, dev, &info));
    *bytes = info->memory_total;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(major && minor ? major : NULL, dev, &info));
    const unsigned capability = told(dev, __builtin_return_address(0));
    *major = (int)capability / 10;
    *minor = (int)capability % 10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    const struct rg_device_info *info;
    struct attributes *attributes;
    RG_TRY(check(prop, dev, &info));
    RG_TRY(fetch(dev, &attributes));
    const int *value = attributes->values;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .maxThreadsDim = {value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X],
                          value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
                          value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
        .maxGridSize = {value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
                        value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
        .sharedMemPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
        .totalConstantMemory = value[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
        .SIMDWidth = value[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
        .memPitch = value[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
        .regsPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
        .clockRate = value[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
        .textureAlign = value[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(pciBusId, dev, &info));
    if (len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    return snprintf(pciBusId, (size_t)len, "%s", info->pci) < len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    RG_TRY(rg_call_allowed(0));
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    /* [domain:]bus:device[.function], as the driver prints it or shorter */
    unsigned domain = 0, bus, slot;
    if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUdevice i = 0; (unsigned)i < rg_device_count(); i++) {
        unsigned d, b, s;
        if (sscanf(rg_device(i)->pci, "%x:%x:%x", &d, &b, &s) == 3 && d == domain && b == bus && s == slot) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/*
 * What the device can do with the host's memory by itself. The memory is this machine's, the device is not:
 * nothing.
 */
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice dev)
{
    const struct rg_device_info *info;
    RG_TRY(check(capabilities, dev, &info));
    if (!operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX)
            return CUDA_ERROR_INVALID_VALUE;
    memset(capabilities, 0, count * sizeof *capabilities);
    return CUDA_SUCCESS;
}

/* --- access of devices to each other ------------------------------------------------------------------- */

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    const struct rg_device_info *info;
    RG_TRY(check(canAccessPeer, dev, &info));
    if (!rg_device(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (rg_device_session(dev) == rg_device_session(peerDev))
        return rg_op_cuDeviceCanAccessPeer(canAccessPeer, dev, peerDev);
    *canAccessPeer = 0; /* of different servers */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice)
{
    const struct rg_device_info *info;
    RG_TRY(check(value, srcDevice, &info));
    if (!rg_device(dstDevice))
        return CUDA_ERROR_INVALID_DEVICE;
    if (rg_device_session(srcDevice) == rg_device_session(dstDevice))
        return rg_op_cuDeviceGetP2PAttribute(value, attrib, srcDevice, dstDevice);
    if (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}
