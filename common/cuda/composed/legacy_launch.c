/*
 * legacy_launch.c - launches in pieces: the block's shape, the shared memory and the parameters are set on
 * the function first (cuFuncSetBlockShape, cuFuncSetSharedSize, cuParamSet…), then cuLaunch names no more
 * than the grid.
 *
 * What is set belongs to the function and stays; it is kept here by handle, under one lock, and each setter
 * checks that the handle is a function's. Any thread.
 */
#include "common/base/hash_table.h"
#include "common/base/status.h"
#include "common/cuda/api.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 4096 /* bytes, as these calls have always had */

struct setup {
    struct rg_hash_link link; /* first; by the handle */
    CUfunction function;
    int block[3]; /* 0: not set */
    unsigned int shared;
    unsigned int size; /* of the parameters */
    unsigned char parameters[PARAMETERS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table setups;

/* What is set of the function, made if need be; NULL: no memory. The lock is held. */
static struct setup *setup_of(CUfunction function)
{
    const uint64_t hash = (uintptr_t)function;
    for (struct rg_hash_link *at = rg_hash_table_first(&setups, hash); at; at = rg_hash_table_next(at))
        if (((struct setup *)(void *)at)->function == function)
            return (struct setup *)(void *)at;
    struct setup *made = calloc(1, sizeof *made);
    if (made) {
        made->function = function;
        rg_hash_table_add(&setups, &made->link, hash);
    }
    return made;
}

static CUresult check(CUfunction function)
{
    int threads;
    return cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
}

/*
 * What is set of a function whose handle has been checked, with the lock until the end of the scope; or
 * return.
 */
#define SETUP_OR_RETURN(var, function)                                                                       \
    const CUresult checked_ = check(function);                                                               \
    if (checked_ != CUDA_SUCCESS)                                                                            \
        return checked_;                                                                                     \
    RG_SCOPED_LOCK(&lock);                                                                                   \
    struct setup *var = setup_of(function);                                                                  \
    if (!var)                                                                                                \
    return CUDA_ERROR_OUT_OF_MEMORY

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    SETUP_OR_RETURN(setup, hfunc);
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(setup->block, (int[]){x, y, z}, sizeof setup->block);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    SETUP_OR_RETURN(setup, hfunc);
    setup->shared = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    SETUP_OR_RETURN(setup, hfunc);
    if (numbytes > sizeof setup->parameters)
        return CUDA_ERROR_INVALID_VALUE;
    setup->size = numbytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    SETUP_OR_RETURN(setup, hfunc);
    if (offset < 0 || !ptr || numbytes > sizeof setup->parameters ||
        (unsigned)offset > sizeof setup->parameters - numbytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(setup->parameters + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

static CUresult copy_setup(CUfunction function, struct setup *out)
{
    SETUP_OR_RETURN(setup, function);
    *out = *setup;
    return CUDA_SUCCESS;
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    struct setup mine;
    RG_TRY(copy_setup(f, &mine));
    if (grid_width <= 0 || grid_height <= 0 || !mine.block[0])
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = mine.size;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, mine.parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(f, (unsigned)grid_width, (unsigned)grid_height, 1, (unsigned)mine.block[0],
                          (unsigned)mine.block[1], (unsigned)mine.block[2], mine.shared, hStream, NULL,
                          extra);
}
