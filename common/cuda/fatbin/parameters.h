/*
 * parameters.h - the layout of kernels' parameters, read from a module image: for drivers that cannot tell it
 * (before CUDA 12.4 there is no cuFuncGetParamInfo).
 *
 * A cubin says it in the section .nv.info.KERNEL, PTX in the declaration of the kernel. The images are anybody's: every
 * offset and count is checked, and a layout that is not whole is left out. That it is the kernel's is the image's own word,
 * and harms nobody but who sent it: who launches gives the driver a buffer of as many bytes as he says himself.
 */
#ifndef RG_COMMON_CUDA_FATBIN_PARAMETERS_H
#define RG_COMMON_CUDA_FATBIN_PARAMETERS_H

#include "common/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** One parameter: bytes from the start of the kernel's parameters, and its bytes. */
struct rg_kernel_parameter {
    uint32_t offset, size;
};

/** A kernel's. Name (not NUL-terminated) and array live for the call. */
struct rg_kernel_layout {
    const char *name;
    size_t length;
    uint32_t n; /* RG_KERNEL_PARAMETERS_MAX at most */
    const struct rg_kernel_parameter *parameters;
};

/**
 * Calls `each` for every kernel in `size` bytes of any origin whose layout they say. Of a fat binary those entries are read
 * that a driver would take for a device of `capability` (90 for 9.0): machine code that fits, else PTX that fits, each of the
 * highest architecture; if nothing fits, all. A name may come several times, with the same layout. False: there is
 * something in the image that could not be looked into. Any thread.
 */
bool rg_image_parameters(const void *image, size_t size, uint32_t capability,
                         void (*each)(void *user, const struct rg_kernel_layout *layout), void *user);

#endif
