/*
 * lanes_detached.c - threads of a block in loop form that have parted: each row of neighbours that are ready
 * at one point is taken on by itself, and what they come to decides who is ready next: barriers
 * (lanes_barrier.c), groups of lanes (lanes_group.c), and waiting for lanes that are farther behind. Threads
 * that yield look again when no other thread of the block can go on; if nothing else has happened since they
 * last did, the block waits for another one.
 *
 * Where nobody is ready and nothing can make them so, the block is in a deadlock, of which the log tells.
 * Slot's thread only, on the fiber that runs the slot's blocks.
 */
#include "softgpu/exec/lanes/lanes_detached.h"
#include "softgpu/exec/fault/fault.h"

#include "common/base/log.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/**
 * Those of a warp's lanes that are at point `number`; there are points for all 32, the last of which may mean
 * nothing.
 */
static uint32_t lanes_at(const uint16_t points[SG_WARP_SIZE], uint16_t number)
{
    uint32_t lanes = 0;
#if defined(__SSE2__)
    const __m128i *p = (const __m128i *)(const void *)points, key = _mm_set1_epi16((short)number);
    for (int i = 0; i < 2; i++) {
        __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128(p + 2 * i), key);
        __m128i high = _mm_cmpeq_epi16(_mm_loadu_si128(p + 2 * i + 1), key);
        lanes |= (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) << 16 * i;
    }
#else
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
        lanes |= (uint32_t)(points[lane] == number) << lane;
#endif
    return lanes;
}

static void end_lanes(struct sg_run *run, uint32_t warp, uint32_t lanes)
{
    struct sg_loop_block *m = run->loop;
    m->warps[warp].alive &= ~lanes;
    m->live -= (uint32_t)__builtin_popcount(lanes);
    sg_lanes_groups_after_end(run, warp);
    sg_lanes_barriers_after_end(run);
}

static void yield(struct sg_loop_block *m, const struct sg_point *point, uint32_t warp, uint32_t lanes)
{
    const uint32_t *value = (const uint32_t *)sg_lanes_column(m, SG_LANES_VALUE) + warp * SG_WARP_SIZE;
    uint32_t passing = 0;
    if (point->mode == SG_YIELD_UNLESS) {
        SG_FOR_LANES(lane, lanes)
        passing |= (uint32_t)(value[lane] != 0) << lane;
    }
    sg_lanes_make_ready(m, warp, passing);
    m->moved |= passing != 0;
    m->warps[warp].yielding |= lanes & ~passing;
    m->n_yielding += (uint32_t)__builtin_popcount(lanes & ~passing);
}

/** Those that have yielded look again. */
static void wake(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        sg_lanes_make_ready(m, warp, m->warps[warp].yielding);
        m->warps[warp].yielding = 0;
    }
    m->n_yielding = 0;
}

/**
 * Lanes that are to pass go on where no other of their warp can: of several points those at the first, which come to where the
 * others are, and may do what these expect to be done. Those that come back are in a loop, which others have left; for these there is
 * an end to waiting, as the loop may wait for them.
 */
static void let_pass(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    const uint16_t *points = sg_lanes_column(m, SG_LANES_POINT);
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++, points += SG_WARP_SIZE) {
        struct sg_lanes_warp *w = &m->warps[warp];
        if (!w->passing || w->ready)
            continue;
        uint16_t first = SG_POINT_END;
        SG_FOR_LANES(lane, w->passing)
        first = points[lane] < first ? points[lane] : first;
        const bool onwards = first >= w->behind || ++w->turns < SG_PASS_TURNS;
        const uint32_t lanes = onwards ? w->passing & lanes_at(points, first) : w->passing;
        w->passing &= ~lanes;
        m->n_passing -= (uint32_t)__builtin_popcount(lanes);
        w->behind = onwards ? first + 1u : 0;
        w->turns = onwards ? w->turns : 0;
        sg_lanes_make_ready(m, warp, lanes);
    }
}

/** `lanes` of a warp have come to the same point. */
static void come_to(struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t number)
{
    struct sg_loop_block *m = run->loop;
    const struct sg_loop_code *code = run->grid->launch->code;
    m->moved |= number == SG_POINT_END || code->points[number].kind != SG_POINT_YIELD;
    if (number == SG_POINT_END) {
        end_lanes(run, warp, lanes);
        return;
    }
    const struct sg_point *point = &code->points[number];
    const uint8_t even = SG_POINT_A | SG_POINT_B;
    switch (point->kind) {
    case SG_POINT_BARRIER:
    case SG_POINT_BARRIER_ARRIVE:
    case SG_POINT_BARRIER_RED:
        if ((point->constant & even) == even) {
            sg_lanes_arrive(run, point, warp, lanes, warp * SG_WARP_SIZE);
        } else {
            SG_FOR_LANES(lane, lanes)
            sg_lanes_arrive(run, point, warp, 1u << lane, warp * SG_WARP_SIZE + lane);
        }
        break;
    case SG_POINT_ACTIVEMASK:
        m->warps[warp].converging |= lanes;
        m->n_converging += (uint32_t)__builtin_popcount(lanes);
        if (m->warps[warp].converging == m->warps[warp].alive)
            sg_lanes_converge(run, warp);
        break;
    case SG_POINT_PASS:
        if (point->mode == SG_PASS_TURN) {
            sg_lanes_make_ready(m, warp, lanes);
        } else {
            m->warps[warp].passing |= lanes;
            m->n_passing += (uint32_t)__builtin_popcount(lanes);
        }
        break;
    case SG_POINT_YIELD:
        yield(m, point, warp, lanes);
        break;
    default:
        sg_lanes_join(run, warp, lanes);
        break;
    }
}

/** Threads [first, end) have run: sorts them by what they came to. */
static void arrive_row(struct sg_run *run, uint32_t first, uint32_t end)
{
    const uint16_t *points = sg_lanes_column(run->loop, SG_LANES_POINT);
    for (uint32_t warp = first / SG_WARP_SIZE; warp * SG_WARP_SIZE < end; warp++) {
        uint32_t base = warp * SG_WARP_SIZE, from = first > base ? first - base : 0;
        uint32_t to = end - base < SG_WARP_SIZE ? end - base : SG_WARP_SIZE;
        uint32_t todo = (to == SG_WARP_SIZE ? SG_ALL_LANES : (1u << to) - 1) & SG_ALL_LANES << from;
        while (todo) {
            uint16_t point = points[base + (uint32_t)__builtin_ctz(todo)];
            uint32_t same = todo & lanes_at(points + base, point);
            todo &= ~same;
            come_to(run, warp, same, point);
        }
    }
}

void sg_lanes_part(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    m->detached = true;
    m->live = run->grid->n_threads;
    m->n_ready = m->n_converging = m->n_yielding = m->n_passing = m->whole_waiting = 0;
    memset(m->barriers, 0, sizeof(m->barriers));
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++)
        m->warps[warp] = (struct sg_lanes_warp){.alive = sg_lanes_of_warp(run, warp)};
    arrive_row(run, 0, run->grid->n_threads);
}

static bool help_lanes(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    bool converging = m->n_converging != 0;
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        if (converging)
            sg_lanes_converge(run, warp);
        else
            sg_lanes_rescue(run, warp);
    }
    return m->n_ready != 0;
}

/** Nobody is ready: lets those go on that wait for what cannot come any more. As fibers do, schedule.h. */
static bool help(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    if (m->n_converging)
        return help_lanes(run);
    sg_lanes_barriers_without_ended(run);
    return m->n_ready != 0 || help_lanes(run);
}

/**
 * Takes the first ready thread at or behind *first, and its neighbours at the same point: [*first, end); 0:
 * none.
 */
static uint32_t take_row(struct sg_run *run, uint32_t *first)
{
    struct sg_loop_block *m = run->loop;
    const uint16_t *points = sg_lanes_column(m, SG_LANES_POINT);
    uint32_t warp = *first / SG_WARP_SIZE, n_warps = run->grid->n_warps, end;
    uint32_t behind = SG_ALL_LANES << *first % SG_WARP_SIZE; /* lanes of the warp that may be taken */
    while (warp < n_warps && !(m->warps[warp].ready & behind)) {
        warp++;
        behind = SG_ALL_LANES;
    }
    if (warp >= n_warps)
        return 0;
    uint32_t lane = (uint32_t)__builtin_ctz(m->warps[warp].ready & behind), at = warp * SG_WARP_SIZE + lane;
    do {
        uint32_t lanes = m->warps[warp].ready & lanes_at(points + warp * SG_WARP_SIZE, points[at]);
        uint32_t ends = ~lanes & SG_ALL_LANES << lane; /* lanes that do not belong to it */
        uint32_t to = ends ? (uint32_t)__builtin_ctz(ends) : SG_WARP_SIZE;
        m->warps[warp].ready &= ends ? ~((1u << to) - (1u << lane)) : ~(SG_ALL_LANES << lane);
        end = warp * SG_WARP_SIZE + to;
        lane = 0;
    } while (end % SG_WARP_SIZE == 0 && ++warp < n_warps && end == warp * SG_WARP_SIZE);
    m->n_ready -= end - at;
    *first = at;
    return end;
}

/** Are all threads ready at the same point, and does no barrier remember arrivals? */
static bool are_together(const struct sg_run *run)
{
    const struct sg_loop_block *m = run->loop;
    const uint16_t *points = sg_lanes_column(m, SG_LANES_POINT);
    uint32_t n = run->grid->n_threads;
    if (m->n_ready != n || memcmp(points, points + 1, (n - 1) * sizeof(*points)) != 0)
        return false;
    for (uint32_t i = 0; i < SG_BARRIERS; i++)
        if (m->barriers[i].arrived)
            return false;
    return true;
}

/** Takes threads [first, end) from `point` on; afterwards each thread's point is in the context. */
static void run_row(struct sg_run *run, uint32_t point, uint32_t first, uint32_t end)
{
    const struct sg_loop_code *code = run->grid->launch->code;
    uint32_t next = code->regions[point](&run->loop->lanes, run->grid->params, first, end);
    if (next)
        sg_lanes_set_points(run, first, end, next);
}

enum sg_leave sg_lanes_run_detached(struct sg_run *run)
{
    struct sg_loop_block *m = run->loop;
    const uint16_t *points = sg_lanes_column(m, SG_LANES_POINT);
    while (m->live) {
        if (m->n_passing)
            let_pass(run);
        if (!m->n_ready && m->n_yielding && (m->moved || !help_lanes(run))) {
            wake(run);
            return SG_LEAVE_TURN;
        }
        if (!m->n_ready && !help(run))
            return SG_LEAVE_DEADLOCK;
        if (are_together(run)) {
            m->point = points[0];
            m->detached = false;
            return SG_LEAVE_ENDED;
        }
        for (uint32_t first = 0, end; (end = take_row(run, &first)) != 0; first = end) {
            if (sg_lanes_stopped(run))
                return SG_LEAVE_STOPPED;
            run_row(run, points[first], first, end);
            arrive_row(run, first, end);
        }
    }
    m->point = SG_POINT_END;
    m->detached = false;
    return SG_LEAVE_ENDED;
}

/** Of the threads that wait for ever; the first of them is the one to name. */
void sg_lanes_report_deadlock(struct sg_run *run)
{
    const struct sg_loop_block *m = run->loop;
    const uint32_t *ctaid = run->block.ctaid, *ntid = run->block.ntid;
    uint32_t in_barriers = 0, thread = 0;
    const struct sg_lanes_barrier *first = NULL;
    for (uint32_t i = 0; i < SG_BARRIERS; i++) {
        uint32_t waiting = 0;
        for (uint32_t warp = 0; warp < run->grid->n_warps; warp++)
            waiting += (uint32_t)__builtin_popcount(m->barriers[i].waiting[warp]);
        if (waiting && !first)
            first = &m->barriers[i];
        in_barriers += waiting;
    }
    while (!(m->warps[thread / SG_WARP_SIZE].alive >> thread % SG_WARP_SIZE & 1))
        thread++;
    if (first)
        rg_error("kernel %s, block (%u,%u,%u): deadlock: all %u live threads wait, %u of them in barriers "
                 "(barrier %u has %u of %u arrivals), the others in warp operations",
                 run->grid->launch->kernel_name, ctaid[0], ctaid[1], ctaid[2], m->live, in_barriers,
                 (unsigned)(first - m->barriers), first->arrived, first->count ? first->count : m->live);
    else
        rg_error("kernel %s, block (%u,%u,%u): deadlock: all %u live threads wait in warp operations",
                 run->grid->launch->kernel_name, ctaid[0], ctaid[1], ctaid[2], m->live);
    uint32_t tid[3] = {thread % ntid[0], thread / ntid[0] % ntid[1], thread / ntid[0] / ntid[1]};
    sg_grid_fault(run->grid, SG_FAULT_DEADLOCK, ctaid, tid, 0);
}
