/*
 * mipmap.c - mipmapped arrays: one array a level, each half the one before. A level is an array in its own
 * right, which the application may copy to and make textures and surfaces of, and which ends with the whole.
 */
#include <stdlib.h>

#include "common/cuda/errors.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

static void finish_mipmap(struct sg_object *object)
{
    struct sg_mipmap *mipmap = (struct sg_mipmap *)object;
    for (unsigned i = 0; i < mipmap->n_levels; i++)
        sg_release(&mipmap->level[i]->object);
    free(mipmap);
}

CUresult sg_mipmap_get(CUmipmappedArray handle, struct sg_mipmap **out)
{
    return sg_handle_get_living(handle, SG_KIND_MIPMAP, (void **)out);
}

static size_t halved(size_t extent, unsigned times)
{
    return extent == 0 ? 0 : extent >> times != 0 ? extent >> times : 1;
}

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *whole, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR d = *whole;
    d.Width = halved(d.Width, level);
    d.Height = halved(d.Height, level);
    if (!(d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))) /* layers stay as many */
        d.Depth = halved(d.Depth, level);
    return d;
}

/* How many levels there can be: down to one texel. */
static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    unsigned levels = 1;
    size_t longest = d->Width > d->Height ? d->Width : d->Height;
    if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && d->Depth > longest)
        longest = d->Depth;
    for (; longest > 1 && levels < SG_TEXTURE_LEVELS; longest >>= 1)
        levels++;
    return levels;
}

/* Ends the levels' handles, and their memory if that has not gone with the context. */
static void drop_levels(struct sg_mipmap *mipmap, bool memory)
{
    for (unsigned i = 0; i < mipmap->n_levels; i++) {
        struct sg_array *array = mipmap->level[i];
        if (sg_handle_remove(array, SG_KIND_ARRAY)) {
            if (memory)
                sg_range_free(array->base, SG_RANGE_ARRAY);
            sg_release(&array->object); /* the handle's */
        }
    }
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned n_levels)
{
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || d == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_mipmap *mipmap = calloc(1, sizeof *mipmap);
    if (mipmap == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const unsigned most = levels_of(d), wanted = n_levels < 1 ? 1 : n_levels < most ? n_levels : most;
    mipmap->descriptor = *d;
    CUresult result = CUDA_SUCCESS;
    while (mipmap->n_levels < wanted && result == CUDA_SUCCESS) {
        const CUDA_ARRAY3D_DESCRIPTOR level = level_of(d, mipmap->n_levels);
        struct sg_array *array;
        result = sg_array_create(context, &level, true, &array);
        if (result == CUDA_SUCCESS) {
            sg_acquire(&array->object); /* the handle has one reference, this is another */
            mipmap->level[mipmap->n_levels++] = array;
        }
    }
    if (result != CUDA_SUCCESS) {
        drop_levels(mipmap, true);
        finish_mipmap(&mipmap->object);
        return result;
    }
    sg_handle_add(&mipmap->object, SG_KIND_MIPMAP, context, finish_mipmap);
    *out = (CUmipmappedArray)(void *)mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_mipmap) mipmap = NULL;
    CUresult result = sg_mipmap_get(handle, &mipmap);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED && sg_handle_remove(handle, SG_KIND_MIPMAP)) {
        drop_levels((struct sg_mipmap *)(void *)handle, false);
        sg_release((struct sg_object *)(void *)handle);
    }
    RG_TRY(result);
    sg_context_wait(mipmap->object.context);
    if (!sg_handle_remove(handle, SG_KIND_MIPMAP))
        return rg_cuda_no_object(handle);
    drop_levels(mipmap, true);
    result = (CUresult)atomic_load(&mipmap->object.context->sticky);
    sg_release(&mipmap->object); /* the handle's */
    return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned level)
{
    SG_IMPLY_CONTEXT(SG_KIND_MIPMAP, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_MIPMAP_OR_RETURN(mipmap, handle);
    if (level >= mipmap->n_levels)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUarray)(void *)mipmap->level[level];
    return CUDA_SUCCESS;
}

/* --- what only other arrays have: deferred memory, sparse memory, planes --- */

static CUresult has_none(const void *out, enum sg_kind kind, const void *handle)
{
    SG_REF(struct sg_object) object = NULL;
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_handle_get_living(handle, kind, (void **)&object));
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array, CUdevice device)
{
    (void)device;
    return has_none(out, SG_KIND_ARRAY, array);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array)
{
    return has_none(out, SG_KIND_ARRAY, array);
}

CUresult cuArrayGetPlane(CUarray *out, CUarray array, unsigned plane)
{
    (void)plane;
    return has_none(out, SG_KIND_ARRAY, array);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray mipmap,
                                               CUdevice device)
{
    (void)device;
    return has_none(out, SG_KIND_MIPMAP, mipmap);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray mipmap)
{
    return has_none(out, SG_KIND_MIPMAP, mipmap);
}
