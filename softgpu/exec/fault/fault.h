/*
 * fault.h - what a kernel does wrong: recorded once a grid. Any thread that runs it.
 */
#ifndef SG_EXEC_FAULT_FAULT_H
#define SG_EXEC_FAULT_FAULT_H

#include "softgpu/exec/engine.h"

/** Records the grid's first fault and stops the grid. `ctaid` and `tid` may be NULL: not known. */
void sg_grid_fault(struct sg_grid *grid, enum sg_fault fault, const uint32_t *ctaid, const uint32_t *tid,
                   uint64_t address);
/**
 * The same, with the place that a watched kernel was last seen at, if it was in this thread (NULL: in any).
 */
void sg_run_fault(struct sg_run *run, enum sg_fault fault, const uint32_t *tid, uint64_t address);

#endif
