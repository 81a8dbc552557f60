/*
 * module_load.h - loading an image as a module or a library.
 */
#ifndef RG_CLIENT_API_MODULE_LOAD_H
#define RG_CLIENT_API_MODULE_LOAD_H

#include "client/cache/image.h"
#include "client/cache/jit_options.h"
#include "proto/kinds.h"

#include <cuda.h>
#include <stdint.h>

/** Looks at the image; of one that is none, the log says so. */
CUresult rg_module_view_image(const void *image, struct rg_jit *jit, struct rg_image_view **view);
/** Loads what was looked at. *out: the handle. */
CUresult rg_module_load_image(enum rg_kind kind, struct rg_image_view *view, struct rg_jit *jit,
                              uint64_t *out);
/** Memory has run out: that a load has succeeded before does not mean any more that it will. */
void rg_module_loads_wait(void);

#endif
