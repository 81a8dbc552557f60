/*
 * exchange.h - results of operations among the lanes of a warp.
 */
#ifndef SG_EXEC_WARP_EXCHANGE_H
#define SG_EXEC_WARP_EXCHANGE_H

#include "softgpu/exec/engine.h"

/**
 * The lane whose value a shuffle (0: up, 1: down, 2: butterfly, else by index) gives `lane`, by its operands b and c; itself if *inside
 * is false: there is none in its segment.
 */
static inline uint32_t sg_shuffle_source(uint32_t mode, uint32_t lane, uint32_t b, uint32_t c, bool *inside)
{
    const uint32_t distance = b & 31, segment = c >> 8 & 31;
    const int32_t limit = (int32_t)((lane & segment) | (c & 31 & ~segment));
    const int32_t source = (int32_t)(mode == 0   ? lane - distance
                                     : mode == 1 ? lane + distance
                                     : mode == 2 ? lane ^ distance
                                                 : (lane & segment) | (distance & ~segment));
    *inside = mode == 0 ? source >= limit : source <= limit;
    return *inside ? (uint32_t)source : lane;
}

/** Computes the results of all lanes of a complete group. */
void sg_exchange_resolve(struct sg_lane_exchange *exchange, uint32_t group);
/**
 * Lanes whose masks disagree, which CUDA leaves undefined, get what they get on GPUs where they have
 * converged: each of `lanes` the result of the lanes in its own mask. Those and all that they name are among
 * `here`, come by one operation.
 */
void sg_exchange_resolve_each(struct sg_lane_exchange *exchange, uint32_t here, uint32_t lanes);

#endif
