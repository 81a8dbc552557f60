/* must.h - calls that must succeed, in programs whose transcript is what comes of them. */
#ifndef TESTS_FIDELITY_MUST_H
#define TESTS_FIDELITY_MUST_H

#include "tests/first_device.h"

#include <cuda.h>
#include <stdio.h>
#include <unistd.h>

/** Ends the program where a call has failed, whatever its other threads do. */
static inline void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    fflush(stdout);
    _exit(1);
}
#define CHECK(call) must(call, #call)

#endif
