/*
 * shape.c - which grids a kernel can be launched with: limits of the device, of the kernel and of what was
 * set for it, and clusters. Pure functions; what fails is the caller's error.
 */
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/launch/function.h"
#include "softgpu/kernel_abi.h"

CUresult sg_launch_check_shape(const struct sg_kernel *kernel, const struct sg_settings *settings,
                               const uint32_t grid[3], const uint32_t block[3], uint32_t shared)
{
    const uint32_t block_max[3] = {SG_MAX_BLOCK_X, SG_MAX_BLOCK_Y, SG_MAX_BLOCK_Z};
    const uint32_t grid_max[3] = {SG_MAX_GRID_X, SG_MAX_GRID_YZ, SG_MAX_GRID_YZ};
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (grid[i] == 0 || grid[i] > grid_max[i] || block[i] == 0 || block[i] > block_max[i])
            return CUDA_ERROR_INVALID_VALUE;
        threads *= block[i];
    }
    if (threads > SG_MAX_THREADS_PER_BLOCK ||
        threads > kernel->max_threads) /* .maxntid; too many registers would be another error */
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel->required_ntid[0] != 0)
        for (int i = 0; i < 3; i++) {
            uint32_t required = kernel->required_ntid[i] != 0 ? kernel->required_ntid[i] : 1;
            if (block[i] != required)
                return CUDA_ERROR_INVALID_VALUE;
        }
    if (kernel->shared_static > sg_shared_optin() || shared > (uint32_t)settings->dynamic_shared_max)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sg_launch_expand(const struct sg_kernel *kernel, uint32_t grid[3], uint32_t block[3])
{
    if (!kernel->blocks_are_clusters)
        return CUDA_SUCCESS;
    bool given = block[0] != 1 || block[1] != 1 || block[2] != 1;
    for (int i = 0; i < 3; i++) {
        if (grid[i] > SG_MAX_GRID_X / kernel->required_cluster[i])
            return CUDA_ERROR_INVALID_VALUE;
        grid[i] *= kernel->required_cluster[i];
        if (!given && kernel->required_ntid[i] != 0)
            block[i] = kernel->required_ntid[i];
    }
    return CUDA_SUCCESS;
}

CUresult sg_launch_cluster(const struct sg_kernel *kernel, const struct sg_settings *settings,
                           const uint32_t grid[3], const uint32_t requested[3], uint32_t cluster[3])
{
    bool required = kernel->required_cluster[0] != 0,
         said = requested[0] != 0 || requested[1] != 0 || requested[2] != 0;
    uint64_t blocks = 1;
    for (int i = 0; i < 3; i++) {
        uint32_t set = required ? kernel->required_cluster[i] : (uint32_t)settings->cluster[i];
        cluster[i] = said ? requested[i] : set;
        if (said && set != 0 && set != requested[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    bool none = cluster[0] == 0 && cluster[1] == 0 && cluster[2] == 0;
    if (none)
        return kernel->explicit_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
    for (int i = 0; i < 3; i++) {
        if (cluster[i] == 0 || cluster[i] > SG_CLUSTER_MAX || grid[i] % cluster[i] != 0)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        blocks *= cluster[i];
    }
    return blocks > (settings->nonportable_cluster ? SG_CLUSTER_MAX : SG_CLUSTER_PORTABLE)
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
}
