/*
 * lanes_detached.h - internal to threads of a block in loop form that have parted (lanes_detached.c): what they
 * wait for in barriers (lanes_barrier.c) and in groups of lanes (lanes_group.c). Who need not wait any more is
 * made ready.
 */
#ifndef SG_EXEC_LANES_LANES_DETACHED_H
#define SG_EXEC_LANES_LANES_DETACHED_H

#include "softgpu/exec/lanes/lanes.h"

static inline void sg_lanes_make_ready(struct sg_loop_block *m, uint32_t warp, uint32_t lanes)
{
    m->warps[warp].ready |= lanes;
    if (lanes == m->warps[warp].alive) /* they are together */
        m->warps[warp].behind = m->warps[warp].turns = 0;
    m->n_ready += (uint32_t)__builtin_popcount(lanes);
}

/* --- lanes_barrier.c --- */

/** `lanes`, all of one point and with the same operands as `thread`, come to a barrier. */
void sg_lanes_arrive(struct sg_run *run, const struct sg_point *point, uint32_t warp, uint32_t lanes,
                     uint32_t thread);
/** Threads have ended: barriers that wait for the whole block may be complete. */
void sg_lanes_barriers_after_end(struct sg_run *run);
/** Nobody can go on: barriers that wait for a number of threads do without those that have ended. */
void sg_lanes_barriers_without_ended(struct sg_run *run);

/* --- lanes_group.c --- */

/**
 * `lanes`, all at one point, come to an operation of the lanes in their masks. Those that can never agree on
 * the mask, or are not in it, go on at once where all that they name are here; else they are kept with what
 * they name.
 */
void sg_lanes_join(struct sg_run *run, uint32_t warp, uint32_t lanes);
/** Tells each lane that waits in activemask of the lanes of its warp that are at the same point. */
void sg_lanes_converge(struct sg_run *run, uint32_t warp);
/** Lanes of the warp have ended: who waits for them may go on. */
void sg_lanes_groups_after_end(struct sg_run *run, uint32_t warp);
/** Nobody can go on: lets lanes go on whose masks disagree, but name lanes that are at the same point alone. */
void sg_lanes_rescue(struct sg_run *run, uint32_t warp);

#endif
