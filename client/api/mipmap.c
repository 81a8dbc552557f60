/*
 * mipmap.c - mipmapped arrays. The levels are arrays that the worker's driver made; they are named when the
 * whole is created, in records that nobody waits for, so that asking for one costs nothing.
 */
#include "client/api/device_wait.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "common/base/status.h"
#include "common/cuda/texel.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define LEVELS_MAX 32

/* How many levels the driver makes: down to one texel (of layered ones, layers do not count). */
static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned wanted)
{
    unsigned levels = 1;
    size_t longest = d->Width > d->Height ? d->Width : d->Height;
    if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && d->Depth > longest)
        longest = d->Depth;
    for (; longest > 1 && levels < wanted && levels < LEVELS_MAX; longest >>= 1)
        levels++;
    return levels;
}

static size_t halved(size_t extent, unsigned times)
{
    return !extent ? 0 : extent >> times ? extent >> times : 1;
}

static void forget_levels(const struct rg_mipmap *mipmap, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        rg_handle_delete(RG_KIND_ARRAY, mipmap->level[i]);
    free(mipmap->level);
}

/* Names the levels: an array each, with a shadow of its own. */
static CUresult name_levels(CUmipmappedArray handle, struct rg_mipmap *mipmap)
{
    CUresult status = CUDA_SUCCESS;
    unsigned n = 0;
    mipmap->level = calloc(mipmap->levels, sizeof *mipmap->level);
    if (!mipmap->level)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (n < mipmap->levels && status == CUDA_SUCCESS) {
        CUarray level = (CUarray)rg_handle_create(RG_KIND_ARRAY);
        if (!level) {
            status = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        mipmap->level[n] = (uint64_t)level;
        struct rg_array *shadow = &rg_handle_shadow(RG_KIND_ARRAY, (uint64_t)level)->array;
        shadow->descriptor = mipmap->descriptor;
        shadow->descriptor.Width = halved(mipmap->descriptor.Width, n);
        shadow->descriptor.Height = halved(mipmap->descriptor.Height, n);
        if (!(mipmap->descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
            shadow->descriptor.Depth = halved(mipmap->descriptor.Depth, n);
        shadow->texel_size = mipmap->texel_size;
        shadow->level = true;
        status = rg_op_cuMipmappedArrayGetLevel(&level, handle, n++);
    }
    if (status != CUDA_SUCCESS)
        forget_levels(mipmap, n);
    return status;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pHandle || !pMipmappedArrayDesc)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_mipmap mipmap = {.descriptor = *pMipmappedArrayDesc};
    mipmap.texel_size = rg_texel_size(mipmap.descriptor.Format, mipmap.descriptor.NumChannels);
    if (!mipmap.texel_size &&
        (mipmap.descriptor.Format <= CU_AD_FORMAT_FLOAT || !mipmap.descriptor.NumChannels))
        return CUDA_ERROR_INVALID_VALUE; /* as of arrays */
    if (!mipmap.texel_size)
        return rg_unsupported("an array of a format that is not linear");
    mipmap.levels = levels_of(pMipmappedArrayDesc, numMipmapLevels);
    CUmipmappedArray handle = (CUmipmappedArray)rg_handle_create(RG_KIND_MIPMAP);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_op_cuMipmappedArrayCreate(&handle, pMipmappedArrayDesc, numMipmapLevels);
    if (status == CUDA_SUCCESS) {
        status = name_levels(handle, &mipmap);
        if (status != CUDA_SUCCESS)
            rg_op_cuMipmappedArrayDestroy(handle);
    }
    if (status == CUDA_SUCCESS)
        rg_handle_shadow(RG_KIND_MIPMAP, (uint64_t)handle)->mipmap = mipmap;
    return rg_handle_made(RG_KIND_MIPMAP, (uint64_t)handle, status, pHandle);
}

static CUresult destroy(CUmipmappedArray handle, const struct rg_mipmap *mipmap)
{
    struct rg_device_wait wait;
    rg_device_wait_begin(&wait, rg_handle_home(RG_KIND_MIPMAP, (uint64_t)handle), 0);
    CUresult status = rg_op_cuMipmappedArrayDestroy(handle);
    for (unsigned i = 0; i < mipmap->levels && status == CUDA_SUCCESS; i++)
        status = rg_op_rgLevelForget((CUarray)mipmap->level[i]);
    rg_device_wait_end(&wait);
    return status;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MIPMAP, (uint64_t)hMipmappedArray);
    if (!shadow)
        return rg_handle_check(RG_KIND_MIPMAP, (uint64_t)hMipmappedArray, CUDA_ERROR_INVALID_HANDLE);
    const struct rg_mipmap mipmap = shadow->mipmap;
    CUresult status = rg_handle_check(RG_KIND_MIPMAP, (uint64_t)hMipmappedArray, CUDA_ERROR_INVALID_HANDLE);
    if (status == CUDA_SUCCESS) /* else it went with its context */
        status = destroy(hMipmappedArray, &mipmap);
    rg_handle_delete(RG_KIND_MIPMAP, (uint64_t)hMipmappedArray);
    forget_levels(&mipmap, mipmap.levels);
    return status;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pLevelArray)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rg_shadow *shadow;
    RG_TRY(rg_handle_live(RG_KIND_MIPMAP, (uint64_t)hMipmappedArray, &shadow));
    if (level >= shadow->mipmap.levels)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = (CUarray)shadow->mipmap.level[level];
    return CUDA_SUCCESS;
}

/* Formats that have planes cannot be made (cuArrayCreate). */
CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
    (void)planeIdx;
    RG_TRY(rg_call_allowed(0));
    if (pPlaneArray)
        RG_TRY(rg_handle_check(RG_KIND_ARRAY, (uint64_t)hArray, CUDA_ERROR_INVALID_HANDLE));
    return CUDA_ERROR_INVALID_VALUE;
}
