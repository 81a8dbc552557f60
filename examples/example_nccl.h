/* example_nccl.h - shared by the examples that use NCCL: check of every call. */
#ifndef EXAMPLE_NCCL_H
#define EXAMPLE_NCCL_H

#include "example.h"

#include <nccl.h>

/* Stops the program with a message if a call of NCCL fails. */
#define NCCL(call)                                                                                           \
    do {                                                                                                     \
        ncclResult_t result_ = (call);                                                                       \
        if (result_ != ncclSuccess) {                                                                        \
            fflush(stdout);                                                                                  \
            fprintf(stderr, "%s: %s (%s)\n", #call, ncclGetErrorString(result_), ncclGetLastError(NULL));    \
            printf("FAILED\n");                                                                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
