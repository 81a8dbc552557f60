/* ok.h - calls that must succeed, in programs whose output is compared. */
#ifndef TESTS_OK_H
#define TESTS_OK_H

#include "tests/first_device.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/** Ends the program where a call has failed, and says on stderr which. */
#define OK(call)                                                                                             \
    do {                                                                                                     \
        const CUresult ok_result = (call);                                                                   \
        if (ok_result != CUDA_SUCCESS) {                                                                     \
            fprintf(stderr, "%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)ok_result);              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
