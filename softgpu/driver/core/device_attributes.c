/*
 * device_attributes.c - what a device says about itself: either what the engine does, or a limit that the driver enforces; what is not
 * supported is 0. Any thread, after cuInit.
 */
#include <unistd.h>

#include "common/cuda/program/capability.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/exec/exec.h"

#define L2_MAX (64 << 20)

/*
 * What does not depend on the machine. Attributes not named here and not computed below are 0: unsupported.
 */
static const int fixed_attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = SG_MAX_THREADS_PER_BLOCK,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = SG_MAX_BLOCK_X,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = SG_MAX_BLOCK_Y,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = SG_MAX_BLOCK_Z,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = SG_MAX_GRID_X,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = SG_MAX_GRID_YZ,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = SG_MAX_GRID_YZ,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = SG_SHARED_PER_BLOCK,
    [CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY] = 65536,
    [CU_DEVICE_ATTRIBUTE_WARP_SIZE] = SG_WARP,
    [CU_DEVICE_ATTRIBUTE_MAX_PITCH] = SG_MAX_PITCH,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = SG_REGISTERS_PER_SM,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = SG_REGISTERS_PER_SM,
    [CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = SG_CLOCK_KHZ,
    [CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = SG_MEMORY_CLOCK_KHZ,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = SG_MEMORY_BUS_BITS,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = SG_TEXTURE_ALIGNMENT_1D,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = SG_TEXTURE_PITCH_ALIGNMENT,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH] = SG_TEXTURE_1D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] = SG_TEXTURE_LINEAR_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH] = SG_TEXTURE_2D_WIDTH_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT] = SG_TEXTURE_2D_HEIGHT_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH] = SG_TEXTURE_PITCHED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT] = SG_TEXTURE_PITCHED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH] = SG_MAX_PITCH,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH] = SG_TEXTURE_1D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH] = SG_TEXTURE_2D_WIDTH_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT] = SG_TEXTURE_2D_HEIGHT_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH] = SG_TEXTURE_2D_WIDTH_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT] = SG_TEXTURE_2D_HEIGHT_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH] = SG_TEXTURE_CUBE_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH] = SG_TEXTURE_CUBE_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS] = SG_TEXTURE_CUBE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS] = SG_TEXTURE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS] = SG_TEXTURE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH] = SG_TEXTURE_1D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH] = SG_TEXTURE_2D_WIDTH_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT] = SG_TEXTURE_2D_HEIGHT_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH] = SG_TEXTURE_3D_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS] = SG_TEXTURE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT] = SG_TEXTURE_LAYERED_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS] = SG_TEXTURE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH] = SG_TEXTURE_CUBE_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH] = SG_TEXTURE_CUBE_MAX,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS] = SG_TEXTURE_CUBE_LAYERS_MAX,
    [CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_GPU_OVERLAP] = 1,
    [CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 2,
    [CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS] = 1,
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = SG_THREADS_PER_SM,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = SG_BLOCKS_PER_SM,
    [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
    [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO] = 2,
    [CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1,
    [CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1,
    [CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1, /* and concurrently: both sides are one process */
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    [CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = 1,
    [CU_DEVICE_ATTRIBUTE_NUMA_ID] = -1,
    [CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] = 1,
};

/* The cores' own: who measures fills as much anew each time, and that of the third level may be hundreds of MiB. */
static int cache_size(void)
{
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE) * sg_state.devices[0].multiprocessors;
    return cache > 0 && cache <= L2_MAX ? (int)cache : cache > 0 ? L2_MAX : 1 << 20;
}

/* What one of several devices has of its own: where it is. False: it is no such attribute. */
static bool place_attribute(const struct sg_device *device, int attribute, int *value)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: /* a board of its own each */
        *value = device->pci_bus;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = device->pci_device;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = device->pci_domain;
        return true;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = device->numa_node;
        return true;
    default:
        return false;
    }
}

CUresult sg_device_attribute(const struct sg_device *device, int attribute, int *value)
{
    if (attribute < 1 || attribute >= sg_version()->device_attributes)
        return CUDA_ERROR_INVALID_VALUE;
    if (place_attribute(device, attribute, value))
        return CUDA_SUCCESS;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *value = sg_behave_compute_mode();
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)sg_state.capability / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)sg_state.capability % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = (int)sg_shared_per_multiprocessor();
        break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *value = (int)sg_shared_reserved();
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = (int)sg_shared_optin();
        break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: /* since 9.0; libraries tell devices apart by it */
        *value = sg_state.capability >= 90;
        break;
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: /* the same */
        *value = sg_state.capability >= 90;
        break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
        *value = sg_exec_has_timeout();
        break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *value = sg_state.mps;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = device->multiprocessors;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = cache_size();
        break;
    default:
        *value = fixed_attributes[attribute];
        break;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = (int)rg_capability_told(rg_capability_asker, sg_state.capability) / 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *value = (int)rg_capability_told(rg_capability_asker, sg_state.capability) % 10;
    else
        return sg_device_attribute(device, (int)attribute, value);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (major == NULL || minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned told = rg_capability_told(rg_capability_asker, sg_state.capability);
    *major = (int)told / 10;
    *minor = (int)told % 10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice ordinal)
{
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (properties == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *properties = (CUdevprop){.maxThreadsPerBlock = SG_MAX_THREADS_PER_BLOCK,
                              .maxThreadsDim = {SG_MAX_BLOCK_X, SG_MAX_BLOCK_Y, SG_MAX_BLOCK_Z},
                              .maxGridSize = {SG_MAX_GRID_X, SG_MAX_GRID_YZ, SG_MAX_GRID_YZ},
                              .sharedMemPerBlock = SG_SHARED_PER_BLOCK,
                              .totalConstantMemory = 65536,
                              .SIMDWidth = SG_WARP,
                              .memPitch = SG_MAX_PITCH,
                              .regsPerBlock = SG_REGISTERS_PER_SM,
                              .clockRate = 1000000,
                              .textureAlign = 512};
    return CUDA_SUCCESS;
}
