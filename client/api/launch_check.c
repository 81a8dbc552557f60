/* launch_check.c - see launch_check.h. */
#include "client/api/launch_check.h"

#include "client/api/device.h"
#include "client/core/call.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"

/* Limits of a device, read once. */
struct limits {
    bool known;
    unsigned grid[3], block[3], threads, shared, registers;
};

static const struct limits *limits_of(CUdevice device)
{
    static struct limits cache[RG_DEVICES_MAX];
    if (device < 0 || device >= (int)RG_DEVICES_MAX)
        return NULL;
    struct limits *limits = &cache[device];
    if (__atomic_load_n(&limits->known, __ATOMIC_ACQUIRE))
        return limits;
    for (int i = 0; i < 3; i++) {
        limits->grid[i] = (unsigned)rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
        limits->block[i] = (unsigned)rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
    }
    limits->shared =
        (unsigned)rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    limits->registers = (unsigned)rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    limits->threads = (unsigned)rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (!limits->threads)
        return NULL; /* the session is gone */
    __atomic_store_n(&limits->known, true, __ATOMIC_RELEASE);
    return limits;
}

/*
 * The error of more threads than the function may have: another one for more than it was compiled for
 * (.maxntid) than for more than there are registers, which warps get in units of 256.
 */
static CUresult too_many_threads(const struct rg_function *function, const struct limits *limits,
                                 uint64_t threads)
{
    uint64_t registers = 0;
    if (rg_function_knows(function, CU_FUNC_ATTRIBUTE_NUM_REGS))
        registers =
            ((unsigned)function->info.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] * 32ull + 255) / 256 * 256;
    return (threads + 31) / 32 * registers > limits->registers ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_launch_check_dimensions(const struct rg_function *function, const struct rg_launch_dimensions *d,
                                    CUdevice device)
{
    const struct limits *limits = limits_of(device);
    if (!limits)
        return rg_call_allowed(RG_TRAIT_CONTEXT);
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (!d->grid[i] || !d->block[i] || d->grid[i] > limits->grid[i] || d->block[i] > limits->block[i])
            return CUDA_ERROR_INVALID_VALUE;
        threads *= d->block[i];
    }
    if (threads > limits->threads)
        return CUDA_ERROR_INVALID_VALUE;
    const int *attributes = function->info.attributes;
    if (rg_function_knows(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
        threads > (unsigned)attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
        return too_many_threads(function, limits, threads);
    if (rg_function_knows(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) &&
        d->shared > (unsigned)function->set[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

#define PORTABLE_CLUSTER 8 /* blocks that a cluster may have on every device that has clusters */

CUresult rg_launch_check_clusters(CUfunction f, const struct rg_function *function,
                                  const struct rg_launch_dimensions *d, unsigned n_attributes,
                                  const CUlaunchAttribute *attributes)
{
    const int *of = function->set;
    unsigned wanted[3] = {0}; /* the shape that the launch asks for; zeros: it does not */
    uint64_t blocks = 1;
    if (!rg_function_knows(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH))
        return CUDA_SUCCESS; /* a driver from before clusters */
    if (!n_attributes &&
        !(of[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] | of[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] |
          of[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] | of[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET]))
        return CUDA_SUCCESS; /* nearly always */
    for (unsigned i = 0; i < n_attributes; i++) {
        if (attributes[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            continue;
        wanted[0] = attributes[i].value.clusterDim.x;
        wanted[1] = attributes[i].value.clusterDim.y;
        wanted[2] = attributes[i].value.clusterDim.z;
    }
    const bool said = wanted[0] || wanted[1] || wanted[2];
    for (int i = 0; i < 3; i++) {
        unsigned required = (unsigned)of[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
        if (said && required && required != wanted[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        wanted[i] = said ? wanted[i] : required;
    }
    if (!wanted[0] && !wanted[1] && !wanted[2])
        return of[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                              : CUDA_SUCCESS;
    bool divides = true;
    for (int i = 0; i < 3; i++) {
        if (!wanted[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        divides &= d->grid[i] % wanted[i] == 0;
        blocks *= wanted[i];
    }
    if (divides && blocks <= PORTABLE_CLUSTER)
        return CUDA_SUCCESS;
    if ((said && !divides) ||
        (blocks > PORTABLE_CLUSTER && !of[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    CUlaunchAttribute shape = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                               .value.clusterDim = {wanted[0], wanted[1], wanted[2]}};
    CUlaunchConfig config = {.gridDimX = d->grid[0],
                             .gridDimY = d->grid[1],
                             .gridDimZ = d->grid[2],
                             .blockDimX = d->block[0],
                             .blockDimY = d->block[1],
                             .blockDimZ = d->block[2],
                             .sharedMemBytes = d->shared,
                             .attrs = &shape,
                             .numAttrs = said};
    int fit;
    return cuOccupancyMaxActiveClusters(&fit, f, &config);
}

/* Those that kernels of a context run on. */
static int multiprocessors_of(uint64_t context)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, context);
    if (!shadow || shadow->context.multiprocessors)
        return shadow ? (int)shadow->context.multiprocessors : 0;
    return rg_device_attribute(shadow->context.device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

CUresult rg_launch_check_cooperative(CUfunction f, const struct rg_launch_dimensions *d, uint64_t context,
                                     bool cooperative, unsigned n_attributes,
                                     const CUlaunchAttribute *attributes)
{
    for (unsigned i = 0; i < n_attributes; i++)
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            cooperative = attributes[i].value.cooperative;
    if (!cooperative)
        return CUDA_SUCCESS;
    const uint64_t blocks = (uint64_t)d->grid[0] * d->grid[1] * d->grid[2];
    const int units = multiprocessors_of(context);
    int each = 0;
    if (units > 0 && blocks <= (uint64_t)units) /* one fits, or the launch fails for another reason */
        return CUDA_SUCCESS;
    CUresult status = rg_op_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &each, f, (int)(d->block[0] * d->block[1] * d->block[2]), d->shared);
    if (status == CUDA_SUCCESS && blocks > (uint64_t)each * (uint64_t)units)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return status;
}
