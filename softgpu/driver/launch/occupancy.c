/*
 * occupancy.c - how many blocks fit on a multiprocessor of the device model (device.h): its threads, blocks
 * and shared memory are the limits; registers never are.
 */
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/launch/function.h"

static size_t shared_of_block(const struct sg_kernel *kernel, size_t dynamic)
{
    return (kernel->shared_static + dynamic + sg_shared_reserved() + 127) & ~(size_t)127;
}

int sg_occupancy(const struct sg_kernel *kernel, const struct sg_settings *settings, unsigned threads,
                 size_t dynamic)
{
    if (threads == 0 || threads > kernel->max_threads || dynamic > (size_t)settings->dynamic_shared_max)
        return 0;
    unsigned warps = (threads + SG_WARP - 1) / SG_WARP;
    unsigned blocks = SG_THREADS_PER_SM / SG_WARP / warps;
    size_t of_block = shared_of_block(kernel, dynamic);
    size_t by_shared = of_block == 0 ? blocks : sg_shared_per_multiprocessor() / of_block; /* 0 before 8.0 */
    if (blocks > by_shared)
        blocks = (unsigned)by_shared;
    return blocks > SG_BLOCKS_PER_SM ? SG_BLOCKS_PER_SM : (int)blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size,
                                                              size_t dynamic, unsigned int flags)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    if (blocks == NULL || block_size <= 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = sg_occupancy(function->kernel, function->settings, (unsigned)block_size, dynamic);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int block_size,
                                                     size_t dynamic)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_size, dynamic, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_of_block, size_t dynamic,
                                                   int limit, unsigned int flags)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    if (grid == NULL || block == NULL || limit < 0 ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    int most = (int)function->kernel->max_threads, best_threads = 0;
    if (limit > 0 && limit < most)
        most = limit;
    *grid = *block = 0;
    /* The largest block that keeps the most threads on a multiprocessor. */
    for (int size = (most + SG_WARP - 1) / SG_WARP * SG_WARP; size > 0; size -= SG_WARP) {
        int threads = size < most ? size : most;
        size_t bytes = dynamic_of_block != NULL ? dynamic_of_block(threads) : dynamic;
        int blocks = sg_occupancy(function->kernel, function->settings, (unsigned)threads, bytes);
        if (blocks * threads > best_threads) {
            best_threads = blocks * threads;
            *block = threads;
            *grid = blocks * context_->device->multiprocessors;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks, int block_size)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    if (bytes == NULL || blocks <= 0 || block_size <= 0 ||
        (unsigned)block_size > function->kernel->max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (blocks > sg_occupancy(function->kernel, function->settings, (unsigned)block_size, 0))
        return CUDA_ERROR_INVALID_VALUE;
    size_t taken = function->kernel->shared_static + sg_shared_reserved();
    size_t share = (sg_shared_per_multiprocessor() / (size_t)blocks) & ~(size_t)127;
    size_t room = share > taken ? share - taken : 0;
    size_t most = (size_t)function->settings->dynamic_shared_max;
    *bytes = room < most ? room : most;
    return CUDA_SUCCESS;
}

/* The clusters of a configuration, and how many blocks of it fit on the device at once. */
static CUresult measure_clusters(const struct sg_function *function, const CUlaunchConfig *config,
                                 uint32_t *size, uint64_t *room)
{
    uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ}, requested[3] = {0},
             cluster[3];
    RG_TRY(sg_launch_expand(function->kernel, grid, block));
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            continue;
        requested[0] = value->clusterDim.x;
        requested[1] = value->clusterDim.y;
        requested[2] = value->clusterDim.z;
    }
    RG_TRY(sg_launch_cluster(function->kernel, function->settings, grid, requested, cluster));
    *size = cluster[0] == 0 ? 1 : cluster[0] * cluster[1] * cluster[2];
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    *room = threads > UINT32_MAX ? 0
                                 : (uint64_t)sg_occupancy(function->kernel, function->settings,
                                                          (unsigned)threads, config->sharedMemBytes) *
                                       (uint64_t)function->module->object.context->device->multiprocessors;
    return CUDA_SUCCESS;
}

/* A cluster takes as many blocks' room anywhere on the device. */
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    if (clusters == NULL || config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t size;
    uint64_t room;
    RG_TRY(measure_clusters(function, config, &size, &room));
    /* blocks of a cluster take turns, so that one of any size fits wherever a block does */
    *clusters = room == 0 ? 0 : room < size ? 1 : (int)(room / size);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config)
{
    SG_FUNCTION_OR_RETURN(function, handle);
    sg_function_load_lazily(function);
    if (size == NULL || config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sg_kernel *kernel = function->kernel;
    const uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    if (threads > UINT32_MAX ||
        sg_occupancy(kernel, function->settings, (unsigned)threads, config->sharedMemBytes) == 0)
        *size = 0;
    else if (kernel->required_cluster[0] != 0)
        *size =
            (int)(kernel->required_cluster[0] * kernel->required_cluster[1] * kernel->required_cluster[2]);
    else
        *size = function->settings->nonportable_cluster ? (int)SG_CLUSTER_MAX : SG_CLUSTER_PORTABLE;
    return CUDA_SUCCESS;
}
