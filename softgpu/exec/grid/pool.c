/*
 * pool.c - the engine as a whole: slots, worker threads, the list of grids.
 *
 * A thread needs a slot to run blocks, and there is one a core. The thread that calls sg_pool_run takes a
 * slot if one is free and works on its own grid; a grid of more than one block is also put into the list,
 * from which worker threads (made when first needed, at most one a core) help the grid with the fewest
 * helpers. Waking spreads: each worker that finds blocks left wakes the next.
 *
 * A caller that finds all slots taken waits for a worker to come to its grid. After a short time it makes an
 * extra slot for itself: the blocks that hold the others may be waiting for just this grid.
 *
 * Who waits for whom, all under the one lock:
 * - A caller whose grid has workers left sleeps on the grid's `finished`, as its only waiter. Whoever leaves
 *   the grid last signals it, whether blocks are left (the worker went to a grid that starves; the caller
 *   then works again) or not.
 * - A caller whose grid has blocks, no worker and no slot sleeps there, too, but not for longer than until it
 *   may make an extra slot.
 * - Workers without blocks or slots sleep in `idle`. Callers never depend on them: what nobody comes for a
 *   caller does itself.
 * tests/softgpu/exec/grid/pool_model.py goes through all that can happen for a few threads, workers that
 * sleep through calls included; it should be changed together with this file.
 *
 * Threads that cannot be made are done without: the caller's own suffices. A process that forks keeps a
 * usable engine in the parent only.
 */
#include "softgpu/exec/grid/pool.h"
#include "softgpu/exec/fault/decode.h"
#include "softgpu/exec/fault/held.h"
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/fault/watchdog.h"
#include "softgpu/exec/fiber/fiber.h"
#include "softgpu/exec/grid/block.h"
#include "softgpu/exec/grid/grid.h"
#include "softgpu/exec/grid/plan.h"
#include "softgpu/guest.h"

#include "common/base/align.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/wait_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXTRA_SLOT_WAIT_NS 2000000 /* how long a caller waits before it makes an extra slot */
#define EXTRA_SLOTS_MAX    256u
#define SPIN_ROUNDS        200u /* looks at the last helpers before the caller sleeps */
#define PARAMS_ON_STACK    4096u

static struct {
    pthread_mutex_t lock;
    struct sg_slot *free_slots;
    struct sg_grid *grids; /* listed: blocks may be left to begin */
    unsigned n_slots, n_workers;
    unsigned n_coming;           /* workers that were made or woken and have yet to look at the list */
    struct rg_wait_queue idle;   /* workers that found no blocks, or no slot */
    _Atomic unsigned n_starving; /* listed grids with no worker */
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

/** A grid waits that nobody works on: those who can choose should go there. */
static bool starving(void)
{
    return atomic_load_explicit(&engine.n_starving, memory_order_relaxed) != 0;
}

/* --- slots (under the lock) --- */

/** A free slot, made if there are fewer than cores (or `extra`); NULL if there is none. */
static struct sg_slot *take_slot(bool extra)
{
    struct sg_slot *slot = engine.free_slots;
    if (slot) {
        engine.free_slots = slot->next_free;
        return slot;
    }
    if (engine.n_slots >= sg_exec_cores() + (extra ? EXTRA_SLOTS_MAX : 0))
        return NULL;
    slot = aligned_alloc(64, rg_align_up(sizeof(*slot), 64));
    if (!slot)
        return NULL;
    memset(slot, 0, sizeof(*slot));
    slot->fiber_main = sg_fiber_main;
    slot->index = engine.n_slots++;
    slot->sm_id = slot->index % sg_exec_cores();
    return slot;
}

static void return_slot(struct sg_slot *slot)
{
    slot->next_free = engine.free_slots;
    engine.free_slots = slot;
}

/** Bounds of the calling thread's stack, for the sanitizers. */
static void thread_stack(const void **stack, size_t *size)
{
    *stack = NULL;
    *size = 0;
#if SG_ASAN
    pthread_attr_t attributes;
    void *address;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &address, size) == 0)
            *stack = address;
        pthread_attr_destroy(&attributes);
    }
#endif
}

static void bind_slot(struct sg_slot *slot)
{
    const void *stack;
    size_t size;
    thread_stack(&stack, &size);
    sg_sanitize_thread(&slot->scheduler_sanitize, stack, size);
}

/* --- the list of grids (under the lock) --- */

static void list_grid(struct sg_grid *grid)
{
    grid->listed = true;
    grid->previous = NULL;
    grid->next = engine.grids;
    if (grid->next)
        grid->next->previous = grid;
    engine.grids = grid;
    if (!grid->workers)
        atomic_fetch_add(&engine.n_starving, 1);
}

static void unlist_grid(struct sg_grid *grid)
{
    if (!grid->listed)
        return;
    grid->listed = false;
    if (grid->previous)
        grid->previous->next = grid->next;
    else
        engine.grids = grid->next;
    if (grid->next)
        grid->next->previous = grid->previous;
    if (!grid->workers)
        atomic_fetch_sub(&engine.n_starving, 1);
}

static void join_grid(struct sg_grid *grid)
{
    if (grid->workers++ == 0 && grid->listed)
        atomic_fetch_sub(&engine.n_starving, 1);
}

static void leave_grid(struct sg_grid *grid)
{
    if (--grid->workers == 0) {
        if (grid->listed)
            atomic_fetch_add(&engine.n_starving, 1);
        pthread_cond_signal(&grid->finished);
    }
}

static bool has_blocks(const struct sg_grid *grid)
{
    return atomic_load_explicit(&grid->next_block, memory_order_relaxed) < grid->n_blocks &&
           !atomic_load_explicit(&grid->stop, memory_order_relaxed);
}

/** The listed grid with blocks left that lets others come and has the fewest workers; takes grids without blocks off the list. */
static struct sg_grid *choose_grid(void)
{
    struct sg_grid *best = NULL;
    for (struct sg_grid *grid = engine.grids, *next; grid; grid = next) {
        next = grid->next;
        if (!has_blocks(grid)) {
            unlist_grid(grid);
            if (!grid->workers)
                pthread_cond_signal(&grid->finished);
        } else if (grid->workers < grid->workers_max && (!best || grid->workers <= best->workers)) {
            best = grid; /* of equals the oldest: new grids are put in front */
        }
    }
    return best;
}

/* --- workers --- */

static void *work(void *unused);

static bool wake_worker(void)
{
    bool woken = rg_wait_queue_wake_last(&engine.idle); /* whose caches are the warmest */
    engine.n_coming += woken;
    return woken;
}

/** Sees to it that one more worker looks at the list: wakes one, or makes one unless one is on its way. */
static void call_worker(void)
{
    if (wake_worker() || engine.n_coming || engine.n_workers >= sg_exec_cores())
        return;
    if (rg_thread_start("softgpu", work, NULL)) {
        engine.n_workers++;
        engine.n_coming++;
    }
}

static void *work(void *unused)
{
    (void)unused;
    bool able = sg_signals_thread_init();
    pthread_mutex_lock(&engine.lock);
    engine.n_coming--;
    while (able) {
        struct sg_grid *grid = choose_grid();
        struct sg_slot *slot = grid ? take_slot(false) : NULL;
        if (!slot) {
            rg_wait_queue_wait(&engine.idle, &engine.lock);
            engine.n_coming--;
            continue;
        }
        join_grid(grid);
        if (grid->n_blocks - atomic_load_explicit(&grid->next_block, memory_order_relaxed) > 1 || starving())
            call_worker();
        pthread_mutex_unlock(&engine.lock);
        bind_slot(slot);
        sg_grid_work(slot, grid, starving);
        pthread_mutex_lock(&engine.lock);
        if (!has_blocks(grid))
            unlist_grid(grid);
        leave_grid(grid);
        return_slot(slot);
    }
    engine.n_workers--;
    pthread_mutex_unlock(&engine.lock);
    return NULL;
}

/* --- running a grid --- */

/** Waits for a slot, or for others to run the grid; after a while makes an extra slot. NULL: the grid has
 * ended. */
static struct sg_slot *wait_for_slot(struct sg_grid *grid)
{
    struct timespec until = rg_timespec(rg_now_ns() + EXTRA_SLOT_WAIT_NS);
    while (!grid->workers && has_blocks(grid)) {
        int error = pthread_cond_clockwait(&grid->finished, &engine.lock, CLOCK_MONOTONIC, &until);
        struct sg_slot *slot = take_slot(error == ETIMEDOUT);
        if (slot)
            return slot;
        if (error == ETIMEDOUT)
            until.tv_sec++;
    }
    return NULL;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/**
 * The caller works on its grid, which it has joined, until no block is left to begin. Under the lock, which
 * is open meanwhile.
 */
static void work_oneself(struct sg_grid *grid, struct sg_slot *slot)
{
    pthread_mutex_unlock(&engine.lock);
    bind_slot(slot);
    sg_grid_work(slot, grid, NULL);
    for (unsigned i = 0; i < SPIN_ROUNDS && atomic_load_explicit(&grid->workers, memory_order_relaxed) > 1;
         i++)
        pause_briefly();
    pthread_mutex_lock(&engine.lock);
    return_slot(slot);
    leave_grid(grid);
    if (engine.idle.count && choose_grid())
        wake_worker();
}

/** Runs the planned grid to its end, with the help of the workers. */
static void run(struct sg_grid *grid)
{
    bool alone = grid->n_blocks == 1 || grid->workers_max == 1;
    pthread_mutex_lock(&engine.lock);
    struct sg_slot *slot = take_slot(false);
    if (slot)
        join_grid(grid);
    if (!alone || !slot) {
        list_grid(grid);
        call_worker();
    }
    if (slot)
        work_oneself(grid, slot);
    while (grid->workers || has_blocks(grid)) {
        if (grid->workers) { /* they may leave blocks behind for another grid, which may wait for this one */
            pthread_cond_wait(&grid->finished, &engine.lock);
        } else if ((slot = wait_for_slot(grid))) {
            join_grid(grid);
            work_oneself(grid, slot);
        }
    }
    unlist_grid(grid);
    pthread_mutex_unlock(&engine.lock);
}

void sg_exec_hold_writes(uint64_t address, uint64_t size)
{
    pthread_once(&engine_once, sg_signals_install);
    sg_hold(address, size);
}

void sg_exec_let_writes(void)
{
    sg_hold_end();
}

enum sg_fault sg_pool_run(const struct sg_launch *launch, struct sg_parent *parent,
                          struct sg_fault_report *report)
{
    _Alignas(16) unsigned char on_stack[PARAMS_ON_STACK];
    unsigned char *params = on_stack;
    struct sg_grid grid = {.launch = launch, .parent = parent};

    pthread_once(&engine_once, sg_signals_install);
    memset(report, 0, sizeof(*report));
    if (!sg_signals_thread_init())
        return report->fault = SG_FAULT_OUT_OF_RESOURCES;
    if (!sg_plan_check(launch, &grid)) {
        rg_error("kernel %s: a launch of this size is not possible", launch->kernel_name);
        return report->fault = SG_FAULT_OUT_OF_RESOURCES;
    }
    if (launch->form == SG_CODE_BLOCK && sg_code_is_empty(launch->code))
        return SG_FAULT_NONE; /* for programs that try how large a grid may be */
    if (launch->params_size > sizeof(on_stack)) {
        params = aligned_alloc(16, rg_align_up(launch->params_size, 16));
        if (!params)
            return report->fault = SG_FAULT_OUT_OF_RESOURCES;
    }
    if (launch->params_size)
        memcpy(params, launch->params, launch->params_size);
    grid.params = params;
    grid.workspace = grid.own_workspace;
    if (launch->cooperative && sg_guest_guarded() &&
        !(grid.workspace = sg_guest_map(sizeof(grid.own_workspace), PROT_READ | PROT_WRITE))) {
        if (params != on_stack)
            free(params);
        return report->fault = SG_FAULT_OUT_OF_RESOURCES;
    }
    pthread_cond_init(&grid.finished, NULL);
    sg_plan_grid(launch, &grid);

    sg_watch_grid(&grid);
    run(&grid);
    sg_unwatch_grid(&grid);

    pthread_cond_destroy(&grid.finished);
    if (grid.workspace != grid.own_workspace)
        sg_guest_unmap(grid.workspace, sizeof(grid.own_workspace));
    if (params != on_stack)
        free(params);
    *report = grid.report;
    return grid.report.fault;
}
