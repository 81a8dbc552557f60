/* steps.h - how integers grow from thread to thread on a way through the code. */
#ifndef SG_COMPILER_REGIONS_STEPS_H
#define SG_COMPILER_REGIONS_STEPS_H

#include "softgpu/compiler/regions/divergence.h"

#define SG_WAY_MAX 2000u /* instructions */

/** The instructions that threads run one after the other from a region's start, and what they are used for. */
struct sg_way {
    const struct sg_flow *flow;
    const struct sg_regions *regions;
    uint32_t point;                   /* that the region begins at; 0: the kernel's start */
    struct sg_use_of *rematerialised; /* by instruction: of those that compute anew */
    uint32_t depth;                   /* of a question under way */
    uint32_t count;
    uint32_t insns[SG_WAY_MAX];
    struct sg_use_of uses[SG_WAY_MAX];
};

/**
 * By how much a register's value, as it is before place `before` of the way, grows from each thread to the next. False: that is not
 * known, or not the same everywhere. What computes it is marked in `uses` and `rematerialised`.
 */
bool sg_way_step(struct sg_way *way, uint32_t reg, uint32_t before, int64_t *step);

#endif
