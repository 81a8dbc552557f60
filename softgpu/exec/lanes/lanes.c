/*
 * lanes.c - a block in loop form: takes rows of threads from point to point (kernel_abi.h), and lets them meet there.
 *
 * As long as all threads of the block come to the same point, and all of them take part, the block goes from point to
 * point as a whole, at the cost of one call each. When threads part, lanes_detached.c takes over until all threads of the
 * block are ready at one point again.
 *
 * Blocks wait for each other as little as threads do. Where a kernel has loops whose turns its threads take together (they
 * stride over memory by the grid's width), neighbouring blocks take them side by side, too: what they read then lies in
 * longer stretches, which the processor sees coming.
 *
 * Where threads may wait for another block (SG_POINT_YIELD) blocks run by themselves, in turns, as those of thread form do:
 * a turn ends when all threads of the block can only wait or look again, and the block is set aside with all that it
 * keeps (grid.c). Nothing of it is on a stack then.
 *
 * Slot's thread only, on the fiber that runs the slot's blocks.
 */
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

#define BESIDE_THREADS                                                                                       \
    4096u /* of blocks that take the turns of a loop side by side; enough to read on and on … */
#define BESIDE_SHARED_AT_START (8u << 10)
#define BESIDE_SHARED          (128u << 10) /* … but what they keep should stay in the processor's cache */

static bool reserve(unsigned char **memory, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    size = (size + 4095) & ~(size_t)4095;
    unsigned char *bigger = aligned_alloc(4096, size); /* a local variable may ask for so much */
    if (!bigger)
        return false;
    free(*memory);
    *memory = bigger;
    *capacity = size;
    return true;
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
        !reserve(&m->lanes.local, &m->local_capacity, m->lanes.stride * code->local_size))
        return false;
    run->block.local = m->lanes.local;
    run->block.local_size = m->lanes.stride * code->local_size;
    return true;
}

static uint32_t exchange_of(const struct sg_point *point)
{
    static const uint8_t kinds[] = {
        [SG_POINT_WARP_SYNC] = SG_EXCHANGE_SYNC,      [SG_POINT_SHFL] = SG_EXCHANGE_SHUFFLE,
        [SG_POINT_VOTE] = SG_EXCHANGE_VOTE,           [SG_POINT_MATCH_ANY] = SG_EXCHANGE_MATCH_ANY,
        [SG_POINT_MATCH_ALL] = SG_EXCHANGE_MATCH_ALL, [SG_POINT_REDUX] = SG_EXCHANGE_REDUCE,
    };
    return SG_EXCHANGE(kinds[point->kind], point->mode);
}

typedef uint32_t four_lanes __attribute__((vector_size(16), may_alias));

/** result[lane] = value[lane ^ b]; both aligned to 16 bytes, as columns are at the start of a warp. */
static void swap_lanes(uint32_t b, const uint32_t *restrict value, uint32_t *restrict result)
{
    const four_lanes *from = (const four_lanes *)(const void *)value;
    four_lanes *to = (four_lanes *)(void *)result;
    for (uint32_t i = 0; i < SG_WARP_SIZE / 4; i++) {
        four_lanes lanes = from[i ^ b >> 2];
        if (b & 1)
            lanes = __builtin_shufflevector(lanes, lanes, 1, 0, 3, 2);
        if (b & 2)
            lanes = __builtin_shufflevector(lanes, lanes, 2, 3, 0, 1);
        to[i] = lanes;
    }
}

/** A shuffle of a whole warp, not in segments, by a distance that is the same for all lanes. */
static void shuffle_whole(uint32_t mode, uint32_t b, const uint32_t *restrict value,
                          uint32_t *restrict result, uint32_t *restrict predicate)
{
    uint32_t from = 0, to = SG_WARP_SIZE; /* the lanes that get another's value */
    switch (mode) {
    case 0:
        from = b;
        memcpy(result + b, value, (SG_WARP_SIZE - b) * sizeof(*value));
        break;
    case 1:
        to = SG_WARP_SIZE - b;
        memcpy(result, value + b, (SG_WARP_SIZE - b) * sizeof(*value));
        break;
    case 2:
        swap_lanes(b, value, result);
        break;
    default:
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
            result[lane] = value[b];
        break;
    }
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
        predicate[lane] = 1;
    for (uint32_t lane = 0; lane < from; lane++) {
        result[lane] = value[lane];
        predicate[lane] = 0;
    }
    for (uint32_t lane = to; lane < SG_WARP_SIZE; lane++) {
        result[lane] = value[lane];
        predicate[lane] = 0;
    }
}

/** A shuffle of a whole warp by a distance that is the same for all lanes. */
static void shuffle_evenly(const struct sg_point *point, const uint32_t *restrict value,
                           uint32_t *restrict result, uint32_t *restrict predicate)
{
    uint32_t b = point->a & 31, clamp = point->b & 31, segment = point->b >> 8 & 31;
    if (segment == 0 && clamp == (point->mode == 0 ? 0 : 31)) {
        shuffle_whole(point->mode, b, value, result, predicate);
        return;
    }
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
        int32_t limit = (int32_t)((lane & segment) | (clamp & ~segment)), source;
        switch (point->mode) {
        case 0:
            source = (int32_t)lane - (int32_t)b;
            break;
        case 1:
            source = (int32_t)(lane + b);
            break;
        case 2:
            source = (int32_t)(lane ^ b);
            break;
        default:
            source = (int32_t)((lane & segment) | (b & ~segment));
            break;
        }
        bool inside = point->mode == 0 ? source >= limit : source <= limit;
        predicate[lane] = inside;
        result[lane] = value[inside ? (uint32_t)source & 31 : lane];
    }
}

static uint32_t lanes_at(const struct sg_run *run, uint32_t warp, uint32_t group,
                         const struct sg_point *point)
{
    uint32_t lanes = 0;
    SG_FOR_LANES(lane, group)
    lanes |= (uint32_t)(sg_lanes_point(run, warp * SG_WARP_SIZE + lane) == point) << lane;
    return lanes;
}

/* Those of the lanes that are at points of matrices; what they came for is done. */
static uint32_t exchange_matrices(const struct sg_run *run, uint32_t warp, uint32_t group)
{
    uint32_t done = 0;
    SG_FOR_LANES(lane, group)
    {
        const struct sg_point *point = sg_lanes_point(run, warp * SG_WARP_SIZE + lane);
        if (point->kind != SG_POINT_MATRIX || (done >> lane & 1))
            continue;
        uint32_t same = lanes_at(run, warp, group, point);
        sg_lanes_matrices(run, warp, same, point);
        done |= same;
    }
    return done;
}

static bool is_even_shuffle(const struct sg_point *point)
{
    const uint8_t even = SG_POINT_A | SG_POINT_B;
    return point->kind == SG_POINT_SHFL && (point->constant & even) == even;
}

/** A whole warp that is at such a shuffle. */
static void shuffle_warp(const struct sg_loop_block *m, const struct sg_point *point, uint32_t warp)
{
    uint32_t first = warp * SG_WARP_SIZE;
    shuffle_evenly(point, (const uint32_t *)sg_lanes_column(m, SG_LANES_VALUE) + first,
                   (uint32_t *)sg_lanes_column(m, SG_LANES_RESULT) + first,
                   (uint32_t *)sg_lanes_column(m, SG_LANES_PREDICATE) + first);
}

static bool at_one_point(const struct sg_run *run, uint32_t warp)
{
    const uint16_t *points =
        (const uint16_t *)sg_lanes_column(run->loop, SG_LANES_POINT) + warp * SG_WARP_SIZE;
    return memcmp(points, points + 1, (SG_WARP_SIZE - 1) * sizeof(*points)) == 0;
}

/** What lanes, none of which is at a point of matrices, came by; false: to no more than be together. */
static bool gather(const struct sg_run *run, uint32_t warp, uint32_t lanes, struct sg_exchange *x)
{
    const struct sg_loop_block *m = run->loop;
    bool any = false;
    SG_FOR_LANES(lane, lanes)
    {
        uint32_t thread = warp * SG_WARP_SIZE + lane;
        const struct sg_point *point = sg_lanes_point(run, thread);
        x->operation[lane] = exchange_of(point);
        if (point->kind == SG_POINT_WARP_SYNC)
            continue;
        any = true;
        x->mask[lane] = sg_lanes_operand(m, point, SG_POINT_MASK, point->mask, SG_LANES_MASK, thread);
        x->value[lane] = sg_lanes_value(m, point, thread);
        if (point->kind == SG_POINT_SHFL) {
            x->b[lane] = sg_lanes_operand(m, point, SG_POINT_A, point->a, SG_LANES_A, thread);
            x->c[lane] = sg_lanes_operand(m, point, SG_POINT_B, point->b, SG_LANES_B, thread);
        }
    }
    return any;
}

static void scatter(struct sg_loop_block *m, uint32_t warp, uint32_t lanes, const struct sg_exchange *x)
{
    SG_FOR_LANES(lane, lanes)
    {
        if (x->operation[lane] != SG_EXCHANGE(SG_EXCHANGE_SYNC, 0))
            sg_lanes_set_result(m, warp * SG_WARP_SIZE + lane, x->result[lane]);
    }
}

void sg_lanes_exchange(const struct sg_run *run, uint32_t warp, uint32_t group)
{
    struct sg_loop_block *m = run->loop;
    struct sg_exchange x;
    if (group == SG_ALL_LANES && at_one_point(run, warp) &&
        is_even_shuffle(sg_lanes_point(run, warp * SG_WARP_SIZE))) {
        shuffle_warp(m, sg_lanes_point(run, warp * SG_WARP_SIZE), warp);
        return;
    }
    group &= ~exchange_matrices(run, warp, group);
    if (!gather(run, warp, group, &x))
        return;
    sg_exchange_resolve(&x, group);
    scatter(m, warp, group, &x);
}

void sg_lanes_exchange_each(const struct sg_run *run, uint32_t warp, uint32_t here, uint32_t lanes)
{
    struct sg_exchange x;
    if (!gather(run, warp, here, &x))
        return;
    sg_exchange_resolve_each(&x, here, lanes);
    scatter(run->loop, warp, lanes, &x);
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
        } else if (all == SG_ALL_LANES && is_even_shuffle(point)) {
            shuffle_warp(m, point, warp);
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

/** Takes the block, all of whose threads are at m->point, to the next one that they come to together; TURN: they wait. */
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

/** Takes the block on, together or detached, until the threads are together at another point or the turn is over. */
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
