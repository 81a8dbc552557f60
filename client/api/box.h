/* box.h - copies of boxes: rows and slices of host memory, device memory and arrays. See array.c. */
#ifndef RG_CLIENT_API_BOX_H
#define RG_CLIENT_API_BOX_H

#include <cuda.h>
#include <stdbool.h>

/** A copy as cuMemcpy3D describes it; the context and the stream's handle have been checked. */
CUresult rg_copy_box(const CUDA_MEMCPY3D *copy, CUstream stream, bool asynchronous);

/** Bytes of a texel of an array; 0 for formats that are not linear. */
size_t rg_texel_size(CUarray_format format, unsigned channels);

#endif
