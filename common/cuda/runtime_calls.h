/*
 * runtime_calls.h - launches as the CUDA runtime gets them.
 *
 * A grid or block that no device takes is CUDA_ERROR_INVALID_VALUE to callers of the driver API, and
 * cudaErrorInvalidConfiguration to those of the runtime, which has no code of its own for that and passes on what a launch
 * returns: so it gets other functions from the driver than other callers do. It says who it is: when it starts, it looks up
 * the empty name, then all that it needs, and then initialises the driver (looked at in 12.9 to 13.5).
 */
#ifndef RG_COMMON_CUDA_RUNTIME_CALLS_H
#define RG_COMMON_CUDA_RUNTIME_CALLS_H

#include <cuda.h>
#include <stdbool.h>

/**
 * What a look-up of `name` is to be answered with, where `function` was found (NULL: nothing was); `per_thread`: in its
 * form for per-thread default streams. Threads: any; a runtime looks up in one.
 */
void *rg_runtime_call(const char *name, bool per_thread, void *function);
/** The calling thread initialises the driver: what it looks up from here on is for callers of the driver API. */
void rg_runtime_has_looked_up(void);

#endif
