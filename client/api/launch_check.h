/*
 * launch_check.h - what the driver refuses of a launch at once: CUDA_SUCCESS, or its error. Any thread with a current context, on
 * `device`.
 */
#ifndef RG_CLIENT_API_LAUNCH_CHECK_H
#define RG_CLIENT_API_LAUNCH_CHECK_H

#include "client/api/function/function.h"

#include <stdbool.h>

struct rg_launch_dimensions {
    unsigned grid[3], block[3];
    unsigned shared;
};

/** Whether grid, blocks and shared memory are within the limits of the device and of the function. */
CUresult rg_launch_check_dimensions(const struct rg_function *function, const struct rg_launch_dimensions *d,
                                    CUdevice device);
/**
 * What the kernel, its attributes and the launch say of clusters must agree, and divide the grid (but of
 * kernels whose launches count clusters). Where it depends on the device, or on what is not known of the
 * kernel, the worker is asked; its answer is kept.
 */
CUresult rg_launch_check_clusters(CUfunction f, const struct rg_function *function,
                                  const struct rg_launch_dimensions *d, unsigned n_attributes,
                                  const CUlaunchAttribute *attributes);
/**
 * All blocks of a cooperative launch must be on the device at once. How many can be is kept of each kernel
 * and block.
 */
CUresult rg_launch_check_cooperative(CUfunction f, const struct rg_launch_dimensions *d, uint64_t context,
                                     bool cooperative, unsigned n_attributes,
                                     const CUlaunchAttribute *attributes);

#endif
