/*
 * plan.c - what a launch comes to: how many threads, warps, clusters and blocks, and how these are dealt out among the
 * cores. Before the grid runs; any thread.
 */
#include "softgpu/exec/grid/plan.h"

#include "softgpu/exec/fiber/fiber.h"

#define SHARES_PER_CORE   8u
#define SHARES_WITH_TURNS 2u

bool sg_plan_check(const struct sg_launch *launch, struct sg_grid *grid)
{
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (!launch->grid[i] || !launch->block[i] || launch->block[i] > SG_THREADS_MAX)
            return false;
        threads *= launch->block[i];
    }
    uint64_t plane = (uint64_t)launch->grid[0] * launch->grid[1];
    if (threads > SG_THREADS_MAX || plane > UINT64_MAX / 2 / launch->grid[2])
        return false;
    if (launch->shared_static > SG_SHARED_MAX || launch->shared_dynamic > SG_SHARED_MAX)
        return false;
    grid->n_threads = (uint32_t)threads;
    grid->n_warps = (grid->n_threads + SG_WARP_SIZE - 1) / SG_WARP_SIZE;
    grid->n_blocks = plane * launch->grid[2];
    grid->cluster_size = 1;
    if (launch->cluster[0] && launch->form == SG_CODE_THREAD) { /* the other forms see no other block */
        uint64_t size = 1;
        for (int i = 0; i < 3; i++) {
            if (!launch->cluster[i] || launch->grid[i] % launch->cluster[i])
                return false;
            size *= launch->cluster[i];
        }
        if (size > SG_CLUSTER_MAX)
            return false;
        grid->cluster_size = (uint32_t)size;
        grid->n_blocks /= size;
    }
    uint64_t stack = launch->form == SG_CODE_THREAD ? SG_STACK_BASE + launch->stack_size
                                                    : SG_BLOCK_STACK + launch->stack_size * 16;
    grid->stack_class = launch->stack_size > UINT32_MAX ? SG_STACK_CLASSES : sg_stack_class(stack);
    return grid->stack_class < SG_STACK_CLASSES;
}

void sg_plan_grid(const struct sg_launch *launch, struct sg_grid *grid)
{
    unsigned cores = grid->n_cores = sg_exec_cores();
    if (launch->n_multiprocessors && launch->n_multiprocessors < cores)
        cores = launch->n_multiprocessors;
    grid->workers_max = cores;
    grid->shares = cores * SHARES_PER_CORE;
    const struct sg_loop_code *loops = launch->form == SG_CODE_LOOPS ? launch->code : NULL;
    grid->waits = launch->form == SG_CODE_THREAD || (loops && loops->yields);
    if (loops && loops->takes_turns)
        grid->shares = cores * SHARES_WITH_TURNS; /* blocks that take turns side by side should be many */
    grid->resident = 1;
    grid->resident_max = SG_RESIDENT_MAX;
    if (grid->waits && launch->cooperative) {
        uint64_t share = (grid->n_blocks + cores - 1) / cores;
        share *= grid->cluster_size;
        grid->resident = share > UINT32_MAX ? UINT32_MAX : (uint32_t)share;
        grid->resident_max = UINT32_MAX;
    }
}
