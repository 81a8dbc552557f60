/*
 * lanes.c - a block in loop form: takes rows of threads from point to point (kernel_abi.h), and lets them meet there.
 *
 * As long as all threads of the block come to the same point, and all of them take part, the block goes from point to
 * point as a whole, at the cost of one call each. When threads part, each row of neighbours that are ready at one
 * point is taken on by itself, and what they come to is counted as for fibers: barriers as in barrier.c, groups of
 * lanes as in warp.c, with the same rules for threads that have ended. The block goes on as a whole again when all its
 * threads are ready at one point.
 *
 * Slot's thread only, on the fiber that runs the slot's blocks.
 */
#include "softgpu/exec/engine.h"

#include "common/log.h"

#include <stdlib.h>
#include <string.h>

#define WARPS_MAX (SG_THREADS_MAX / SG_WARP_SIZE)
#define ALL       UINT32_MAX

struct barrier {
    uint32_t arrived, count; /* count 0: all threads that have not ended */
    uint32_t n_red, sum;
    uint32_t waiting[WARPS_MAX]; /* lanes */
};

struct warp {
    uint32_t alive, ready, converging; /* lanes */
    uint32_t n_groups;
    struct sg_warp_group groups[SG_WARP_SIZE];
};

struct sg_meetings {
    struct sg_lanes lanes;
    size_t context_capacity, local_capacity;
    /* while threads are apart */
    uint32_t live;
    uint32_t n_ready;
    uint32_t n_converging;
    uint32_t whole_waiting; /* barriers (bits) in which threads wait for the whole block */
    struct barrier barriers[SG_BARRIERS];
    struct warp warps[WARPS_MAX];
};

static bool reserve(unsigned char **memory, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    size = (size + 4095) & ~(size_t)4095;
    unsigned char *bigger = aligned_alloc(64, size);
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
    if (!run->meetings && !(run->meetings = calloc(1, sizeof(*run->meetings))))
        return false;
    struct sg_meetings *m = run->meetings;
    m->lanes.block = &run->block;
    m->lanes.stride = (uint64_t)run->grid->n_warps * SG_WARP_SIZE;
    if (!reserve(&m->lanes.context, &m->context_capacity, m->lanes.stride * code->context_size) ||
        !reserve(&m->lanes.local, &m->local_capacity, m->lanes.stride * code->local_size))
        return false;
    run->block.local = m->lanes.local;
    run->block.local_size = m->lanes.stride * code->local_size;
    return true;
}

/* --- what lies in the context --- */

static void *column(const struct sg_meetings *m, uint32_t at)
{
    return m->lanes.context + m->lanes.stride * at;
}

static const struct sg_point *point_of(const struct sg_run *run, uint32_t thread)
{
    const struct sg_loop_code *code = run->grid->launch->code;
    return &code->points[((const uint16_t *)column(run->meetings, SG_LANES_POINT))[thread]];
}

/** Threads [first, end) are at `point`; regions say so themselves only where it is not the same for all. */
static void set_points(const struct sg_run *run, uint32_t first, uint32_t end, uint32_t point)
{
    uint16_t *points = column(run->meetings, SG_LANES_POINT);
    for (uint32_t i = first; i < end; i++)
        points[i] = (uint16_t)point;
}

static uint32_t operand(const struct sg_meetings *m, const struct sg_point *point, uint8_t flag,
                        uint32_t constant, uint32_t at, uint32_t thread)
{
    return point->constant & flag ? constant : ((const uint32_t *)column(m, at))[thread];
}

static uint64_t value_of(const struct sg_meetings *m, const struct sg_point *point, uint32_t thread)
{
    bool wide = point->kind == SG_POINT_MATCH_ANY || point->kind == SG_POINT_MATCH_ALL;
    uint64_t low = ((const uint32_t *)column(m, SG_LANES_VALUE))[thread];
    return wide ? low | (uint64_t)((const uint32_t *)column(m, SG_LANES_VALUE_HIGH))[thread] << 32 : low;
}

static void set_result(struct sg_meetings *m, uint32_t thread, uint64_t result)
{
    ((uint32_t *)column(m, SG_LANES_RESULT))[thread] = (uint32_t)result;
    ((uint32_t *)column(m, SG_LANES_PREDICATE))[thread] = (uint32_t)(result >> 32);
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

/* --- the block as a whole --- */

/** A shuffle of a whole warp by a distance that is the same for all lanes. */
static void shuffle_evenly(const struct sg_point *point, const uint32_t *restrict value,
                           uint32_t *restrict result, uint32_t *restrict predicate)
{
    uint32_t b = point->a & 31, clamp = point->b & 31, segment = point->b >> 8 & 31;
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

/** Lets the lanes `group` of a warp have each other's values, whatever they came by. */
static void exchange(const struct sg_run *run, uint32_t warp, uint32_t group)
{
    struct sg_meetings *m = run->meetings;
    struct sg_exchange x;
    bool any = false;
    SG_FOR_LANES(lane, group)
    {
        uint32_t thread = warp * SG_WARP_SIZE + lane;
        const struct sg_point *point = point_of(run, thread);
        x.operation[lane] = exchange_of(point);
        if (point->kind == SG_POINT_WARP_SYNC)
            continue;
        any = true;
        x.value[lane] = value_of(m, point, thread);
        if (point->kind == SG_POINT_SHFL) {
            x.b[lane] = operand(m, point, SG_POINT_A, point->a, SG_LANES_A, thread);
            x.c[lane] = operand(m, point, SG_POINT_B, point->b, SG_LANES_B, thread);
        }
    }
    if (!any)
        return;
    sg_exchange_resolve(&x, group);
    SG_FOR_LANES(lane, group)
    {
        if (x.operation[lane] != SG_EXCHANGE(SG_EXCHANGE_SYNC, 0))
            set_result(m, warp * SG_WARP_SIZE + lane, x.result[lane]);
    }
}

static uint32_t lanes_of(const struct sg_run *run, uint32_t warp)
{
    uint32_t lanes = run->grid->n_threads - warp * SG_WARP_SIZE;
    return lanes >= SG_WARP_SIZE ? ALL : (1u << lanes) - 1;
}

static bool exchange_all(const struct sg_run *run, uint32_t number)
{
    struct sg_meetings *m = run->meetings;
    const struct sg_loop_code *code = run->grid->launch->code;
    const struct sg_point *point = &code->points[number];
    if (point->kind != SG_POINT_ACTIVEMASK) {
        const uint32_t *masks = column(m, SG_LANES_MASK);
        for (uint32_t i = 0; i < run->grid->n_threads; i++) {
            uint32_t mask = point->constant & SG_POINT_MASK ? point->mask : masks[i];
            uint32_t all = lanes_of(run, i / SG_WARP_SIZE);
            if ((mask & all) != all)
                return false;
            if (point->constant & SG_POINT_MASK && mask == ALL)
                break;
        }
    }
    if (point->kind == SG_POINT_WARP_SYNC)
        return true;
    const uint8_t even = SG_POINT_A | SG_POINT_B;
    set_points(run, 0, run->grid->n_threads, number);
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        uint32_t all = lanes_of(run, warp), first = warp * SG_WARP_SIZE;
        if (point->kind == SG_POINT_ACTIVEMASK) {
            for (uint32_t i = 0; i < SG_WARP_SIZE; i++)
                set_result(m, first + i, all);
        } else if (point->kind == SG_POINT_SHFL && all == ALL && (point->constant & even) == even) {
            shuffle_evenly(point, (const uint32_t *)column(m, SG_LANES_VALUE) + first,
                           (uint32_t *)column(m, SG_LANES_RESULT) + first,
                           (uint32_t *)column(m, SG_LANES_PREDICATE) + first);
        } else {
            exchange(run, warp, all);
        }
    }
    return true;
}

static void reduce_all(const struct sg_run *run, const struct sg_point *point)
{
    const uint32_t *value = column(run->meetings, SG_LANES_VALUE);
    uint32_t *result = column(run->meetings, SG_LANES_RESULT), n = run->grid->n_threads, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += value[i] != 0;
    sum = point->mode == 0 ? sum : point->mode == 1 ? sum == n : sum != 0;
    for (uint32_t i = 0; i < n; i++)
        result[i] = sum;
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
    default:
        return exchange_all(run, number);
    }
}

/* --- threads that are apart --- */

static void make_ready(struct sg_meetings *m, uint32_t warp, uint32_t lanes)
{
    m->warps[warp].ready |= lanes;
    m->n_ready += (uint32_t)__builtin_popcount(lanes);
}

static void release(struct sg_run *run, struct barrier *barrier)
{
    struct sg_meetings *m = run->meetings;
    m->whole_waiting &= ~(1u << (barrier - m->barriers));
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        uint32_t waiting = barrier->waiting[warp];
        barrier->waiting[warp] = 0;
        make_ready(m, warp, waiting);
        if (!barrier->n_red)
            continue;
        SG_FOR_LANES(lane, waiting)
        {
            uint32_t thread = warp * SG_WARP_SIZE + lane;
            const struct sg_point *point = point_of(run, thread);
            if (point->kind == SG_POINT_BARRIER_RED)
                set_result(m, thread,
                           point->mode == 0   ? barrier->sum
                           : point->mode == 1 ? barrier->sum == barrier->n_red
                                              : barrier->sum != 0);
        }
    }
    barrier->n_red = barrier->sum = barrier->arrived = 0;
}

static void complete(struct sg_run *run, struct barrier *barrier)
{
    if (barrier->arrived && barrier->arrived >= (barrier->count ? barrier->count : run->meetings->live))
        release(run, barrier);
}

static void fault(struct sg_run *run, uint32_t thread)
{
    const uint32_t *ntid = run->block.ntid;
    struct sg_thread t = {.tid = {thread % ntid[0], thread / ntid[0] % ntid[1], thread / ntid[0] / ntid[1]},
                          .block = &run->block};
    sg_rt_fault(&t, SG_FAULT_ILLEGAL_INSTRUCTION);
}

/** `lanes`, all of one point and with the same operands as `thread`, come to a barrier. */
static void arrive(struct sg_run *run, const struct sg_point *point, uint32_t warp, uint32_t lanes,
                   uint32_t thread)
{
    struct sg_meetings *m = run->meetings;
    uint32_t id = operand(m, point, SG_POINT_A, point->a, SG_LANES_A, thread);
    uint32_t count = operand(m, point, SG_POINT_B, point->b, SG_LANES_B, thread);
    if (id >= SG_BARRIERS || (point->kind == SG_POINT_BARRIER_RED && point->mode > 2))
        fault(run, thread);
    struct barrier *barrier = &m->barriers[id];
    if (point->kind == SG_POINT_BARRIER_ARRIVE && !count)
        count = run->grid->n_threads;
    SG_FOR_LANES(lane, lanes)
    {
        uint32_t i = warp * SG_WARP_SIZE + lane;
        if (barrier->arrived++ == 0)
            barrier->count = count;
        if (point->kind == SG_POINT_BARRIER_ARRIVE) {
            make_ready(m, warp, 1u << lane);
        } else {
            barrier->waiting[warp] |= 1u << lane;
            if (!barrier->count)
                m->whole_waiting |= 1u << id;
        }
        if (point->kind == SG_POINT_BARRIER_RED) {
            barrier->n_red++;
            barrier->sum += value_of(m, point, i) != 0;
        }
        complete(run, barrier);
    }
}

static void finish_group(struct sg_run *run, uint32_t warp, uint32_t index)
{
    struct warp *w = &run->meetings->warps[warp];
    uint32_t group = w->groups[index].arrived;
    w->groups[index] = w->groups[--w->n_groups];
    exchange(run, warp, group);
    make_ready(run->meetings, warp, group);
}

/** `lanes` come to an operation of the lanes in `mask`. */
static void join(struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t mask)
{
    struct warp *w = &run->meetings->warps[warp];
    uint32_t i = 0;
    while (i < w->n_groups && w->groups[i].mask != mask)
        i++;
    if (i == w->n_groups)
        w->groups[w->n_groups++] = (struct sg_warp_group){.mask = mask};
    w->groups[i].arrived |= lanes;
    if ((mask & w->alive & ~w->groups[i].arrived) == 0)
        finish_group(run, warp, i);
}

static void join_by_masks(struct sg_run *run, const struct sg_point *point, uint32_t warp, uint32_t lanes)
{
    const struct sg_meetings *m = run->meetings;
    while (lanes) {
        uint32_t lane = (uint32_t)__builtin_ctz(lanes), same = 0;
        uint32_t mask =
            operand(m, point, SG_POINT_MASK, point->mask, SG_LANES_MASK, warp * SG_WARP_SIZE + lane);
        SG_FOR_LANES(other, lanes & mask)
        {
            uint32_t its =
                operand(m, point, SG_POINT_MASK, point->mask, SG_LANES_MASK, warp * SG_WARP_SIZE + other);
            same |= (uint32_t)(its == mask) << other;
        }
        same |= 1u << lane; /* a lane that is not in its own mask counts as if it were */
        lanes &= ~same;
        join(run, warp, same, mask | 1u << lane);
    }
}

/** Tells each lane that waits in activemask of the lanes of its warp that are at the same point. */
static bool converge(struct sg_run *run, uint32_t warp)
{
    struct sg_meetings *m = run->meetings;
    const uint16_t *points = (const uint16_t *)column(m, SG_LANES_POINT) + warp * SG_WARP_SIZE;
    uint32_t todo = m->warps[warp].converging;
    bool any = todo != 0;
    m->n_converging -= (uint32_t)__builtin_popcount(todo);
    m->warps[warp].converging = 0;
    while (todo) {
        uint16_t point = points[__builtin_ctz(todo)];
        uint32_t group = 0;
        SG_FOR_LANES(lane, todo)
        group |= (uint32_t)(points[lane] == point) << lane;
        SG_FOR_LANES(lane, group)
        set_result(m, warp * SG_WARP_SIZE + lane, group);
        make_ready(m, warp, group);
        todo &= ~group;
    }
    return any;
}

static void end_lanes(struct sg_run *run, uint32_t warp, uint32_t lanes)
{
    struct sg_meetings *m = run->meetings;
    struct warp *w = &m->warps[warp];
    w->alive &= ~lanes;
    m->live -= (uint32_t)__builtin_popcount(lanes);
    if (w->converging && w->converging == w->alive)
        converge(run, warp);
    for (uint32_t i = 0; i < w->n_groups;) {
        if ((w->groups[i].mask & w->alive & ~w->groups[i].arrived) == 0)
            finish_group(run, warp, i);
        else
            i++;
    }
    for (uint32_t waiting = m->whole_waiting; waiting; waiting &= waiting - 1)
        complete(run, &m->barriers[__builtin_ctz(waiting)]);
}

/** `lanes` of a warp have come to the same point. */
static void come_to(struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t number)
{
    struct sg_meetings *m = run->meetings;
    const struct sg_loop_code *code = run->grid->launch->code;
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
            arrive(run, point, warp, lanes, warp * SG_WARP_SIZE);
        } else {
            SG_FOR_LANES(lane, lanes)
            arrive(run, point, warp, 1u << lane, warp * SG_WARP_SIZE + lane);
        }
        break;
    case SG_POINT_ACTIVEMASK:
        m->warps[warp].converging |= lanes;
        m->n_converging += (uint32_t)__builtin_popcount(lanes);
        if (m->warps[warp].converging == m->warps[warp].alive)
            converge(run, warp);
        break;
    case SG_POINT_PASS:
        make_ready(m, warp, lanes);
        break;
    default:
        join_by_masks(run, point, warp, lanes);
        break;
    }
}

/** Threads [first, end) have run: sorts them by what they came to. */
static void arrive_row(struct sg_run *run, uint32_t first, uint32_t end)
{
    const uint16_t *points = column(run->meetings, SG_LANES_POINT);
    for (uint32_t warp = first / SG_WARP_SIZE; warp * SG_WARP_SIZE < end; warp++) {
        uint32_t base = warp * SG_WARP_SIZE, from = first > base ? first - base : 0;
        uint32_t to = end - base < SG_WARP_SIZE ? end - base : SG_WARP_SIZE;
        uint32_t todo = (to == SG_WARP_SIZE ? ALL : (1u << to) - 1) & ALL << from;
        while (todo) {
            uint16_t point = points[base + (uint32_t)__builtin_ctz(todo)];
            uint32_t same = 0;
            SG_FOR_LANES(lane, todo)
            same |= (uint32_t)(points[base + lane] == point) << lane;
            todo &= ~same;
            come_to(run, warp, same, point);
        }
    }
}

static void begin_apart(struct sg_run *run)
{
    struct sg_meetings *m = run->meetings;
    m->live = run->grid->n_threads;
    m->n_ready = m->n_converging = m->whole_waiting = 0;
    memset(m->barriers, 0, sizeof(m->barriers));
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++)
        m->warps[warp] = (struct warp){.alive = lanes_of(run, warp)};
}

/** Nobody is ready: lets those go on that wait for what cannot come any more. As fibers do, schedule.h. */
static bool help(struct sg_run *run)
{
    struct sg_meetings *m = run->meetings;
    if (m->n_converging) {
        for (uint32_t warp = 0; warp < run->grid->n_warps; warp++)
            converge(run, warp);
        return true;
    }
    uint32_t ended = run->grid->n_threads - m->live;
    for (unsigned i = 0; i < SG_BARRIERS; i++) {
        struct barrier *barrier = &m->barriers[i];
        if (barrier->arrived && barrier->count && barrier->arrived + ended >= barrier->count)
            release(run, barrier);
    }
    return m->n_ready != 0;
}

static bool is_ready(const struct sg_meetings *m, uint32_t thread)
{
    return m->warps[thread / SG_WARP_SIZE].ready >> thread % SG_WARP_SIZE & 1;
}

/** Takes the first ready thread at or behind *first, and its neighbours at the same point: [*first, end); 0: none. */
static uint32_t take_row(struct sg_run *run, uint32_t *first)
{
    struct sg_meetings *m = run->meetings;
    const uint16_t *points = column(m, SG_LANES_POINT);
    uint32_t n = run->grid->n_threads, at = *first;
    while (at < n && !is_ready(m, at)) {
        uint32_t left = m->warps[at / SG_WARP_SIZE].ready >> at % SG_WARP_SIZE;
        at += left ? (uint32_t)__builtin_ctz(left) : SG_WARP_SIZE - at % SG_WARP_SIZE;
    }
    if (at >= n)
        return 0;
    uint32_t end = at;
    while (end < n && is_ready(m, end) && points[end] == points[at]) {
        m->warps[end / SG_WARP_SIZE].ready &= ~(1u << end % SG_WARP_SIZE);
        end++;
    }
    m->n_ready -= end - at;
    *first = at;
    return end;
}

static bool stopped(const struct sg_run *run)
{
    return atomic_load_explicit(&run->grid->stop, memory_order_relaxed);
}

/** Are all threads ready at the same point, and does no barrier remember arrivals? */
static bool are_together(const struct sg_run *run)
{
    const struct sg_meetings *m = run->meetings;
    const uint16_t *points = column(m, SG_LANES_POINT);
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
    uint32_t next = code->points[point].next;
    code->regions[point](&run->meetings->lanes, run->grid->params, first, end);
    if (next)
        set_points(run, first, end, next);
}

/** Takes threads on until all are ready at one point (ENDED with *point), or all have ended (ENDED, SG_POINT_END). */
static enum sg_leave run_apart(struct sg_run *run, uint32_t *point)
{
    struct sg_meetings *m = run->meetings;
    const uint16_t *points = column(m, SG_LANES_POINT);
    begin_apart(run);
    arrive_row(run, 0, run->grid->n_threads);
    while (m->live) {
        if (!m->n_ready && !help(run))
            return SG_LEAVE_DEADLOCK;
        if (are_together(run)) {
            *point = points[0];
            return SG_LEAVE_ENDED;
        }
        for (uint32_t first = 0, end; (end = take_row(run, &first)) != 0; first = end) {
            if (stopped(run))
                return SG_LEAVE_STOPPED;
            run_row(run, points[first], first, end);
            arrive_row(run, first, end);
        }
    }
    *point = SG_POINT_END;
    return SG_LEAVE_ENDED;
}

/** Of the threads that wait for ever; the first of them is the one to name. */
static void report_deadlock(struct sg_run *run)
{
    const struct sg_meetings *m = run->meetings;
    const uint32_t *ctaid = run->block.ctaid, *ntid = run->block.ntid;
    uint32_t in_barriers = 0, thread = 0;
    const struct barrier *first = NULL;
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

enum sg_leave sg_lanes_run_block(struct sg_run *run)
{
    struct sg_meetings *m = run->meetings;
    const struct sg_loop_code *code = run->grid->launch->code;
    const uint16_t *points = column(m, SG_LANES_POINT);
    uint32_t n = run->grid->n_threads, point = 0;
    while (point != SG_POINT_END) {
        if (stopped(run))
            return SG_LEAVE_STOPPED;
        uint32_t next = code->points[point].next;
        bool together = true;
        code->regions[point](&m->lanes, run->grid->params, 0, n);
        if (!next) {
            together = n == 1 || memcmp(points, points + 1, (n - 1) * sizeof(*points)) == 0;
            next = points[0];
        }
        if (together && (next == SG_POINT_END || pass_together(run, next))) {
            point = next;
            continue;
        }
        if (code->points[point].next)
            set_points(run, 0, n, next);
        enum sg_leave leave = run_apart(run, &point);
        if (leave == SG_LEAVE_DEADLOCK)
            report_deadlock(run);
        if (leave != SG_LEAVE_ENDED)
            return leave;
    }
    return SG_LEAVE_ENDED;
}
