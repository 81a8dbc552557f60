/*
 * api.h - cuda.h for code of a library that stands in for libcuda: the functions that it declares may leave the library,
 * which is built with hidden visibility; the library's map names those that do. Without it, whichever header includes
 * cuda.h first would decide.
 */
#ifndef RG_COMMON_CUDA_API_H
#define RG_COMMON_CUDA_API_H

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#endif
