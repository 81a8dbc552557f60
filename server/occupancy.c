/* occupancy.c - the block size that fills the device. The shared memory of a block is a constant: a function of the
 * application's that computes it from the block size runs on the client. */
#include "generated/server/serve.h"
#include "proto/launch_attribute.h"
#include "server/worker.h"

CUresult rg_serve_rgOccupancyBlockSize(struct rg_job *job, int *min_grid, int *block, CUfunction func,
                                       size_t shared, int limit, unsigned int flags)
{
    (void)job;
    if (rg_driver.cuOccupancyMaxPotentialBlockSizeWithFlags)
        return rg_driver.cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block, func, NULL, shared, limit,
                                                                   flags);
    if (rg_driver.cuOccupancyMaxPotentialBlockSize && flags == 0)
        return rg_driver.cuOccupancyMaxPotentialBlockSize(min_grid, block, func, NULL, shared, limit);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_serve_rgOccupancyClusters(struct rg_job *job, unsigned int size, CUfunction func,
                                      const CUlaunchConfig *config, unsigned int count,
                                      const CUlaunchAttribute *attributes, int *result)
{
    CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *) =
        size ? rg_driver.cuOccupancyMaxPotentialClusterSize : rg_driver.cuOccupancyMaxActiveClusters;
    CUlaunchConfig own = *config;
    CUlaunchAttribute *all = rg_job_memory(job, ((size_t)count + 1) * sizeof *all);
    if (!all)
        return job->result;
    own.hStream = NULL;
    own.attrs = all;
    own.numAttrs = 0;
    for (unsigned i = 0; i < count; i++) /* events have no say in it */
        if (rg_launch_attribute_kind(attributes[i].id) == RG_LAUNCH_ATTRIBUTE_PLAIN)
            all[own.numAttrs++] = attributes[i];
    return ask ? ask(result, func, &own) : CUDA_ERROR_NOT_SUPPORTED;
}
