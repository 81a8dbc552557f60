/*
 * block.c - the threads of one block: their beginning, yield, exit and end.
 *
 * A run is acquired for a block, given turns by the slot's scheduler until its threads have ended, and
 * released. In a turn the fibers switch among themselves (schedule.h). Block-form code is one call a block,
 * on a fiber as well, so that a fault or an overflow in it is dealt with in the same way.
 *
 * Memory that runs out fails sg_run_acquire. Slot's thread only.
 */
#include "softgpu/exec/grid/block.h"
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/warp/schedule.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FAR_GUARDS_MAX 256u /* mappings of a process with SG_SHARED_REACH behind them */

static _Atomic uint32_t far_guards;

/**
 * Maps `capacity` bytes with a guard behind them: as many as an address of 32 bits reaches, where there are addresses
 * for it.
 */
static unsigned char *map_shared(size_t capacity, size_t *guard)
{
    unsigned char *map = NULL;
    *guard = SG_SHARED_REACH;
    if (atomic_fetch_add(&far_guards, 1) < FAR_GUARDS_MAX)
        map = sg_guest_map(capacity + *guard, PROT_NONE);
    if (!map) {
        atomic_fetch_sub(&far_guards, 1);
        *guard = SG_STACK_GUARD;
        map = sg_guest_map(capacity + *guard, PROT_NONE);
    }
    return map;
}

static void unmap_shared(unsigned char *map, size_t capacity, size_t guard)
{
    munmap(map, capacity + guard);
    if (guard == SG_SHARED_REACH)
        atomic_fetch_sub(&far_guards, 1);
}

/** Makes `run` hold `size` bytes of shared memory that end where a guard begins. */
static bool reserve_shared(struct sg_run *run, size_t size)
{
    if (size <= run->shared_capacity)
        return true;
    size_t capacity = (size + (64u << 10) - 1) & ~(size_t)((64u << 10) - 1), guard;
    unsigned char *map = map_shared(capacity, &guard);
    if (!map)
        return false;
    if (mprotect(map, capacity, PROT_READ | PROT_WRITE) != 0) {
        unmap_shared(map, capacity, guard);
        return false;
    }
    memset(map, 0, capacity); /* pages that are not there yet cost as much as a guard: see SG_SHARED_SLACK */
    if (run->shared_map)
        unmap_shared(run->shared_map, run->shared_capacity, run->shared_guard);
    run->shared_map = map;
    run->shared_capacity = capacity;
    run->shared_guard = guard;
    return true;
}

/** Where kernels are guarded: copies the parameters to where an address of one can be used. */
static bool copy_params(struct sg_run *run, const struct sg_grid *grid)
{
    const size_t size = grid->launch->params_size;
    if (size > run->guest_params_capacity) {
        const size_t capacity = (size + 4095) & ~(size_t)4095;
        unsigned char *memory = sg_guest_map(capacity, PROT_READ | PROT_WRITE);
        if (!memory)
            return false;
        sg_guest_unmap(run->guest_params, run->guest_params_capacity);
        run->guest_params = memory;
        run->guest_params_capacity = capacity;
    }
    if (size)
        memcpy(run->guest_params, grid->params, size);
    run->block.guest_params = run->guest_params;
    return true;
}

static bool reserve_warps(struct sg_run *run, uint32_t n_warps)
{
    if (n_warps <= run->warps_capacity)
        return true;
    struct sg_warp *warps = aligned_alloc(64, (n_warps * sizeof(*warps) + 63) & ~(size_t)63);
    if (!warps)
        return false;
    free(run->warps);
    run->warps = warps;
    run->warps_capacity = n_warps;
    return true;
}

/* Sets the block index from its linear number. */
static void set_index(struct sg_block *block, uint64_t index)
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

static void begin_threads(struct sg_run *run)
{
    const struct sg_grid *grid = run->grid;
    run->ready_first = run->ready_last = NULL;
    run->started = 0;
    run->live = grid->n_threads;
    memset(run->next_tid, 0, sizeof(run->next_tid));
    run->whole_waiting = 0;
    run->n_converging = run->n_passing = 0;
    memset(run->barriers, 0, sizeof(run->barriers));
    for (uint32_t w = 0; w < grid->n_warps; w++) {
        uint32_t lanes = grid->n_threads - w * SG_WARP_SIZE;
        run->warps[w].alive = lanes >= SG_WARP_SIZE ? UINT32_MAX : (1u << lanes) - 1;
        run->warps[w].started = 0;
        run->warps[w].n_groups = 0;
        run->warps[w].converging = run->warps[w].passing = run->warps[w].behind = run->warps[w].turns = 0;
    }
}

/** The shared memory of a block that is alone: its end is where the guard, or the slack before it, begins. */
static void place_shared(struct sg_run *run, size_t shared, size_t slack)
{
    struct sg_block *block = &run->block;
    block->shared = run->shared_map ? run->shared_map + run->shared_capacity - shared - slack : NULL;
    block->cluster_shared = block->shared;
}

/* One that is idle in the slot, or a new one. */
static struct sg_run *take_run(struct sg_slot *slot, struct sg_grid *grid)
{
    struct sg_run *run = slot->runs;
    if (run)
        slot->runs = run->next;
    else if (!(run = calloc(1, sizeof(*run))))
        return NULL;
    run->slot = slot;
    run->grid = grid;
    run->site = NULL;
    run->cluster = NULL;
    run->cluster_waiting = 0;
    return run;
}

/* Gets what the block needs of memory; that of a cluster's blocks is the cluster's. */
static bool reserve(struct sg_run *run, const struct sg_cluster *cluster, size_t shared)
{
    const enum sg_code_form form = run->grid->launch->form;
    return (!sg_guest_guarded() || copy_params(run, run->grid)) && (cluster || reserve_shared(run, shared)) &&
           (form != SG_CODE_THREAD || reserve_warps(run, run->grid->n_warps)) &&
           (form != SG_CODE_LOOPS || sg_lanes_reserve(run));
}

/* What all blocks of the grid see. */
static void describe_block(struct sg_run *run, uint32_t shared_static, uint32_t shared_total)
{
    const struct sg_grid *grid = run->grid;
    const struct sg_launch *launch = grid->launch;
    struct sg_block *block = &run->block;
    memcpy(block->ntid, launch->block, sizeof(block->ntid));
    memcpy(block->nctaid, launch->grid, sizeof(block->nctaid));
    for (int i = 0; i < 3; i++)
        block->cluster_nctaid[i] = launch->cluster[i] ? launch->cluster[i] : 1;
    block->cluster_explicit = launch->cluster[0] != 0;
    block->n_threads = grid->n_threads;
    block->shared_static = shared_static;
    block->shared_total = shared_total;
    block->grid = run->grid;
    block->grid_id = launch->grid_id;
    block->sm_id = run->slot->sm_id;
    block->n_sm = grid->n_cores;
    block->engine = run;
    block->grid_workspace = launch->cooperative ? (uint64_t)(uintptr_t)grid->workspace : 0;
}

struct sg_run *sg_run_acquire(struct sg_slot *slot, struct sg_grid *grid, uint64_t index,
                              struct sg_cluster *cluster, uint32_t rank)
{
    const struct sg_launch *launch = grid->launch;
    uint32_t dynamic_offset = (launch->shared_static + 15) & ~15u;
    uint32_t total = dynamic_offset + launch->shared_dynamic;
    size_t shared = ((size_t)total + 1023) & ~(size_t)1023;
    size_t slack = launch->form == SG_CODE_THREAD ? 0 : SG_SHARED_SLACK;

    struct sg_run *run = take_run(slot, grid);
    if (!run)
        return NULL;
    if (!reserve(run, cluster, shared + slack)) {
        sg_run_release(run);
        return NULL;
    }
    describe_block(run, dynamic_offset, total);
    if (cluster) {
        run->cluster = cluster;
        run->cluster_rank = rank;
        cluster->run[rank] = run;
        cluster->runs++;
        run->block.shared = sg_cluster_shared(cluster, rank);
        run->block.cluster_shared = sg_cluster_shared(cluster, 0);
        sg_cluster_set_index(&run->block, index, rank);
    } else {
        place_shared(run, shared, slack);
        set_index(&run->block, index);
    }
    if (launch->form == SG_CODE_THREAD)
        begin_threads(run);
    else if (launch->form == SG_CODE_LOOPS)
        sg_lanes_begin(run);
    return run;
}

void sg_run_release(struct sg_run *run)
{
    if (run->cluster)
        sg_cluster_leave(run->slot, run);
    run->next = run->slot->runs;
    run->slot->runs = run;
}

void sg_run_abandon(struct sg_run *run)
{
    for (uint32_t w = 0; w < run->grid->n_warps; w++) {
        struct sg_warp *warp = &run->warps[w];
        for (uint32_t lanes = warp->alive & warp->started; lanes; lanes &= lanes - 1)
            sg_fiber_abandon(run->slot, warp->lanes[__builtin_ctz(lanes)]);
    }
}

/* --- fibers --- */

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
        set_index(&run->block, i);
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
            set_index(&slot->beside[n]->block, i + n);
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
