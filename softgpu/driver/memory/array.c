/*
 * array.c - creating, describing and destroying CUDA arrays. See array.h; copies are in copy.c.
 *
 * Sparse and deferred arrays, and formats other than the linear ones, are refused with
 * CUDA_ERROR_NOT_SUPPORTED.
 */
#include <stdlib.h>

#include "common/base/align.h"
#include "common/cuda/errors.h"
#include "common/cuda/texel.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

#define ROW_ALIGNMENT 32u

CUresult sg_array_format(CUarray_format format, unsigned channels, uint32_t *size, enum sg_texel *texel)
{
    static const struct {
        CUarray_format format;
        enum sg_texel texel;
        unsigned channels; /* 0: as many as are asked for */
    } formats[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, SG_TEXEL_U8, 0},  {CU_AD_FORMAT_UNSIGNED_INT16, SG_TEXEL_U16, 0},
        {CU_AD_FORMAT_UNSIGNED_INT32, SG_TEXEL_32, 0}, {CU_AD_FORMAT_SIGNED_INT8, SG_TEXEL_S8, 0},
        {CU_AD_FORMAT_SIGNED_INT16, SG_TEXEL_S16, 0},  {CU_AD_FORMAT_SIGNED_INT32, SG_TEXEL_32, 0},
        {CU_AD_FORMAT_HALF, SG_TEXEL_HALF, 0},         {CU_AD_FORMAT_FLOAT, SG_TEXEL_FLOAT, 0},
        {CU_AD_FORMAT_UNORM_INT8X1, SG_TEXEL_U8, 1},   {CU_AD_FORMAT_UNORM_INT8X2, SG_TEXEL_U8, 2},
        {CU_AD_FORMAT_UNORM_INT8X4, SG_TEXEL_U8, 4},   {CU_AD_FORMAT_UNORM_INT16X1, SG_TEXEL_U16, 1},
        {CU_AD_FORMAT_UNORM_INT16X2, SG_TEXEL_U16, 2}, {CU_AD_FORMAT_UNORM_INT16X4, SG_TEXEL_U16, 4},
        {CU_AD_FORMAT_SNORM_INT8X1, SG_TEXEL_S8, 1},   {CU_AD_FORMAT_SNORM_INT8X2, SG_TEXEL_S8, 2},
        {CU_AD_FORMAT_SNORM_INT8X4, SG_TEXEL_S8, 4},   {CU_AD_FORMAT_SNORM_INT16X1, SG_TEXEL_S16, 1},
        {CU_AD_FORMAT_SNORM_INT16X2, SG_TEXEL_S16, 2}, {CU_AD_FORMAT_SNORM_INT16X4, SG_TEXEL_S16, 4},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == format) {
            if (formats[i].channels != 0 ? channels != formats[i].channels
                                         : channels != 1 && channels != 2 && channels != 4)
                return CUDA_ERROR_INVALID_VALUE;
            *size = (uint32_t)rg_texel_size(format, channels);
            *texel = formats[i].texel;
            return CUDA_SUCCESS;
        }
    if (format <= CU_AD_FORMAT_FLOAT || channels == 0) /* all formats of so low numbers are above */
        return CUDA_ERROR_INVALID_VALUE;
    return sg_unsupported("an array format other than 8, 16 and 32 bit integers, half and float");
}

bool sg_array_normalised(CUarray_format format)
{
    return format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4;
}

static void finish_array(struct sg_object *object)
{
    struct sg_array *array = (struct sg_array *)object;
    free(array);
}

CUresult sg_array_get(CUarray handle, struct sg_array **out)
{
    return sg_handle_get_living(handle, SG_KIND_ARRAY, (void **)out);
}

/* Whether the extents are those of an array of the kind that the flags name. */
static bool shape_valid(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    const bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;
    if (d->Width == 0)
        return false;
    if (cube)
        return d->Width == d->Height && d->Width <= SG_TEXTURE_CUBE_MAX &&
               (layered ? d->Depth > 0 && d->Depth % 6 == 0 && d->Depth <= SG_TEXTURE_CUBE_LAYERS_MAX
                        : d->Depth == 6);
    if (layered)
        return d->Depth > 0 && d->Depth <= SG_TEXTURE_LAYERS_MAX && d->Width <= SG_TEXTURE_LAYERED_MAX &&
               d->Height <= SG_TEXTURE_LAYERED_MAX;
    if (d->Depth > 0)
        return d->Height > 0 && d->Width <= SG_TEXTURE_3D_MAX && d->Height <= SG_TEXTURE_3D_MAX &&
               d->Depth <= SG_TEXTURE_3D_MAX;
    if (d->Height > 0)
        return d->Width <= SG_TEXTURE_2D_WIDTH_MAX && d->Height <= SG_TEXTURE_2D_HEIGHT_MAX;
    return d->Width <= SG_TEXTURE_1D_MAX;
}

CUresult sg_array_create(struct sg_context *context, const CUDA_ARRAY3D_DESCRIPTOR *d, bool level,
                         struct sg_array **out)
{
    uint32_t size;
    enum sg_texel texel;
    const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                           CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    if (d->Flags & ~known)
        return sg_unsupported("arrays that are sparse, deferred, for depth or for video");
    RG_TRY(sg_array_format(d->Format, d->NumChannels, &size, &texel));
    if (!shape_valid(d))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_array *array = calloc(1, sizeof *array);
    if (array == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->descriptor = *d;
    array->texel_size = size;
    array->width = (uint32_t)d->Width;
    array->height = d->Height > 0 ? (uint32_t)d->Height : 1;
    array->depth = d->Depth > 0 ? (uint32_t)d->Depth : 1;
    array->pitch = rg_align_up((uint64_t)array->width * size, ROW_ALIGNMENT);
    CUresult result = sg_range_alloc(context, context->device, array->pitch * array->height * array->depth,
                                     SG_RANGE_ARRAY, NULL, &array->base);
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->level = level;
    sg_handle_add(&array->object, SG_KIND_ARRAY, context, finish_array);
    *out = array;
    return CUDA_SUCCESS;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct sg_array *array;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || d == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_array_create(context, d, false, &array));
    *out = (CUarray)(void *)array;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
    RG_TRY(sg_enter());
    if (d == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return create(
        out, &(CUDA_ARRAY3D_DESCRIPTOR){
                 .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels});
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return create(out, d);
}

/* What was queued before may still use the array: as with memory, destroying waits for it. */
CUresult cuArrayDestroy(CUarray handle)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_array) array = NULL;
    CUresult result = sg_array_get(handle, &array);
    if (result == CUDA_SUCCESS && array->level)
        return CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED && sg_handle_remove(handle, SG_KIND_ARRAY))
        sg_release((struct sg_object *)(void *)handle); /* its memory went with the context */
    RG_TRY(result);
    sg_context_wait(array->object.context);
    if (!sg_handle_remove(handle, SG_KIND_ARRAY))
        return rg_cuda_no_object(handle);
    sg_range_free(array->base, SG_RANGE_ARRAY);
    result = (CUresult)atomic_load(&array->object.context->sticky);
    sg_release(&array->object); /* the handle's */
    return result;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle)
{
    SG_IMPLY_CONTEXT(SG_KIND_ARRAY, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_ARRAY_OR_RETURN(array, handle);
    *out = array->descriptor;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(cuArray3DGetDescriptor_v2(&d, handle));
    *out = (CUDA_ARRAY_DESCRIPTOR){
        .Width = d.Width, .Height = d.Height, .Format = d.Format, .NumChannels = d.NumChannels};
    return CUDA_SUCCESS;
}
