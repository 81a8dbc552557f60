/*
 * block.h - a block in execution: its run, its threads' beginning and end. Slot's thread only.
 */
#ifndef SG_EXEC_GRID_BLOCK_H
#define SG_EXEC_GRID_BLOCK_H

#include "softgpu/exec/engine.h"

/** The body of all fibers (slot->fiber_main). */
void sg_fiber_main(void *fiber);
/** Makes ready a run of block `index`, or of block `rank` of cluster `index`; NULL if memory ran out. */
struct sg_run *sg_run_acquire(struct sg_slot *slot, struct sg_grid *grid, uint64_t index,
                              struct sg_cluster *cluster, uint32_t rank);
void sg_run_release(struct sg_run *run);
/** Gives up all threads of the block. */
void sg_run_abandon(struct sg_run *run);
/** Runs the block's threads until one of the reasons to leave; in loop form on `fiber`, else NULL. */
enum sg_leave sg_run_turn(struct sg_run *run, struct sg_fiber *fiber);
/** Runs blocks [first, end) of a block-form grid on `fiber`; SG_LEAVE_ENDED or _STOPPED. */
enum sg_leave sg_run_blocks(struct sg_run *run, struct sg_fiber *fiber, uint64_t first, uint64_t end);

#endif
