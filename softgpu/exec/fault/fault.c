/*
 * fault.c - what a kernel does wrong: recorded once a grid, with place and address, and the checks that
 * generated code asks for. The first fault stops the grid: its threads see that when they next switch, and
 * the one at fault is given up at once. Any thread that runs a kernel; the first claims the report, later
 * ones are dropped.
 */
#include "softgpu/exec/fault/fault.h"
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/fiber/fiber.h"

#include <string.h>

static void record(struct sg_grid *grid, enum sg_fault fault, const uint32_t *ctaid, const uint32_t *tid,
                   uint64_t address, const struct sg_site *site)
{
    if (atomic_exchange(&grid->fault_claimed, true))
        return;
    struct sg_fault_report *report = &grid->report;
    report->fault = fault;
    report->address = address;
    report->site = site;
    report->block_known = ctaid != NULL;
    report->thread_known = tid != NULL;
    for (int i = 0; i < 3; i++) {
        report->ctaid[i] = ctaid ? ctaid[i] : 0;
        report->tid[i] = tid ? tid[i] : 0;
    }
    atomic_store(&grid->stop, true);
}

void sg_grid_fault(struct sg_grid *grid, enum sg_fault fault, const uint32_t *ctaid, const uint32_t *tid,
                   uint64_t address)
{
    record(grid, fault, ctaid, tid, address, NULL);
}

void sg_run_fault(struct sg_run *run, enum sg_fault fault, const uint32_t *tid, uint64_t address)
{
    const struct sg_site *site = run->site;
    if (site && tid && memcmp(tid, run->site_tid, sizeof(run->site_tid)) != 0)
        site = NULL;
    if (site && !tid)
        tid = run->site_tid;
    record(run->grid, fault, run->block.ctaid, tid, address, site);
}

/** The grid has a fault: gives up the running fiber. */
static _Noreturn void leave_for_good(struct sg_run *run)
{
    run->slot->leave = SG_LEAVE_STOPPED;
    sg_leave(run->slot, run->slot->current);
    __builtin_unreachable();
}

void sg_rt_fault(struct sg_thread *t, uint32_t fault)
{
    struct sg_run *run = t->block->engine;
    sg_run_fault(run, (enum sg_fault)fault, t->tid, 0);
    leave_for_good(run);
}

struct sg_local_stack *sg_rt_local_stack(void)
{
    return &sg_current_slot->current->local;
}

void sg_rt_misaligned(struct sg_block *block)
{
    struct sg_run *run = block->engine;
    sg_grid_fault(run->grid, SG_FAULT_MISALIGNED, block->ctaid, NULL, 0);
    leave_for_good(run);
}

void sg_rt_access(struct sg_thread *t, const void *address, const struct sg_site *site)
{
    struct sg_run *run = t->block->engine;
    run->site = site;
    memcpy(run->site_tid, t->tid, sizeof(run->site_tid));
    if (site->access == SG_ACCESS_NONE)
        return;
    uintptr_t at = (uintptr_t)address, offset = at - (uintptr_t)t->block->shared;
    enum sg_fault fault = SG_FAULT_NONE;
    if (at & (site->align - 1u))
        fault = SG_FAULT_MISALIGNED;
    else if (site->space == SG_SITE_SHARED &&
             (site->bytes > t->block->shared_total || offset > t->block->shared_total - site->bytes))
        fault = SG_FAULT_ILLEGAL_ADDRESS;
    if (sg_likely(fault == SG_FAULT_NONE))
        return;
    sg_run_fault(run, fault, t->tid, site->space == SG_SITE_SHARED ? offset : at);
    leave_for_good(run);
}
