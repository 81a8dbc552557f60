/* copy.h - copies, as graphs ask for them. */
#ifndef RG_CLIENT_API_COPY_H
#define RG_CLIENT_API_COPY_H

#include <cuda.h>

/** Puts a copy into a stream that reads and writes host memory of any kind when the stream gets there. */
CUresult rg_copy_in_order(const CUDA_MEMCPY3D *copy, CUstream stream);

#endif
