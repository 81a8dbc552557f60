/* copy.h - copies between regions, wherever they are, and copies as graphs ask for them. */
#ifndef RG_CLIENT_API_COPY_H
#define RG_CLIENT_API_COPY_H

#include "client/transfer/protocol.h"

/**
 * Both ends have the same extents, which are not 0; boxes of arrays lie in them. The context, and the stream,
 * an effective one, have been checked. Changes `copy`.
 */
CUresult rg_region_copy(struct rg_copy *copy);
/** Puts a copy into a stream that reads and writes host memory of any kind when the stream gets there. */
CUresult rg_copy_in_order(const CUDA_MEMCPY3D *copy, CUstream stream);

#endif
