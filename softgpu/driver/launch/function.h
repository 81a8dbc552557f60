/* function.h - attributes and limits of a kernel that functions, kernels, launches and occupancy share. */
#ifndef SG_DRIVER_LAUNCH_FUNCTION_H
#define SG_DRIVER_LAUNCH_FUNCTION_H

#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/module/module.h"

/** The function of a handle as `var`, with a reference, in the context that it implies; else the call fails. */
#define SG_FUNCTION_OR_RETURN(var, handle)                                                                   \
    SG_IMPLY_CONTEXT(SG_KIND_FUNCTION, handle);                                                              \
    SG_CONTEXT_OR_RETURN(context_);                                                                          \
    SG_REF(struct sg_function) var = NULL;                                                                   \
    RG_TRY(sg_function_get(handle, context_, &var))

/** How many blocks of `threads` threads and `dynamic` bytes of shared memory fit on one multiprocessor. */
int sg_occupancy(const struct sg_kernel *kernel, const struct sg_settings *settings, unsigned threads,
                 size_t dynamic);
/** Before the first use of a function, also a question about it, where functions are loaded by that (SOFTGPU_BEHAVE, lazy). */
void sg_function_load_lazily(struct sg_function *function);
/** Before a launch: the same, and whether the function's first use may go on (SOFTGPU_BEHAVE, load); any later one may. */
CUresult sg_function_load(struct sg_function *function);
/** The value of a CUfunction_attribute. */
CUresult sg_kernel_attribute(const struct sg_image *image, const struct sg_kernel *kernel,
                             const struct sg_settings *settings, int attribute, int *value);
/** Whether a grid of this shape is possible, `shared` bytes of dynamic shared memory included. */
CUresult sg_launch_check_shape(const struct sg_kernel *kernel, const struct sg_settings *settings,
                               const uint32_t grid[3], const uint32_t block[3], uint32_t shared);
/**
 * Of kernels whose launches count clusters (`__block_size__`): makes blocks of them, and of a block that is
 * not given the one that the kernel requires.
 */
CUresult sg_launch_expand(const struct sg_kernel *kernel, uint32_t grid[3], uint32_t block[3]);
/**
 * The blocks of a cluster in each direction, from what the kernel, its settings and the launch (`requested`,
 * zeros: nothing) say; zeros if none of them does. CUDA_ERROR_INVALID_CLUSTER_SIZE where they contradict each
 * other, the grid cannot be divided so, or there are too many. `cluster` may be `requested`.
 */
CUresult sg_launch_cluster(const struct sg_kernel *kernel, const struct sg_settings *settings,
                           const uint32_t grid[3], const uint32_t requested[3], uint32_t cluster[3]);

#endif
