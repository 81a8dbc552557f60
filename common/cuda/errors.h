/* errors.h - what cuGetErrorName and cuGetErrorString answer, for every stand-in of libcuda. */
#ifndef RG_COMMON_CUDA_ERRORS_H
#define RG_COMMON_CUDA_ERRORS_H

#include "common/cuda/api.h"

/** The constant's name, or NULL for a value that is no CUresult. Static storage; any thread. */
const char *rg_cuda_error_name(CUresult code);
/** The driver's text for it, or NULL. */
const char *rg_cuda_error_string(CUresult code);

#endif
