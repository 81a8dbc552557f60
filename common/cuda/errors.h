/* errors.h - what cuGetErrorName and cuGetErrorString answer, and what is said of handles of nothing, for every stand-in of libcuda. */
#ifndef RG_COMMON_CUDA_ERRORS_H
#define RG_COMMON_CUDA_ERRORS_H

#include "common/cuda/api.h"

/** The constant's name, or NULL for a value that is no CUresult. Static storage; any thread. */
const char *rg_cuda_error_name(CUresult code);
/** The driver's text for it, or NULL. */
const char *rg_cuda_error_string(CUresult code);
/**
 * Of a handle that names no stream, event or array: NVIDIA's driver says of one that has ended that its context is destroyed, and that only
 * no handle at all is an invalid one (docs/software-device.md, "Where documents are silent or disagree").
 */
static inline CUresult rg_cuda_no_object(const void *handle)
{
    return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

#endif
