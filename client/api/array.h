/* array.h - facts about arrays. */
#ifndef RG_CLIENT_API_ARRAY_H
#define RG_CLIENT_API_ARRAY_H

#include <cuda.h>
#include <stddef.h>

/** Bytes of a texel of an array; 0 for formats that are not linear. */
size_t rg_texel_size(CUarray_format format, unsigned channels);

#endif
