/*
 * kernels.h - the test module: kernels add(p, n, x), fault(), wait_flag(p), set_flag(p, v), small(), exact(),
 * slow(ms), count(p, n, flag), no_code(), and the variable table[64]. Also what most tests begin with.
 */
#ifndef TESTS_SOFTGPU_DRIVER_KERNELS_H
#define TESTS_SOFTGPU_DRIVER_KERNELS_H

#include <cuda.h>
#include <stdint.h>

extern const char kernels_ptx[];

#endif
