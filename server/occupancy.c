/* occupancy.c - the block size that fills the device. The shared memory of a block is a constant: a function of the
 * application's that computes it from the block size runs on the client. */
#include "generated/server/serve.h"
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
