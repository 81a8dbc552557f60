/*
 * block.h - a block in execution: its run (block.c), its threads' beginning and end (threads.c). Slot's thread only.
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

/** Sets the block index from its linear number. */
static inline void sg_block_set_index(struct sg_block *block, uint64_t index)
{
    uint32_t x = block->nctaid[0], y = block->nctaid[1];
    if (index < x) {
        block->ctaid[0] = (uint32_t)index;
        block->ctaid[1] = block->ctaid[2] = 0;
        return;
    }
    block->ctaid[0] = (uint32_t)(index % x);
    index /= x;
    block->ctaid[1] = (uint32_t)(index % y);
    block->ctaid[2] = (uint32_t)(index / y);
}

#endif
