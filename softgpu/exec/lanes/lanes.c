/*
 * lanes.c - a block in loop form: takes rows of threads from point to point (kernel_abi.h), and lets them
 * meet there.
 *
 * As long as all threads of the block come to the same point, and all of them take part, the block goes from
 * point to point as a whole, at the cost of one call each. When threads part, lanes_detached.c takes over
 * until all threads of the block are ready at one point again.
 *
 * Blocks wait for each other as little as threads do. Where a kernel has loops whose turns its threads take
 * together (they stride over memory by the grid's width), neighbouring blocks take them side by side, too:
 * what they read then lies in longer stretches, which the processor sees coming.
 *
 * Where threads may wait for another block (SG_POINT_YIELD) blocks run by themselves, in turns, as those of
 * thread form do: a turn ends when all threads of the block can only wait or look again, and the block is set
 * aside with all that it keeps (grid.c). Nothing of it is on a stack then.
 *
 * Slot's thread only, on the fiber that runs the slot's blocks.
 */
#include "softgpu/exec/lanes/lanes.h"
#include "common/base/align.h"
#include "softgpu/exec/matrix/matrix.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BESIDE_THREADS                                                                                       \
    4096u /* of blocks that take the turns of a loop side by side; enough to read on and on … */
#define BESIDE_SHARED_AT_START (8u << 10)
#define BESIDE_SHARED          (128u << 10) /* … but what they keep should stay in the processor's cache */

static bool reserve(unsigned char **memory, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    size = rg_align_up(size, 4096);
    unsigned char *bigger = aligned_alloc(4096, size); /* a local variable may ask for so much */
    if (!bigger)
        return false;
    free(*memory);
    *memory = bigger;
    *capacity = size;
    return true;
}

/** The same for .local variables, which kernels can reach. */
static bool reserve_local(struct sg_loop_block *m, size_t size)
{
    return (sg_guest_guarded() ? sg_guest_reserve : reserve)(&m->lanes.local, &m->local_capacity, size);
}

bool sg_lanes_reserve(struct sg_run *run)
{
    const struct sg_loop_code *code = run->grid->launch->code;
    if (!run->loop && !(run->loop = calloc(1, sizeof(*run->loop))))
        return false;
    struct sg_loop_block *m = run->loop;
    if (code->matrices && !sg_matrix_scratch_get(run->slot))
        return false;
    m->lanes.block = &run->block;
    m->lanes.stride = (uint64_t)run->grid->n_warps * SG_WARP_SIZE;
    if (!reserve(&m->lanes.context, &m->context_capacity, m->lanes.stride * code->context_size) ||
        !reserve_local(m, m->lanes.stride * code->local_size))
        return false;
    run->block.local = m->lanes.local;
    run->block.local_size = m->lanes.stride * code->local_size;
    return true;
}

static bool exchange_all(const struct sg_run *run, uint32_t number)
{
    struct sg_loop_block *m = run->loop;
    const struct sg_loop_code *code = run->grid->launch->code;
    const struct sg_point *point = &code->points[number];
    if (point->kind != SG_POINT_ACTIVEMASK) {
        const uint32_t *masks = sg_lanes_column(m, SG_LANES_MASK);
        for (uint32_t i = 0; i < run->grid->n_threads; i++) {
            uint32_t mask = point->constant & SG_POINT_MASK ? point->mask : masks[i];
            uint32_t all = sg_lanes_of_warp(run, i / SG_WARP_SIZE);
            if ((mask & all) != all)
                return false;
            if (point->constant & SG_POINT_MASK && mask == SG_ALL_LANES)
                break;
        }
    }
    if (point->kind == SG_POINT_WARP_SYNC)
        return true;
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        uint32_t all = sg_lanes_of_warp(run, warp), first = warp * SG_WARP_SIZE;
        if (point->kind == SG_POINT_ACTIVEMASK) {
            for (uint32_t i = 0; i < SG_WARP_SIZE; i++)
                sg_lanes_set_result(m, first + i, all);
        } else if (point->kind == SG_POINT_MATRIX) {
            sg_lanes_matrices(run, warp, all, point);
        } else if (all == SG_ALL_LANES && sg_lanes_is_even_shuffle(point)) {
            sg_lanes_shuffle_warp(m, point, warp);
        } else {
            sg_lanes_set_points(run, first, first + (uint32_t)__builtin_popcount(all), number);
            sg_lanes_exchange(run, warp, all);
        }
    }
    return true;
}

static void reduce_all(const struct sg_run *run, const struct sg_point *point)
{
    const uint32_t *value = sg_lanes_column(run->loop, SG_LANES_VALUE);
    uint32_t *result = sg_lanes_column(run->loop, SG_LANES_RESULT), n = run->grid->n_threads, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += value[i] != 0;
    sum = point->mode == 0 ? sum : point->mode == 1 ? sum == n : sum != 0;
    for (uint32_t i = 0; i < n; i++)
        result[i] = sum;
}

enum yield { YIELD_NONE, YIELD_SOME, YIELD_ALL };

/** All threads of the block are at a point of SG_POINT_YIELD: which of them wait? */
static enum yield who_waits(const struct sg_run *run, const struct sg_point *point)
{
    const uint32_t *value = sg_lanes_column(run->loop, SG_LANES_VALUE);
    uint32_t n = run->grid->n_threads, passing = 0;
    for (uint32_t i = 0; point->mode == SG_YIELD_UNLESS && i < n; i++)
        passing += value[i] != 0;
    return passing == n ? YIELD_NONE : passing == 0 ? YIELD_ALL : YIELD_SOME;
}

/** All threads of the block are at a point; true if they have all that they came for. */
static bool pass_together(struct sg_run *run, uint32_t number)
{
    const struct sg_loop_code *code = run->grid->launch->code;
    const struct sg_point *point = &code->points[number];
    const uint8_t even = SG_POINT_A | SG_POINT_B;
    switch (point->kind) {
    case SG_POINT_BARRIER:
    case SG_POINT_BARRIER_RED:
        if ((point->constant & even) != even || point->a >= SG_BARRIERS ||
            (point->b != 0 && point->b != run->grid->n_threads))
            return false;
        if (point->kind == SG_POINT_BARRIER_RED)
            reduce_all(run, point);
        return true;
    case SG_POINT_BARRIER_ARRIVE:
        return false;
    case SG_POINT_PASS:
        return true;
    case SG_POINT_YIELD:
        return who_waits(run, point) == YIELD_NONE;
    default:
        return exchange_all(run, number);
    }
}

/**
 * Takes the block, all of whose threads are at m->point, to the next one that they come to together; TURN:
 * they wait.
 */
static enum sg_leave step(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    const struct sg_loop_code *code = run->grid->launch->code;
    const uint16_t *points = sg_lanes_column(m, SG_LANES_POINT);
    uint32_t n = run->grid->n_threads;
    if (sg_lanes_stopped(run))
        return SG_LEAVE_STOPPED;
    uint32_t next = code->regions[m->point](&m->lanes, run->grid->params, 0, n);
    bool together = true, stored = next == 0;
    if (stored) {
        together = n == 1 || memcmp(points, points + 1, (n - 1) * sizeof(*points)) == 0;
        next = points[0];
    }
    if (together && next != SG_POINT_END && code->points[next].kind == SG_POINT_YIELD &&
        who_waits(run, &code->points[next]) == YIELD_ALL) {
        m->point = next;
        return SG_LEAVE_TURN;
    }
    m->moved = true;
    if (together && (next == SG_POINT_END || pass_together(run, next))) {
        m->point = next;
        return SG_LEAVE_ENDED;
    }
    if (!stored)
        sg_lanes_set_points(run, 0, n, next);
    sg_lanes_part(run);
    return SG_LEAVE_ENDED;
}

/**
 * Takes the block on, together or detached, until the threads are together at another point or the turn is
 * over.
 */
static enum sg_leave go_on(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    enum sg_leave leave = m->detached ? SG_LEAVE_ENDED : step(run);
    if (leave == SG_LEAVE_ENDED && m->detached)
        leave = sg_lanes_run_detached(run);
    if (leave == SG_LEAVE_DEADLOCK)
        sg_lanes_report_deadlock(run);
    return leave;
}

void sg_lanes_begin(struct sg_run *run)
{
    run->loop->point = 0;
    run->loop->detached = false;
}

enum sg_leave sg_lanes_run_turn(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    enum sg_leave leave = SG_LEAVE_ENDED;
    m->moved = false;
    while (leave == SG_LEAVE_ENDED && (m->detached || m->point != SG_POINT_END))
        leave = go_on(run);
    run->progress = m->moved;
    run->yields = leave == SG_LEAVE_TURN;
    return leave;
}

uint32_t sg_lanes_beside(const struct sg_grid *grid)
{
    const struct sg_loop_code *code = grid->launch->code;
    uint32_t shared = grid->launch->shared_static + grid->launch->shared_dynamic;
    uint32_t count = BESIDE_THREADS / grid->n_threads;
    uint32_t limit = (code->takes_turns ? BESIDE_SHARED : BESIDE_SHARED_AT_START) / (shared + 1);
    count = count < limit ? count : limit;
    return count < 1 ? 1 : count > SG_BESIDE_MAX ? SG_BESIDE_MAX : count;
}

static bool is_turn(const struct sg_point *point)
{
    return point->kind == SG_POINT_PASS && point->mode == SG_PASS_TURN;
}

enum sg_leave sg_lanes_run_beside(struct sg_run *const *runs, uint32_t count)
{
    const struct sg_loop_code *code = runs[0]->grid->launch->code;
    struct sg_fiber *fiber = runs[0]->slot->current;
    uint32_t left = count;
    enum sg_leave leave = SG_LEAVE_ENDED;
    for (uint32_t i = 0; i < count; i++)
        sg_lanes_begin(runs[i]);
    while (left > 0 && leave == SG_LEAVE_ENDED) {
        for (uint32_t i = 0; i < count && leave == SG_LEAVE_ENDED; i++) {
            const uint32_t *point = &runs[i]->loop->point;
            if (*point == SG_POINT_END)
                continue;
            fiber->run = runs[i]; /* a fault would be this block's */
            bool first = *point == 0;
            do
                leave = go_on(runs[i]);
            while (leave == SG_LEAVE_ENDED && *point != SG_POINT_END && !first &&
                   !is_turn(&code->points[*point]));
            left -= *point == SG_POINT_END;
        }
    }
    fiber->run = runs[0];
    return leave;
}
