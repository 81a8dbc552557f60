/*
 * pool.h - one grid run by all cores: slots, workers and the list of grids.
 */
#ifndef SG_EXEC_GRID_POOL_H
#define SG_EXEC_GRID_POOL_H

#include "softgpu/exec/engine.h"

struct sg_parent;

/**
 * Runs one grid of a family, and nothing that it launches; returns when it has ended, or with the first
 * fault. Any thread.
 */
enum sg_fault sg_pool_run(const struct sg_launch *launch, struct sg_parent *parent,
                          struct sg_fault_report *report);

#endif
