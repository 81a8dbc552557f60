/* array.h - copies of boxes between packed host memory and the device. */
#ifndef RG_SERVER_TRANSFER_ARRAY_H
#define RG_SERVER_TRANSFER_ARRAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/**
 * Puts the copy of packed bytes [offset, offset + size) of a box into the stream; `host` holds just these. The device's
 * side of `box` is filled in and has been checked.
 */
CUresult rg_region_copy_box(bool to_device, const CUDA_MEMCPY3D *box, void *host, size_t offset, size_t size,
                            CUstream stream);

#endif
