/*
 * watchdog.h - grids that run for longer than SOFTGPU_TIMEOUT allows.
 */
#ifndef SG_EXEC_FAULT_WATCHDOG_H
#define SG_EXEC_FAULT_WATCHDOG_H

#include "softgpu/exec/engine.h"

#define SG_CODE_RANGES 4096u

/** Watches the grid from now on, if there is a limit of time. */
void sg_watch_grid(struct sg_grid *grid);
void sg_unwatch_grid(struct sg_grid *grid);
/** The calling thread works on the grid in this slot. */
void sg_watch_slot(struct sg_slot *slot, struct sg_grid *grid);
void sg_unwatch_slot(struct sg_slot *slot, struct sg_grid *grid);

/** Whether the watchdog has ever sent a signal. Async-signal-safe. */
bool sg_watchdog_acts(void);
/** Whether a program counter was in generated code when the last grid's time was over. Async-signal-safe. */
bool sg_is_generated_code(uintptr_t address);

#endif
