/* texel.h - the size of an array's elements. */
#ifndef RG_COMMON_CUDA_TEXEL_H
#define RG_COMMON_CUDA_TEXEL_H

#include <cuda.h>
#include <stddef.h>

/**
 * Bytes of an element of an array, or of linear memory that is read as one. 0 for the formats whose elements are not one behind
 * the other: block compressed ones, and those of videos. Formats that name their number of channels have that one, whatever
 * `channels` is. Threads: any.
 */
size_t rg_texel_size(CUarray_format format, unsigned channels);

#endif
