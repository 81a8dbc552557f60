/* align.h - the next multiple of a power of two. */
#ifndef RG_COMMON_BASE_ALIGN_H
#define RG_COMMON_BASE_ALIGN_H

#include <stdint.h>

/** The least multiple of `to`, a power of two, that is not below `n`. */
static inline uint64_t rg_align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) & ~(to - 1);
}

#endif
