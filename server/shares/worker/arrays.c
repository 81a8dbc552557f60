/*
 * arrays.c - arrays and mipmapped arrays. How a driver lays them out is its own affair: their elements are charged. (It tells the
 * size only of arrays that have no memory of their own: cuArrayGetMemoryRequirements.)
 */
#include "common/cuda/texel.h"
#include "server/shares/worker/memory.h"

/* Bytes of an element, at most. */
static uint64_t element_size(CUarray_format format, unsigned channels)
{
    const size_t size = rg_texel_size(format, channels);
    if (size)
        return size;
    if (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB)
        return 1; /* blocks of 16 elements have 16 bytes, or 8 */
    return format == CU_AD_FORMAT_NV12 ? channels : 2 * (uint64_t)channels; /* a video's of 16 bits at most */
}

/* Sizes of 0 are those of dimensions that the array does not have. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    uint64_t bytes = element_size(array->Format, array->NumChannels);
    const uint64_t sizes[] = {array->Width, array->Height, array->Depth};
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0; /* its memory is mapped into it */
    for (int i = 0; i < 3; i++)
        if (sizes[i] && __builtin_mul_overflow(bytes, sizes[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* What is more than is left is destroyed again. */
static CUresult end_array(struct rg_meter *meter, CUresult result, const CUarray *out, uint64_t bytes)
{
    if (rg_meter_end(meter, result, RG_METER_ARRAY, result == CUDA_SUCCESS ? (uintptr_t)*out : 0, bytes))
        return result;
    (void)rg_share_direct.cuArrayDestroy(*out);
    rg_meter_look(meter->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create_3d(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    struct rg_meter meter;
    const uint64_t bytes = wanted ? rg_meter_round(bytes_of(wanted)) : 0;
    if (!rg_meter_begin_current(&meter, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end_array(&meter, rg_share_direct.cuArray3DCreate_v2(out, wanted), out, bytes);
}

static CUresult create_2d(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    struct rg_meter meter;
    if (!wanted)
        return rg_share_direct.cuArrayCreate_v2(out, wanted);
    const CUDA_ARRAY3D_DESCRIPTOR same = {.Width = wanted->Width,
                                          .Height = wanted->Height,
                                          .Format = wanted->Format,
                                          .NumChannels = wanted->NumChannels};
    const uint64_t bytes = rg_meter_round(bytes_of(&same));
    if (!rg_meter_begin_current(&meter, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end_array(&meter, rg_share_direct.cuArrayCreate_v2(out, wanted), out, bytes);
}

RG_SHARE_FREES(destroy, RG_METER_ARRAY, cuArrayDestroy, CUarray)

static size_t half(size_t size)
{
    return size > 1 ? size / 2 : size; /* a dimension that there is not stays 0 */
}

/* All levels. Of layers each has as many; cube maps have their faces there. */
static uint64_t bytes_of_levels(const CUDA_ARRAY3D_DESCRIPTOR *first, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR level = *first;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        if (__builtin_add_overflow(bytes, bytes_of(&level), &bytes))
            return UINT64_MAX;
        level.Width = half(level.Width);
        level.Height = half(level.Height);
        if (!(first->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
            level.Depth = half(level.Depth);
    }
    return bytes;
}

static CUresult create_mipmapped(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                 unsigned levels)
{
    struct rg_meter meter;
    const uint64_t bytes = wanted ? rg_meter_round(bytes_of_levels(wanted, levels)) : 0;
    if (!rg_meter_begin_current(&meter, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = rg_share_direct.cuMipmappedArrayCreate(out, wanted, levels);
    if (rg_meter_end(&meter, result, RG_METER_MIPMAP, result == CUDA_SUCCESS ? (uintptr_t)*out : 0, bytes))
        return result;
    (void)rg_share_direct.cuMipmappedArrayDestroy(*out);
    rg_meter_look(meter.device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

RG_SHARE_FREES(destroy_mipmapped, RG_METER_MIPMAP, cuMipmappedArrayDestroy, CUmipmappedArray)

void rg_share_enter_arrays(void)
{
    RG_SHARE_ENTER(cuArrayCreate_v2, create_2d);
    RG_SHARE_ENTER(cuArray3DCreate_v2, create_3d);
    RG_SHARE_ENTER(cuArrayDestroy, destroy);
    RG_SHARE_ENTER(cuMipmappedArrayCreate, create_mipmapped);
    RG_SHARE_ENTER(cuMipmappedArrayDestroy, destroy_mipmapped);
}
