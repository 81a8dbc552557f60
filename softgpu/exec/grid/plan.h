/*
 * plan.h - a launch becomes a grid.
 */
#ifndef SG_EXEC_GRID_PLAN_H
#define SG_EXEC_GRID_PLAN_H

#include "softgpu/exec/engine.h"

/** The sizes of the grid, and of its fibers' stacks. False: a launch of this size is not possible. */
bool sg_plan_check(const struct sg_launch *launch, struct sg_grid *grid);
/** How the grid's blocks are dealt out. */
void sg_plan_grid(const struct sg_launch *launch, struct sg_grid *grid);

#endif
