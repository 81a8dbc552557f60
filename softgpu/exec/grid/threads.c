/*
 * threads.c - the threads of blocks on their fibers: their beginning, yield, exit and end.
 *
 * In a turn the fibers switch among themselves (schedule.h): one that has ended its thread begins the block's next one, and rests where
 * there is none. Block form and loop form run on a fiber as well, so that a fault or an overflow in them is dealt with in the same way.
 *
 * A thread leaves early by its fiber's jump (sg_rt_exit); a fault ends the turn (fault/). Slot's thread only.
 */
#include "softgpu/exec/grid/block.h"
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/warp/schedule.h"

#include <string.h>

/** Gives the fiber the block's next thread; false if all have begun. */
static inline bool begin_next_thread(struct sg_fiber *fiber)
{
    struct sg_run *run = fiber->run;
    if (run->started == run->grid->n_threads)
        return false;
    uint32_t linear = run->started++;
    struct sg_warp *warp = &run->warps[linear / SG_WARP_SIZE];
    warp->started |= 1u << linear % SG_WARP_SIZE;
    warp->lanes[linear % SG_WARP_SIZE] = fiber;

    struct sg_thread *t = &fiber->thread;
    memcpy(t->tid, run->next_tid, sizeof(t->tid));
    t->linear = linear;
    t->block = &run->block;
    t->engine = fiber;
    t->misaligned = 0;
    fiber->local.top = fiber->local.high;
    fiber->cluster_arrived = false;
    if (++run->next_tid[0] == run->block.ntid[0]) {
        run->next_tid[0] = 0;
        if (++run->next_tid[1] == run->block.ntid[1]) {
            run->next_tid[1] = 0;
            run->next_tid[2]++;
        }
    }
    return true;
}

static inline void end_thread(struct sg_fiber *fiber)
{
    struct sg_run *run = fiber->run;
    uint32_t linear = fiber->thread.linear;
    struct sg_warp *warp = &run->warps[linear / SG_WARP_SIZE];
    if (sg_unlikely(fiber->thread.misaligned))
        sg_run_fault(run, SG_FAULT_MISALIGNED, fiber->thread.tid, 0);
    run->live--;
    run->progress = true;
    warp->alive &= ~(1u << linear % SG_WARP_SIZE);
    if (sg_unlikely(warp->n_groups | warp->converging | warp->passing))
        sg_warp_thread_ended(run, warp);
    if (sg_unlikely(run->whole_waiting))
        sg_barriers_thread_ended(run);
    if (sg_unlikely(run->cluster != NULL))
        sg_cluster_thread_ended(fiber);
}

/** Puts the fiber back into the pool and lets others run; returns when it is used again. */
static inline void park(struct sg_fiber *fiber)
{
    struct sg_run *run = fiber->run;
    struct sg_slot *slot = run->slot;
    struct sg_fiber *next = sg_next_fiber(run);
    fiber->next = slot->fibers[fiber->stack_class];
    slot->fibers[fiber->stack_class] = fiber;
    if (next)
        sg_switch(slot, fiber, next);
    else
        sg_leave(slot, fiber);
}

/** Block form: the blocks from run->first up to run->end. */
static void run_range(struct sg_run *run)
{
    const struct sg_grid *grid = run->grid;
    sg_block_code code = (sg_block_code)grid->launch->code;
    for (uint64_t i = run->first; i < run->end; i++) {
        if (sg_unlikely(atomic_load_explicit(&grid->stop, memory_order_relaxed)))
            return;
        sg_block_set_index(&run->block, i);
        code(&run->block, grid->params);
    }
}

/** Loop form: the same, as many side by side as the slot has runs for. */
static void run_range_in_loops(struct sg_run *run)
{
    struct sg_slot *slot = run->slot;
    for (uint64_t i = run->first; i < run->end;) {
        if (sg_unlikely(atomic_load_explicit(&run->grid->stop, memory_order_relaxed)))
            return;
        uint64_t left = run->end - i;
        uint32_t count = left < slot->n_beside ? (uint32_t)left : slot->n_beside;
        for (uint32_t n = 0; n < count; n++)
            sg_block_set_index(&slot->beside[n]->block, i + n);
        if (count > 1) {
            sg_lanes_run_beside(slot->beside, count);
        } else {
            sg_lanes_begin(run);
            sg_lanes_run_turn(run);
        }
        i += count;
    }
}

void sg_fiber_main(void *argument)
{
    struct sg_fiber *fiber = argument;
    jmp_buf exit_point;

    sg_sanitize_entered(&fiber->sanitize);
    fiber->exit_point = &exit_point;
    _setjmp(exit_point); /* sg_rt_exit returns here, with in_thread still set */
    for (;;) {
        if (fiber->in_thread) {
            fiber->in_thread = false;
            end_thread(fiber);
        }
        const struct sg_grid *grid = fiber->run->grid;
        if (grid->launch->form != SG_CODE_THREAD) {
            enum sg_leave leave = SG_LEAVE_ENDED;
            if (grid->waits)
                leave = sg_lanes_run_turn(fiber->run);
            else if (grid->launch->form == SG_CODE_LOOPS)
                run_range_in_loops(fiber->run);
            else
                run_range(fiber->run);
            fiber->run->slot->leave = leave;
            sg_leave(fiber->run->slot, fiber);
        } else if (begin_next_thread(fiber)) {
            fiber->in_thread = true;
            ((sg_thread_code)grid->launch->code)(&fiber->thread, grid->params);
        } else {
            park(fiber);
        }
    }
}

/** Resumes the fiber and returns when it, or another that it switched to, leaves. */
static enum sg_leave enter(struct sg_slot *slot, struct sg_fiber *fiber)
{
    slot->current = fiber;
    slot->in_kernel = true;
    sg_sanitize_leave(&slot->scheduler_sanitize, &fiber->sanitize);
    sg_fiber_context_switch(&slot->scheduler, &fiber->context);
    sg_sanitize_entered(&slot->scheduler_sanitize);
    slot->in_kernel = false;
    return slot->leave;
}

enum sg_leave sg_run_turn(struct sg_run *run, struct sg_fiber *fiber)
{
    run->yields = 0;
    run->switches_left = SG_TURN_SWITCHES;
    run->progress = false;
    if (fiber)
        fiber->run = run;
    else
        fiber = sg_next_fiber(run);
    return fiber ? enter(run->slot, fiber) : run->slot->leave;
}

enum sg_leave sg_run_blocks(struct sg_run *run, struct sg_fiber *fiber, uint64_t first, uint64_t end)
{
    run->first = first;
    run->end = end;
    return enter(run->slot, fiber);
}

/* --- what threads call --- */

void sg_rt_exit(struct sg_thread *t)
{
    _longjmp(*sg_thread_fiber(t)->exit_point, 1);
}

void sg_rt_yield(struct sg_thread *t)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_slot *slot = run->slot;

    sg_ready_append(run, fiber);
    bool alone = run->ready_first == fiber && run->started == run->grid->n_threads;
    if ((++run->yields > run->live || alone) &&
        (sg_warps_pass(run) || sg_warps_converge(run) || (!run->cluster_waiting && sg_warps_rescue(run))))
        run->yields = 0; /* who can run only spins, perhaps for one of those */
    if (run->yields > run->live) {
        slot->leave = SG_LEAVE_TURN;
        sg_leave(slot, fiber);
        return;
    }
    struct sg_fiber *next = sg_next_fiber(run);
    if (next == fiber) {
        slot->leave =
            SG_LEAVE_TURN; /* the only one that can run: whatever it waits for is not in this block */
        sg_ready_append(run, fiber);
        sg_leave(slot, fiber);
    } else if (next) {
        sg_switch(slot, fiber, next);
    } else {
        sg_leave(slot, fiber);
    }
}

void sg_rt_fence(struct sg_thread *t)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    sg_ready_append(fiber->run, fiber);
    sg_let_others_run(fiber); /* no progress: fences stand in loops that spin, too */
}
