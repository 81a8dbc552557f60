/*
 * occupancy.c - the block size that fills the device. With a function of the application's for the shared
 * memory of a block size, the search runs here, over the worker's answers for each size; the result is the
 * driver's: the largest occupancy, the largest block among equals.
 */
#include "client/api/device.h"
#include "client/api/function/function.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "generated/client/operations.h"
#include "proto/launch_attribute.h"

static CUresult search(int *min_grid, int *block, CUfunction func, CUoccupancyB2DSize shared_of, int limit,
                       unsigned flags)
{
    const struct rg_function *function = rg_function_of(func);
    RG_TRY(rg_function_learn_attributes(func, function));
    const CUdevice device = rg_device_current();
    const int warp = rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    int largest = rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const int of_function = function->info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    if (of_function > 0 && of_function < largest)
        largest = of_function;
    if (limit > 0 && limit < largest)
        largest = limit;
    if (warp <= 0)
        return CUDA_ERROR_UNKNOWN;
    int best_threads = 0, best_blocks = 0, best_size = 0;
    for (int aligned = (largest + warp - 1) / warp * warp; aligned > 0; aligned -= warp) {
        const int size = aligned < largest ? aligned : largest;
        int blocks = 0;
        RG_TRY(rg_op_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size,
                                                                          shared_of(size), flags));
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            best_blocks = blocks;
            best_size = size;
        }
    }
    *block = best_size;
    *min_grid = best_blocks * rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!minGridSize || !blockSize || blockSizeLimit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_function_of(func))
        return CUDA_ERROR_INVALID_HANDLE;
    if (blockSizeToDynamicSMemSize)
        return search(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, blockSizeLimit, flags);
    return rg_op_rgOccupancyBlockSize(minGridSize, blockSize, func, dynamicSMemSize, blockSizeLimit, flags);
}

/* Both questions about clusters: `size` asks for the largest cluster, else for how many fit at once. */
static CUresult clusters(bool size, int *result, CUfunction func, const CUlaunchConfig *config)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!result || !config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_function_of(func) || !rg_handle_known(RG_KIND_STREAM, (uint64_t)config->hStream))
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const enum rg_launch_attribute_kind kind = rg_launch_attribute_kind(config->attrs[i].id);
        if (kind == RG_LAUNCH_ATTRIBUTE_UNKNOWN || kind == RG_LAUNCH_ATTRIBUTE_REFUSED)
            return CUDA_ERROR_INVALID_VALUE;
    }
    CUlaunchConfig plain = *config;
    plain.hStream = NULL;
    plain.attrs = NULL;
    plain.numAttrs = 0;
    return rg_op_rgOccupancyClusters(size, func, &plain, config->numAttrs, config->attrs, result);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
    return clusters(true, clusterSize, func, config);
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
    return clusters(false, numClusters, func, config);
}
