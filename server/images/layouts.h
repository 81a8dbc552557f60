/*
 * layouts.h - the parameters of kernels, for drivers that cannot tell them.
 *
 * Drivers before CUDA 12.4 have neither cuFuncGetParamInfo nor cuKernelGetParamInfo. With such a driver the layouts are read
 * from an image when it is loaded (common/cuda/fatbin/parameters.h), kept with the driver's module or library, and handed on
 * to what is found in it: a library's module, functions, kernels. With others nothing is kept.
 *
 * Objects are known by the driver's pointers. An entry ends before the driver is told to end the object, as its pointer may be
 * another's at once. Any thread that executes a record.
 */
#ifndef RG_SERVER_IMAGES_LAYOUTS_H
#define RG_SERVER_IMAGES_LAYOUTS_H

#include "server/images/image.h"

/** Whether the driver has to be helped. */
bool rg_layouts_needed(void);
/**
 * A module or library has been made of `code` (and of `image->parts`), which is unchanged. The current context's device decides
 * which entries of a fat binary count, else the first device. `context`: with whose end a module ends; 0 of libraries.
 */
void rg_layouts_loaded(struct rg_request *request, const void *object, const struct rg_image *image,
                       const struct rg_image_code *code, uint64_t context);
/** The driver has given the module of a library. */
void rg_layouts_module(struct rg_request *request, const void *module, const void *library);
/** The driver has found the function or kernel `name` in a module or library. */
void rg_layouts_found(struct rg_request *request, const void *function, const void *owner, const char *name);
/** The driver has given the function of a kernel. */
void rg_layouts_function(struct rg_request *request, const void *function, const void *kernel);

/**
 * Parameter `index` of a function or kernel: CUDA_ERROR_INVALID_VALUE behind the last, CUDA_ERROR_NOT_FOUND if nothing is known
 * of the kernel.
 */
CUresult rg_layouts_param(struct rg_worker *worker, const void *function, size_t index, size_t *offset,
                          size_t *size);

#endif
