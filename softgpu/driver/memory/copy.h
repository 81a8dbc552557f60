/* copy.h - copies, as graphs ask for them. */
#ifndef SG_DRIVER_MEMORY_COPY_H
#define SG_DRIVER_MEMORY_COPY_H

#include "softgpu/driver/driver.h"

/** Queues a copy that reads and writes host memory of any kind when the stream gets there; never waits. */
CUresult sg_copy_in_order(const CUDA_MEMCPY3D *copy, CUstream stream);

#endif
