/*
 * array.h - CUDA arrays: rows, slices and layers of texels in device memory that has no address for
 * applications.
 *
 * The memory is laid out plainly (rows, pitch apart, slice after slice); layers and the faces of cubes are
 * slices.
 */
#ifndef SG_DRIVER_MEMORY_ARRAY_H
#define SG_DRIVER_MEMORY_ARRAY_H

#include "softgpu/driver/driver.h"
#include "softgpu/exec/texture/texture.h"

struct sg_array {
    struct sg_object object;
    CUDA_ARRAY3D_DESCRIPTOR descriptor; /* as asked for */
    uint64_t base, pitch;
    uint32_t texel_size;
    uint32_t width, height, depth; /* at least 1 each; layers and faces count as depth */
    bool level;                    /* of a mipmapped array, which alone ends it */
};

struct sg_mipmap {
    struct sg_object object;
    CUDA_ARRAY3D_DESCRIPTOR descriptor; /* as asked for */
    unsigned n_levels;
    struct sg_array *level[SG_TEXTURE_LEVELS]; /* references held */
};

/** The live array of a handle, with a reference. */
CUresult sg_array_get(CUarray handle, struct sg_array **array);
#define SG_ARRAY_OR_RETURN(var, handle)                                                                      \
    SG_REF(struct sg_array) var = NULL;                                                                      \
    RG_TRY(sg_array_get(handle, &var))
/** A new array, which its handle has the only reference of. `level`: of a mipmapped array. */
CUresult sg_array_create(struct sg_context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, bool level,
                         struct sg_array **array);
/** The live mipmapped array of a handle, with a reference. */
CUresult sg_mipmap_get(CUmipmappedArray handle, struct sg_mipmap **mipmap);
#define SG_MIPMAP_OR_RETURN(var, handle)                                                                     \
    SG_REF(struct sg_mipmap) var = NULL;                                                                     \
    RG_TRY(sg_mipmap_get(handle, &var))
/**
 * What an element of `channels` channels is: its size in bytes and its kind. CUDA_ERROR_NOT_SUPPORTED for the
 * block compressed and packed formats.
 */
CUresult sg_array_format(CUarray_format format, unsigned channels, uint32_t *size, enum sg_texel *texel);
/** Whether the format's integers are fractions of the largest one, however they are read. */
bool sg_array_normalised(CUarray_format format);

#endif
