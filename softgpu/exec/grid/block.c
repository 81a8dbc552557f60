/*
 * block.c - a block in execution: its memory, and what its threads see of it.
 *
 * A run is acquired for a block, given turns by the slot's scheduler until its threads have ended (threads.c), and
 * released. Runs stay in the slot with the memory that they have, for the next block.
 *
 * Memory that runs out fails sg_run_acquire. Slot's thread only.
 */
#include "softgpu/exec/grid/block.h"
#include "common/base/align.h"
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
    size_t capacity = rg_align_up(size, 64u << 10), guard;
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
    if (!sg_guest_reserve(&run->guest_params, &run->guest_params_capacity, size))
        return false;
    if (size)
        memcpy(run->guest_params, grid->params, size);
    run->block.guest_params = run->guest_params;
    return true;
}

static bool reserve_warps(struct sg_run *run, uint32_t n_warps)
{
    if (n_warps <= run->warps_capacity)
        return true;
    struct sg_warp *warps = aligned_alloc(64, rg_align_up(n_warps * sizeof(*warps), 64));
    if (!warps)
        return false;
    free(run->warps);
    run->warps = warps;
    run->warps_capacity = n_warps;
    return true;
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
    block->sm_id = launch->n_multiprocessors
                       ? launch->multiprocessors[run->slot->sm_id % launch->n_multiprocessors]
                       : run->slot->sm_id;
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
        sg_block_set_index(&run->block, index);
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
