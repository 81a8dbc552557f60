/*
 * legacy_launch.c - launches in pieces: the block's shape, the shared memory and the parameters are set on
 * the function first (cuFuncSetBlockShape, cuFuncSetSharedSize, cuParamSet…), then cuLaunch names no more
 * than the grid.
 *
 * What is set belongs to the function and stays; it is kept here by handle, under one lock, and each setter
 * checks that the handle is a function's. Any thread.
 */
#include "common/cuda/api.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS        64
#define PARAMETERS_MAX 4096 /* bytes, as these calls have always had */

struct setup {
    struct setup *next;
    CUfunction function;
    int block[3]; /* 0: not set */
    unsigned int shared;
    unsigned int size; /* of the parameters */
    unsigned char parameters[PARAMETERS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct setup *buckets[BUCKETS];

/* What is set of the function, made if need be; NULL: no memory. The lock is held. */
static struct setup *setup_of(CUfunction function)
{
    struct setup **bucket = &buckets[((uintptr_t)function >> 4) % BUCKETS];
    for (struct setup *at = *bucket; at; at = at->next)
        if (at->function == function)
            return at;
    struct setup *made = calloc(1, sizeof *made);
    if (made) {
        made->function = function;
        made->next = *bucket;
        *bucket = made;
    }
    return made;
}

/* Checks the handle and locks; on success the caller unlocks. */
static CUresult begin(CUfunction function, struct setup **setup)
{
    int threads;
    CUresult status = cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (status != CUDA_SUCCESS)
        return status;
    pthread_mutex_lock(&lock);
    *setup = setup_of(function);
    if (!*setup)
        pthread_mutex_unlock(&lock);
    return *setup ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    struct setup *setup;
    CUresult status = begin(hfunc, &setup);
    if (status != CUDA_SUCCESS)
        return status;
    if (x <= 0 || y <= 0 || z <= 0)
        status = CUDA_ERROR_INVALID_VALUE;
    else
        memcpy(setup->block, (int[]){x, y, z}, sizeof setup->block);
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    struct setup *setup;
    CUresult status = begin(hfunc, &setup);
    if (status != CUDA_SUCCESS)
        return status;
    setup->shared = bytes;
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    struct setup *setup;
    CUresult status = begin(hfunc, &setup);
    if (status != CUDA_SUCCESS)
        return status;
    if (numbytes > sizeof setup->parameters)
        status = CUDA_ERROR_INVALID_VALUE;
    else
        setup->size = numbytes;
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    struct setup *setup;
    CUresult status = begin(hfunc, &setup);
    if (status != CUDA_SUCCESS)
        return status;
    if (offset < 0 || !ptr || numbytes > sizeof setup->parameters ||
        (unsigned)offset > sizeof setup->parameters - numbytes)
        status = CUDA_ERROR_INVALID_VALUE;
    else
        memcpy(setup->parameters + offset, ptr, numbytes);
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    struct setup *setup;
    CUresult status = begin(f, &setup);
    if (status != CUDA_SUCCESS)
        return status;
    struct setup mine = *setup;
    pthread_mutex_unlock(&lock);
    if (grid_width <= 0 || grid_height <= 0 || !mine.block[0])
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = mine.size;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, mine.parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(f, (unsigned)grid_width, (unsigned)grid_height, 1, (unsigned)mine.block[0],
                          (unsigned)mine.block[1], (unsigned)mine.block[2], mine.shared, hStream, NULL,
                          extra);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult cuLaunch(CUfunction f)
{
    return cuLaunchGridAsync(f, 1, 1, NULL);
}
