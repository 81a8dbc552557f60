/*
 * cubin.h - machine code as a module of its shape alone: SOFTGPU_BEHAVE=nvidia:cubins=1.
 *
 * What loads, describes and launches machine code can so be tried without a device that runs it: kernels have their names and
 * parameters, variables their names and sizes, and a launch does nothing.
 */
#ifndef SG_DRIVER_MODULE_CUBIN_H
#define SG_DRIVER_MODULE_CUBIN_H

#include "softgpu/driver/module/module.h"

/** Adds what there is in `size` bytes of an ELF file. CUDA_ERROR_NO_BINARY_FOR_GPU: it is for other devices. */
CUresult sg_cubin_add(struct sg_sources *sources, const void *elf, uint64_t size, struct sg_text *log);
/** The same of the container's machine code that fits best. */
CUresult sg_cubin_add_of_container(struct sg_sources *sources, const void *data, uint64_t size,
                                   struct sg_text *log);

#endif
