/* image_file.h - module images that calls name by a file. Any thread. */
#ifndef RG_COMMON_CUDA_IMAGE_FILE_H
#define RG_COMMON_CUDA_IMAGE_FILE_H

#include "common/cuda/api.h"

#include <stddef.h>

/**
 * The whole file, to be freed, and its size; a NUL is added behind it, so that PTX text ends. CUDA_ERROR_FILE_NOT_FOUND: no
 * file that can be opened; CUDA_ERROR_INVALID_IMAGE: an empty one, one that cannot be read, or longer than RG_IMAGE_MAX; or one that
 * says that it goes on behind its end, or elsewhere (rg_cuda_image_leads_outside).
 */
CUresult rg_cuda_image_read_file(const char *path, void **out, size_t *size);

#endif
