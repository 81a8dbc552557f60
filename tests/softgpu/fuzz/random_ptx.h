/*
 * random_ptx.h - random kernels whose results do not depend on how their threads are scheduled.
 */
#ifndef SG_TEST_RANDOM_PTX_H
#define SG_TEST_RANDOM_PTX_H

#include <stdint.h>

#define RANDOM_WORDS 32u /* that each thread reads from its part of `in` and writes to its part of `out` */

/**
 * The PTX of a kernel k(.u64 in, .u64 out, .u64 counters) for blocks of `threads` threads, by a seed. `in`
 * and `out` have RANDOM_WORDS words a thread of the grid, `counters` 16. To be freed.
 */
char *random_ptx(uint64_t seed, uint32_t threads);

#endif
