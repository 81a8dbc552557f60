/*
 * occupancy.c - the block size that fills the device. The shared memory of a block is a constant: a function
 * of the application's that computes it from the block size runs on the client.
 */
#include "generated/server/execute.h"
#include "proto/launch_attribute.h"

CUresult rg_execute_rgOccupancyBlockSize(struct rg_request *request, int *min_grid, int *block,
                                         CUfunction func, size_t shared, int limit, unsigned int flags)
{
    rg_request_go_out_of_order(request);
    if (rg_driver_has(cuOccupancyMaxPotentialBlockSizeWithFlags))
        return rg_driver.cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block, func, NULL, shared, limit,
                                                                   flags);
    return flags ? CUDA_ERROR_NOT_SUPPORTED
                 : rg_driver.cuOccupancyMaxPotentialBlockSize(min_grid, block, func, NULL, shared, limit);
}

CUresult rg_execute_rgOccupancyClusters(struct rg_request *request, unsigned int size, CUfunction func,
                                        const CUlaunchConfig *config, unsigned int count,
                                        const CUlaunchAttribute *attributes, int *result)
{
    CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *) =
        size ? rg_driver.cuOccupancyMaxPotentialClusterSize : rg_driver.cuOccupancyMaxActiveClusters;
    CUlaunchConfig own = *config;
    CUlaunchAttribute *all = rg_request_memory(request, ((size_t)count + 1) * sizeof *all);
    if (!all)
        return request->result;
    own.hStream = NULL;
    own.attrs = all;
    own.numAttrs = 0;
    for (unsigned i = 0; i < count; i++) /* events have no say in it */
        if (rg_launch_attribute_kind(attributes[i].id) == RG_LAUNCH_ATTRIBUTE_PLAIN)
            all[own.numAttrs++] = attributes[i];
    rg_request_go_out_of_order(request);
    return ask(result, func, &own);
}
