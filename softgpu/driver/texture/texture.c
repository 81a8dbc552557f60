/*
 * texture.c - texture and surface objects: descriptions by the application to descriptors for kernels
 * (softgpu/exec/texture/texture.h).
 *
 * Objects are numbers that kernels are given. Destroying one waits for the work queued before, so that a
 * kernel never meets an object that was there when it was launched and is gone.
 */
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

/* What an object was made from. */
struct made {
    struct sg_context *context; /* reference held */
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
};

static struct sg_level level_of(const struct sg_array *array)
{
    return (struct sg_level){.base = array->base,
                             .pitch = array->pitch,
                             .slice = array->pitch * array->height,
                             .width = array->width,
                             .height = array->height,
                             .depth = array->depth};
}

static CUresult set_format(struct sg_texture *x, CUarray_format format, unsigned channels)
{
    x->channels = (uint8_t)channels;
    x->fractions = sg_array_normalised(format);
    return sg_array_format(format, channels, &x->texel_size, &x->texel);
}

static CUresult resolve_array(const CUDA_RESOURCE_DESC *r, struct sg_texture *x, unsigned *flags)
{
    SG_ARRAY_OR_RETURN(array, r->res.array.hArray);
    x->n_levels = 1;
    x->level[0] = level_of(array);
    *flags = array->descriptor.Flags;
    return set_format(x, array->descriptor.Format, array->descriptor.NumChannels);
}

static CUresult resolve_mipmap(const CUDA_RESOURCE_DESC *r, struct sg_texture *x, unsigned *flags)
{
    SG_MIPMAP_OR_RETURN(mipmap, r->res.mipmap.hMipmappedArray);
    x->n_levels = (uint8_t)mipmap->n_levels;
    for (unsigned i = 0; i < mipmap->n_levels; i++)
        x->level[i] = level_of(mipmap->level[i]);
    *flags = mipmap->descriptor.Flags;
    return set_format(x, mipmap->descriptor.Format, mipmap->descriptor.NumChannels);
}

static CUresult resolve_linear(const CUDA_RESOURCE_DESC *r, struct sg_texture *x)
{
    struct sg_range range;
    RG_TRY(set_format(x, r->res.linear.format, r->res.linear.numChannels));
    if (r->res.linear.devPtr % SG_TEXTURE_ALIGNMENT_1D != 0 || !sg_range_find(r->res.linear.devPtr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    /* more than there is may be asked for (NVIDIA's sample convolutionFFT2D): behind it are zeros */
    const uint64_t size = r->res.linear.sizeInBytes;
    uint64_t there = range.size - (r->res.linear.devPtr - range.base);
    while (there < size && sg_range_find(r->res.linear.devPtr + there, &range))
        there += range.size;
    const uint64_t texels = (size < there ? size : there) / x->texel_size;
    if (texels == 0 || texels > SG_TEXTURE_LINEAR_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    x->level[0].base = r->res.linear.devPtr;
    x->level[0].width = (uint32_t)texels;
    x->level[0].height = x->level[0].depth = 1;
    x->linear = true;
    return CUDA_SUCCESS;
}

static CUresult resolve_pitched(const CUDA_RESOURCE_DESC *r, struct sg_texture *x)
{
    struct sg_range range;
    const uint64_t width = r->res.pitch2D.width, height = r->res.pitch2D.height,
                   pitch = r->res.pitch2D.pitchInBytes;
    RG_TRY(set_format(x, r->res.pitch2D.format, r->res.pitch2D.numChannels));
    if (width == 0 || height == 0 || width > SG_TEXTURE_PITCHED_MAX || height > SG_TEXTURE_PITCHED_MAX ||
        pitch > SG_MAX_PITCH || pitch < width * x->texel_size || pitch % SG_TEXTURE_PITCH_ALIGNMENT != 0 ||
        r->res.pitch2D.devPtr % SG_TEXTURE_PITCH_ALIGNMENT != 0 ||
        !sg_range_find(r->res.pitch2D.devPtr, &range) ||
        (height - 1) * pitch + width * x->texel_size > range.size - (r->res.pitch2D.devPtr - range.base))
        return CUDA_ERROR_INVALID_VALUE;
    x->level[0].base = r->res.pitch2D.devPtr;
    x->level[0].pitch = pitch;
    x->level[0].width = (uint32_t)width;
    x->level[0].height = (uint32_t)height;
    x->level[0].depth = 1;
    return CUDA_SUCCESS;
}

/* A view of an array: other layers or levels, or texels of the same size read in another way. */
static CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC *view, struct sg_texture *x)
{
    static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                             CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                             CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                             CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    static const uint8_t channels[] = {1, 2, 4};
    const uint32_t size = x->texel_size;
    if (view->format > CU_RES_VIEW_FORMAT_FLOAT_4X32)
        return sg_unsupported("resource views of block compressed formats");
    if (view->firstMipmapLevel > view->lastMipmapLevel || view->lastMipmapLevel >= x->n_levels)
        return CUDA_ERROR_INVALID_VALUE;
    if (view->format != CU_RES_VIEW_FORMAT_NONE) {
        const unsigned index = (unsigned)view->format - 1;
        RG_TRY(set_format(x, formats[index / 3], channels[index % 3]));
        if (size != x->texel_size)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (view->width > x->level[0].width || view->height > x->level[0].height ||
        view->lastLayer < view->firstLayer || view->lastLayer >= x->level[0].depth)
        return CUDA_ERROR_INVALID_VALUE;
    x->n_levels = (uint8_t)(view->lastMipmapLevel - view->firstMipmapLevel + 1);
    memmove(x->level, x->level + view->firstMipmapLevel, x->n_levels * sizeof *x->level);
    for (unsigned i = 0; i < x->n_levels && view->lastLayer > 0; i++) {
        x->level[i].base += view->firstLayer * x->level[i].slice;
        x->level[i].depth = view->lastLayer - view->firstLayer + 1;
    }
    return CUDA_SUCCESS;
}

static CUresult resolve(const CUDA_RESOURCE_DESC *r, struct sg_texture *x, unsigned *array_flags)
{
    if (r == NULL || r->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    switch (r->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return resolve_array(r, x, array_flags);
    case CU_RESOURCE_TYPE_LINEAR:
        return resolve_linear(r, x);
    case CU_RESOURCE_TYPE_PITCH2D:
        return resolve_pitched(r, x);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return resolve_mipmap(r, x, array_flags);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult apply_sampling(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *t,
                               struct sg_texture *x)
{
    const bool levels = resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    const unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                           CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    if (t->flags & CU_TRSF_SEAMLESS_CUBEMAP)
        return sg_unsupported("seamless cube maps");
    if (t->flags & ~known || (unsigned)t->filterMode > CU_TR_FILTER_MODE_LINEAR ||
        (unsigned)t->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    if (levels && !(t->flags & CU_TRSF_NORMALIZED_COORDINATES))
        return CUDA_ERROR_INVALID_VALUE;
    if (levels) {
        x->level_filter = t->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
        x->level_bias = t->mipmapLevelBias;
        x->level_least = t->minMipmapLevelClamp;
        x->level_most = t->maxMipmapLevelClamp;
    }
    for (int i = 0; i < 3; i++) {
        if ((unsigned)t->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
            return CUDA_ERROR_INVALID_VALUE;
        x->address[i] = (enum sg_address)t->addressMode[i];
    }
    memcpy(x->border, t->borderColor, sizeof x->border);
    x->normalised = t->flags & CU_TRSF_NORMALIZED_COORDINATES;
    x->srgb = t->flags & CU_TRSF_SRGB;
    x->as_float = (x->fractions || !(t->flags & CU_TRSF_READ_AS_INTEGER)) && x->texel <= SG_TEXEL_S16;
    /* Integers are not filtered, asked for or not: it is the runtime that refuses this, and FFmpeg's thumbnail_cuda has it. */
    const bool floats = x->as_float || x->texel == SG_TEXEL_HALF || x->texel == SG_TEXEL_FLOAT;
    x->filter = floats && t->filterMode == CU_TR_FILTER_MODE_LINEAR;
    return CUDA_SUCCESS;
}

/* What kernels can ask for beside extents. */
static void describe(struct sg_texture *x, const CUDA_RESOURCE_DESC *resource, unsigned array_flags)
{
    x->mipmapped = resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    x->layered = array_flags & CUDA_ARRAY3D_LAYERED;
    x->cube = array_flags & CUDA_ARRAY3D_CUBEMAP;
}

static CUresult add(unsigned long long *out, struct sg_context *context, const struct sg_texture *x,
                    const struct made *made)
{
    struct made *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kept = *made;
    kept->context = context;
    sg_acquire(&context->object);
    *out = sg_texture_register(x, kept);
    if (*out != 0)
        return CUDA_SUCCESS;
    sg_release(&context->object);
    free(kept);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(unsigned long long handle, bool surface)
{
    RG_TRY(sg_enter());
    struct made *made = sg_texture_user(handle, surface, false);
    if (made == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_context_wait(made->context);
    made = sg_texture_user(handle, surface, true);
    if (made == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = (CUresult)atomic_load(&made->context->sticky);
    sg_release(&made->context->object);
    free(made);
    return result;
}

static CUresult get(unsigned long long handle, bool surface, const void *out, const struct made **made)
{
    struct sg_context *context;
    const struct made *named = sg_texture_user(handle, surface, false);
    SG_IMPLYING_CONTEXT = sg_implied_context_set(named != NULL ? named->context : NULL);
    RG_TRY(sg_enter_context(&context));
    *made = out != NULL ? sg_texture_user(handle, surface, false) : NULL;
    return *made != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct sg_texture x = {0};
    unsigned array_flags = 0;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || texture == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(resolve(resource, &x, &array_flags));
    if (view != NULL && resource->resType != CU_RESOURCE_TYPE_ARRAY &&
        resource->resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    if (view != NULL)
        RG_TRY(apply_view(view, &x));
    RG_TRY(apply_sampling(resource, texture, &x));
    describe(&x, resource, array_flags);
    struct made made = {.resource = *resource, .texture = *texture, .has_view = view != NULL};
    if (view != NULL)
        made.view = *view;
    return add(out, context, &x, &made);
}

CUresult cuTexObjectDestroy(CUtexObject handle)
{
    return destroy(handle, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUtexObject handle)
{
    const struct made *made;
    RG_TRY(get(handle, false, out, &made));
    *out = made->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject handle)
{
    const struct made *made;
    RG_TRY(get(handle, false, out, &made));
    *out = made->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject handle)
{
    const struct made *made;
    RG_TRY(get(handle, false, out, &made));
    if (!made->has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *out = made->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
    struct sg_texture x = {.surface = true};
    unsigned array_flags = 0;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || resource == NULL || resource->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(resolve(resource, &x, &array_flags));
    describe(&x, resource, array_flags);
    return add(out, context, &x, &(struct made){.resource = *resource});
}

CUresult cuSurfObjectDestroy(CUsurfObject handle)
{
    return destroy(handle, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUsurfObject handle)
{
    const struct made *made;
    RG_TRY(get(handle, true, out, &made));
    *out = made->resource;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *out, CUarray_format format, unsigned channels,
                                            CUdevice ordinal)
{
    uint32_t size;
    enum sg_texel texel;
    SG_DEVICE_OR_RETURN(device, ordinal);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_array_format(format, channels, &size, &texel));
    *out = SG_TEXTURE_LINEAR_MAX;
    return CUDA_SUCCESS;
}
