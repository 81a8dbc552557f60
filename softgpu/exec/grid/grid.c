/*
 * grid.c - a slot's work on one grid: takes blocks, gives them turns, ends what has a fault.
 *
 * Blocks that wait for nobody: a range at a time. Blocks that may wait for each other (thread form, and loop
 * form with points at which threads yield): usually one at a time. When all blocks that the slot has begun
 * only spin (yield), it begins further ones, so that grids whose blocks wait for each other come to an end
 * however few threads work on them; a cooperative grid is spread over the slots in equal shares first. The
 * blocks of a cluster are begun together, and take turns. Who spins may do more in each turn than look again
 * (all threads of a block meet, and one looks): so many turns that end with yields count as well. A slot that
 * only spins gives up the processor to others, and after a while sleeps between the turns. It sleeps at once
 * where others do not give the processor back soon: the scheduler of Linux (EEVDF) takes a whole slice from a
 * thread that yields and not from one that sleeps, so that spinning threads hardly get on any more next to
 * one that computes.
 */
#include "softgpu/exec/grid/grid.h"
#include "softgpu/exec/fault/fault.h"
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/fault/watchdog.h"
#include "softgpu/exec/fiber/fiber.h"
#include "softgpu/exec/grid/block.h"
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/warp/warp.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#define IDLE_ROUNDS_EXTRA 32u /* rounds without progress after which a further block is begun */
#define TURNS_EXTRA                                                                                          \
    512u /* turns of a block with some progress, each ended by yields, after which one is begun, too */
#define IDLE_ROUNDS_SLEEP 2000u /* … after which the slot sleeps between rounds */
#define IDLE_SLEEP_NS     50000
#define LONG_YIELD_NS     100000 /* others wanted the processor … */
#define CROWDED_ROUNDS    64u    /* … and most likely still do */
#define CHUNK_MAX         4096u  /* blocks of block form taken at a time: neighbours share pages */

static void report_deadlock(const struct sg_run *run)
{
    const struct sg_block *block = &run->block;
    unsigned barrier = SG_BARRIERS, in_barriers = 0;
    for (unsigned i = SG_BARRIERS; i-- > 0;) {
        if (run->barriers[i].first) {
            barrier = i;
            for (const struct sg_fiber *fiber = run->barriers[i].first; fiber; fiber = fiber->next)
                in_barriers++;
        }
    }
    char place[96] = "";
    if (barrier < SG_BARRIERS)
        snprintf(place, sizeof(place), ", %u of them in barriers (barrier %u has %u of %u arrivals)",
                 in_barriers, barrier, run->barriers[barrier].arrived,
                 run->barriers[barrier].count ? run->barriers[barrier].count : run->live);
    rg_error("kernel %s, block (%u,%u,%u): deadlock: all %u live threads wait%s, %u in the cluster's "
             "barrier, the others in warp operations",
             run->grid->launch->kernel_name, block->ctaid[0], block->ctaid[1], block->ctaid[2], run->live,
             place, run->cluster_waiting);
}

/** The thread to name in a deadlock's report: the first that waits. */
static const uint32_t *first_waiting(const struct sg_run *run)
{
    for (uint32_t w = 0; w < run->grid->n_warps; w++) {
        uint32_t lanes = run->warps[w].alive & run->warps[w].started;
        if (lanes)
            return run->warps[w].lanes[__builtin_ctz(lanes)]->thread.tid;
    }
    return NULL;
}

static bool stopped(const struct sg_grid *grid)
{
    return atomic_load_explicit(&grid->stop, memory_order_relaxed);
}

static void out_of_memory(struct sg_grid *grid)
{
    rg_error("kernel %s: no memory to begin a block", grid->launch->kernel_name);
    sg_grid_fault(grid, SG_FAULT_OUT_OF_RESOURCES, NULL, NULL, 0);
}

/* --- blocks that wait for nobody --- */

/**
 * Takes the next blocks [*first, *end): many while many are left, single ones towards the end; false: none.
 */
static bool take_blocks(struct sg_grid *grid, uint64_t *first, uint64_t *end)
{
    uint64_t next = atomic_load_explicit(&grid->next_block, memory_order_relaxed), count;
    do {
        if (next >= grid->n_blocks)
            return false;
        count = (grid->n_blocks - next) / grid->shares;
        count = count < 1 ? 1 : count > CHUNK_MAX ? CHUNK_MAX : count;
    } while (!atomic_compare_exchange_weak_explicit(&grid->next_block, &next, next + count,
                                                    memory_order_relaxed, memory_order_relaxed));
    *first = next;
    *end = next + count;
    return true;
}

/** Loop form: gets runs for up to `count` blocks that go side by side; with less memory for fewer. */
static void gather_runs(struct sg_slot *slot, struct sg_grid *grid, struct sg_run *run, uint64_t first,
                        uint64_t count)
{
    uint32_t wanted = sg_lanes_beside(grid);
    if (slot->n_beside == 0)
        slot->beside[slot->n_beside++] = run;
    while (slot->n_beside < wanted && slot->n_beside < count) {
        struct sg_run *more = sg_run_acquire(slot, grid, first, NULL, 0);
        if (!more)
            break;
        slot->beside[slot->n_beside++] = more;
    }
}

static void work_blocks(struct sg_slot *slot, struct sg_grid *grid, bool (*better)(void))
{
    struct sg_run *run = NULL;
    struct sg_fiber *fiber = NULL;

    while (!stopped(grid)) {
        uint64_t first, end;
        if (!take_blocks(grid, &first, &end))
            break;
        if (!run) {
            run = sg_run_acquire(slot, grid, first, NULL, 0);
            fiber = run ? sg_fiber_acquire(slot, grid->stack_class) : NULL;
            if (!fiber) {
                out_of_memory(grid);
                break;
            }
            fiber->run = run;
        }
        if (grid->launch->form == SG_CODE_LOOPS)
            gather_runs(slot, grid, run, first, end - first);
        if (sg_run_blocks(run, fiber, first, end) == SG_LEAVE_STOPPED) {
            sg_fiber_abandon(slot, fiber);
            fiber = NULL;
            break;
        }
        if (better && better())
            break;
    }
    if (fiber)
        sg_fiber_park(slot, fiber);
    while (slot->n_beside > 1)
        sg_run_release(slot->beside[--slot->n_beside]);
    slot->n_beside = 0;
    if (run)
        sg_run_release(run);
}

/* --- blocks that take turns --- */

/** The blocks that a slot has begun and not ended, in a ring; `last->next` has the next turn. */
struct residents {
    struct sg_run *last;
    struct sg_fiber *fiber; /* loop form: the one that all run on */
    uint32_t count;
    uint32_t idle;    /* turns in a row in which nothing but yields happened … */
    uint32_t turns;   /* … and that yields ended, since a block was begun or ended */
    uint32_t crowded; /* rounds for which the processor is not worth waiting for */
};

static void add_resident(struct residents *r, struct sg_run *run)
{
    if (r->last) {
        run->next = r->last->next;
        r->last->next = run;
    } else {
        run->next = run;
    }
    r->last = run;
    r->count++;
    r->turns = 0;
}

static struct sg_run *remove_next(struct residents *r)
{
    struct sg_run *run = r->last->next;
    if (run == r->last)
        r->last = NULL;
    else
        r->last->next = run->next;
    r->count--;
    r->turns = 0;
    return run;
}

/** Takes the blocks of cluster `index` into the ring; false: no memory. */
static bool add_cluster(struct sg_slot *slot, struct sg_grid *grid, struct residents *r, uint64_t index)
{
    struct sg_cluster *cluster = sg_cluster_acquire(slot, grid);
    if (!cluster)
        return false;
    for (uint32_t rank = 0; rank < grid->cluster_size; rank++) {
        if (!sg_run_acquire(slot, grid, index, cluster, rank)) {
            /* nothing has begun: the last one that is released takes the cluster along */
            for (uint32_t i = 0; i < rank; i++)
                sg_run_release(cluster->run[i]);
            if (rank == 0)
                sg_cluster_release(slot, cluster);
            return false;
        }
    }
    for (uint32_t rank = 0; rank < grid->cluster_size; rank++)
        add_resident(r, cluster->run[rank]);
    return true;
}

/** Takes the grid's next block, or cluster, into the ring; false if there is none, or no memory for it. */
static bool begin_block(struct sg_slot *slot, struct sg_grid *grid, struct residents *r)
{
    if (atomic_load_explicit(&grid->next_block, memory_order_relaxed) >= grid->n_blocks)
        return false;
    uint64_t index = atomic_fetch_add_explicit(&grid->next_block, 1, memory_order_relaxed);
    if (index >= grid->n_blocks)
        return false;
    if (grid->launch->form == SG_CODE_LOOPS && !r->fiber)
        r->fiber = sg_fiber_acquire(slot, grid->stack_class);
    if (grid->cluster_size > 1) {
        if (add_cluster(slot, grid, r, index))
            return true;
    } else if (grid->launch->form == SG_CODE_THREAD || r->fiber) {
        struct sg_run *run = sg_run_acquire(slot, grid, index, NULL, 0);
        if (run) {
            add_resident(r, run);
            return true;
        }
    }
    out_of_memory(grid);
    return false;
}

/** All resident blocks only spin: begin another, or let others have the processor. */
static void idle_round(struct sg_slot *slot, struct sg_grid *grid, struct residents *r)
{
    uint32_t rounds = r->idle / r->count;
    bool more = r->count < grid->resident || (rounds >= IDLE_ROUNDS_EXTRA && r->count < grid->resident_max);
    if (more && begin_block(slot, grid, r)) {
        r->idle = 0;
        return;
    }
    if (rounds >= IDLE_ROUNDS_SLEEP || r->crowded > 0) {
        r->crowded -= r->crowded > 0;
        nanosleep(&(struct timespec){.tv_nsec = IDLE_SLEEP_NS}, NULL);
        return;
    }
    uint64_t before = rg_now_ns();
    sched_yield();
    if (rg_now_ns() - before > LONG_YIELD_NS)
        r->crowded = CROWDED_ROUNDS;
}

/**
 * After a turn that yields ended, in which something happened: perhaps all that did is part of looking again.
 */
static void busy_round(struct sg_slot *slot, struct sg_grid *grid, struct residents *r)
{
    if (r->turns / r->count >= TURNS_EXTRA && r->count < grid->resident_max) {
        begin_block(slot, grid, r);
        r->turns = 0;
    }
}

static void end_residents(struct sg_slot *slot, const struct sg_grid *grid, struct residents *r)
{
    while (r->count) {
        struct sg_run *run = remove_next(r);
        if (grid->launch->form == SG_CODE_THREAD)
            sg_run_abandon(run);
        sg_run_release(run);
    }
    if (r->fiber)
        sg_fiber_park(slot, r->fiber);
}

static void work_in_turns(struct sg_slot *slot, struct sg_grid *grid, bool (*better)(void))
{
    struct residents r = {0};

    while (!stopped(grid)) {
        if (!r.count && !begin_block(slot, grid, &r))
            break;
        struct sg_run *run = r.last->next;
        enum sg_leave leave = sg_run_turn(run, r.fiber);
        if (leave == SG_LEAVE_TURN || (leave == SG_LEAVE_BLOCKED && !sg_cluster_is_stuck(run->cluster))) {
            r.last = run;
            r.idle = run->progress ? 0 : r.idle + 1;
            r.turns = run->yields ? r.turns + 1 : 0;
            if (r.idle ? r.idle % r.count == 0 : r.count < grid->resident)
                idle_round(slot, grid, &r);
            else
                busy_round(slot, grid, &r);
        } else if (leave == SG_LEAVE_ENDED) {
            sg_run_release(remove_next(&r));
            r.idle = 0;
            if (!r.count && better && better())
                break;
        } else if ((leave == SG_LEAVE_DEADLOCK || leave == SG_LEAVE_BLOCKED) &&
                   grid->launch->form == SG_CODE_THREAD) { /* of loop form it has been told */
            report_deadlock(run);
            sg_grid_fault(grid, SG_FAULT_DEADLOCK, run->block.ctaid, first_waiting(run), 0);
        } else if (leave == SG_LEAVE_STOPPED && r.fiber) {
            sg_fiber_abandon(slot, r.fiber);
            r.fiber = NULL;
        }
    }
    end_residents(slot, grid, &r);
}

void sg_grid_work(struct sg_slot *slot, struct sg_grid *grid, bool (*better)(void))
{
    unsigned float_control = sg_float_control();
    sg_set_float_control(SG_FLOAT_CONTROL_DEFAULT);
    sg_current_slot = slot;
    sg_watch_slot(slot, grid);
    if (grid->waits)
        work_in_turns(slot, grid, better);
    else
        work_blocks(slot, grid, better);
    sg_unwatch_slot(slot, grid);
    if (grid->launch->stack_size)
        sg_fiber_trim(slot, grid->stack_class);
    sg_current_slot = NULL;
    sg_set_float_control(float_control);
}
