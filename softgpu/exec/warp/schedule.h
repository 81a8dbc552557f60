/*
 * schedule.h - the inner loop of the engine: which fiber of a block runs next, and the switch to it.
 *
 * A block's fibers take turns in the order in which they became ready. Threads that have not begun come
 * first.
 */
#ifndef SG_EXEC_WARP_SCHEDULE_H
#define SG_EXEC_WARP_SCHEDULE_H

#include "softgpu/exec/fault/fault.h"
#include "softgpu/exec/fiber/fiber.h"
#include "softgpu/exec/warp/warp.h"

/** It runs after all that are ready; or before. */
static inline void sg_ready_append(struct sg_run *run, struct sg_fiber *fiber)
{
    fiber->next = NULL;
    if (run->ready_first)
        run->ready_last->next = fiber;
    else
        run->ready_first = fiber;
    run->ready_last = fiber;
}

static inline void sg_ready_prepend(struct sg_run *run, struct sg_fiber *fiber)
{
    fiber->next = run->ready_first;
    if (!run->ready_first)
        run->ready_last = fiber;
    run->ready_first = fiber;
}

/** Makes the whole list first..last ready. */
static inline void sg_ready_append_list(struct sg_run *run, struct sg_fiber *first, struct sg_fiber *last)
{
    last->next = NULL;
    if (run->ready_first)
        run->ready_last->next = first;
    else
        run->ready_first = first;
    run->ready_last = last;
}

/** The fiber to run next, taken from the queue; NULL: none, and run->slot->leave says why. */
static inline struct sg_fiber *sg_next_fiber(struct sg_run *run)
{
    struct sg_slot *slot = run->slot;
    if (sg_unlikely(atomic_load_explicit(&run->grid->stop, memory_order_relaxed))) {
        slot->leave = SG_LEAVE_STOPPED;
        return NULL;
    }
    if (run->started < run->grid->n_threads) {
        struct sg_fiber *fiber = sg_fiber_acquire(slot, run->grid->stack_class);
        if (sg_likely(fiber != NULL)) {
            fiber->run = run;
            return fiber;
        }
        if (!run->ready_first) {
            sg_grid_fault(run->grid, SG_FAULT_OUT_OF_RESOURCES, run->block.ctaid, NULL, 0);
            slot->leave = SG_LEAVE_STOPPED;
            return NULL;
        }
    }
    if (sg_unlikely(!run->ready_first) &&
        !(run->live && (sg_warps_pass(run) || sg_warps_converge(run) || sg_barriers_rescue(run) ||
                        (!run->cluster_waiting && sg_warps_rescue(run))))) {
        slot->leave = !run->live             ? SG_LEAVE_ENDED
                      : run->cluster_waiting ? SG_LEAVE_BLOCKED
                                             : SG_LEAVE_DEADLOCK;
        return NULL;
    }
    struct sg_fiber *fiber = run->ready_first;
    run->ready_first = fiber->next;
    return fiber;
}

/** Lets others run; returns when the fiber, which is in the queue or will be put there, has its turn. */
static inline void sg_let_others_run(struct sg_fiber *fiber)
{
    struct sg_run *run = fiber->run;
    struct sg_fiber *next = sg_next_fiber(run);
    if (sg_unlikely(next == fiber))
        return;
    if (sg_unlikely(!next)) {
        sg_leave(run->slot, fiber);
    } else if (sg_unlikely(--run->switches_left == 0)) {
        sg_ready_prepend(run, next);
        run->slot->leave = SG_LEAVE_TURN;
        sg_leave(run->slot, fiber);
    } else {
        sg_switch(run->slot, fiber, next);
    }
}

/** The running fiber waits: returns when something has made it ready and its turn has come. */
static inline void sg_wait(struct sg_fiber *fiber)
{
    fiber->run->progress = true;
    sg_let_others_run(fiber);
}

#endif
