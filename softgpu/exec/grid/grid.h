/*
 * grid.h - a slot's work on one grid.
 */
#ifndef SG_EXEC_GRID_GRID_H
#define SG_EXEC_GRID_GRID_H

#include "softgpu/exec/engine.h"

/**
 * Runs blocks of the grid in the slot until none is left to begin, or until `better`, asked when a block has
 * ended (NULL: never), says that the thread had better go elsewhere. The slot's scheduler.
 */
void sg_grid_work(struct sg_slot *slot, struct sg_grid *grid, bool (*better)(void));

#endif
