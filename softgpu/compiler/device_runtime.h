/*
 * device_runtime.h - functions of the CUDA device runtime library (cudadevrt) that programs call without having linked
 * them: numba's grid.sync() is one. They come as PTX that is linked in where it is wanted.
 */
#ifndef SG_DEVICE_RUNTIME_H
#define SG_DEVICE_RUNTIME_H

#include "softgpu/compiler/compiler.h"

/** PTX to be linked in after these texts, with weak definitions, or NULL if they name none of its functions. */
const char *sg_device_runtime(const struct sg_source *sources, size_t count);

#endif
