/* function.h - attributes and limits of a kernel that functions, kernels, launches and occupancy share. */
#ifndef SG_FUNCTION_H
#define SG_FUNCTION_H

#include "softgpu/driver/module.h"

/** How many blocks of `threads` threads and `dynamic` bytes of shared memory fit on one multiprocessor. */
int sg_occupancy(const struct sg_kernel *kernel, const struct sg_settings *settings, unsigned threads,
                 size_t dynamic);

#endif
