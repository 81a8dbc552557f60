/*
 * exchange.h - results of operations among the lanes of a warp.
 */
#ifndef SG_EXEC_WARP_EXCHANGE_H
#define SG_EXEC_WARP_EXCHANGE_H

#include "softgpu/exec/engine.h"

/** Computes the results of all lanes of a complete group. */
void sg_exchange_resolve(struct sg_lane_exchange *exchange, uint32_t group);
/**
 * Lanes whose masks disagree, which CUDA leaves undefined, get what they get on GPUs where they have
 * converged: each of `lanes` the result of the lanes in its own mask. Those and all that they name are among
 * `here`, come by one operation.
 */
void sg_exchange_resolve_each(struct sg_lane_exchange *exchange, uint32_t here, uint32_t lanes);

#endif
