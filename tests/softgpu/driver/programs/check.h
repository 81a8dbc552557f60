/*
 * check.h - for programs that check themselves: the first thing that is wrong ends the program with status 1.
 */
#ifndef TESTS_SOFTGPU_DRIVER_PROGRAMS_CHECK_H
#define TESTS_SOFTGPU_DRIVER_PROGRAMS_CHECK_H

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define GIVES(expected, call)                                                                                \
    do {                                                                                                     \
        cudaError_t result_ = (call);                                                                        \
        if (result_ != (expected)) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(result_));        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) GIVES(cudaSuccess, call)

#endif
