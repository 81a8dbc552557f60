/*
 * lanes.h - internal to blocks in loop form: what their threads keep, and the way from lanes.c, where a block
 * goes from point to point as a whole, to lanes_detached.c and back.
 */
#ifndef SG_EXEC_LANES_LANES_H
#define SG_EXEC_LANES_LANES_H

#include "softgpu/exec/engine.h"

/* --- lanes.c --- */

/** Makes ready what the threads of a block keep; once a run and grid. False: no memory. */
bool sg_lanes_reserve(struct sg_run *run);
/** The run's next block begins. */
void sg_lanes_begin(struct sg_run *run);
/**
 * Runs a block that has begun to its end, or until it can only wait for another (SG_LEAVE_TURN; only if the
 * kernel yields); SG_LEAVE_ENDED, _TURN, _STOPPED or _DEADLOCK (after a report in the log).
 */
enum sg_leave sg_lanes_run_turn(struct sg_run *run);
/** How many neighbouring blocks of the grid, which is in loop form, had better run side by side; 1: none. */
uint32_t sg_lanes_beside(const struct sg_grid *grid);
/**
 * Runs the blocks of `count` runs of one grid and slot, the first of which the fiber belongs to; as
 * sg_lanes_run_turn.
 */
enum sg_leave sg_lanes_run_beside(struct sg_run *const *runs, uint32_t count);

/* --- internal --- */

#define SG_WARPS_MAX (SG_THREADS_MAX / SG_WARP_SIZE)
#define SG_ALL_LANES UINT32_MAX

struct sg_lanes_barrier {
    uint32_t arrived, count; /* count 0: all threads that have not ended */
    uint32_t n_red, sum;
    uint32_t waiting[SG_WARPS_MAX]; /* lanes */
};

struct sg_lanes_warp {
    uint32_t alive, ready, converging, yielding, passing; /* lanes */
    uint32_t behind; /* the point after that of the lanes that passed last, others being farther; 0: none */
    uint32_t turns;  /* how often lanes have come back since then */
    uint32_t n_groups;
    struct sg_warp_group groups[SG_WARP_SIZE];
};

struct sg_loop_block {
    struct sg_lanes lanes;
    size_t context_capacity, local_capacity;
    uint32_t point; /* where all threads are, unless they are detached */
    bool detached;
    bool moved; /* in this turn something happened but yields */
    /* while threads are detached */
    uint32_t live;
    uint32_t n_ready;
    uint32_t n_converging;
    uint32_t n_yielding;
    uint32_t n_passing;
    uint32_t whole_waiting; /* barriers (bits) in which threads wait for the whole block */
    struct sg_lanes_barrier barriers[SG_BARRIERS];
    struct sg_lanes_warp warps[SG_WARPS_MAX];
};

/** Thread 0's element of a column (SG_LANES_…), the others behind it. */
static inline void *sg_lanes_column(const struct sg_loop_block *m, uint32_t at)
{
    return m->lanes.context + m->lanes.stride * at;
}

/** The point that a thread is at, where that is not the same for all. */
static inline const struct sg_point *sg_lanes_point(const struct sg_run *run, uint32_t thread)
{
    const struct sg_loop_code *code = run->grid->launch->code;
    return &code->points[((const uint16_t *)sg_lanes_column(run->loop, SG_LANES_POINT))[thread]];
}

/** Threads [first, end) are at `point`; regions say so themselves only where it is not the same for all. */
static inline void sg_lanes_set_points(const struct sg_run *run, uint32_t first, uint32_t end, uint32_t point)
{
    uint16_t *points = sg_lanes_column(run->loop, SG_LANES_POINT);
    for (uint32_t i = first; i < end; i++)
        points[i] = (uint16_t)point;
}

/** An operand of what the point does: `constant`, if the point says by `flag` that it is one, or the thread's in column `at`. */
static inline uint32_t sg_lanes_operand(const struct sg_loop_block *m, const struct sg_point *point,
                                        uint8_t flag, uint32_t constant, uint32_t at, uint32_t thread)
{
    return point->constant & flag ? constant : ((const uint32_t *)sg_lanes_column(m, at))[thread];
}

/** What the thread has brought: 64 bits for match, else 32. */
static inline uint64_t sg_lanes_value(const struct sg_loop_block *m, const struct sg_point *point,
                                      uint32_t thread)
{
    bool wide = point->kind == SG_POINT_MATCH_ANY || point->kind == SG_POINT_MATCH_ALL;
    uint64_t low = ((const uint32_t *)sg_lanes_column(m, SG_LANES_VALUE))[thread];
    return wide ? low | (uint64_t)((const uint32_t *)sg_lanes_column(m, SG_LANES_VALUE_HIGH))[thread] << 32
                : low;
}

/** What the thread gets: the upper half is the predicate. */
static inline void sg_lanes_set_result(struct sg_loop_block *m, uint32_t thread, uint64_t result)
{
    ((uint32_t *)sg_lanes_column(m, SG_LANES_RESULT))[thread] = (uint32_t)result;
    ((uint32_t *)sg_lanes_column(m, SG_LANES_PREDICATE))[thread] = (uint32_t)(result >> 32);
}

/** The lanes of a warp that there are, a bit each. */
static inline uint32_t sg_lanes_of_warp(const struct sg_run *run, uint32_t warp)
{
    uint32_t lanes = run->grid->n_threads - warp * SG_WARP_SIZE;
    return lanes >= SG_WARP_SIZE ? SG_ALL_LANES : (1u << lanes) - 1;
}

static inline bool sg_lanes_stopped(const struct sg_run *run)
{
    return atomic_load_explicit(&run->grid->stop, memory_order_relaxed);
}

/** Whether the point is a shuffle by a distance that is the same for all lanes. */
bool sg_lanes_is_even_shuffle(const struct sg_point *point);
/** A whole warp that is at such a shuffle. */
void sg_lanes_shuffle_warp(const struct sg_loop_block *m, const struct sg_point *point, uint32_t warp);
/** Lets the lanes `group` of a warp have each other's values, whatever they came by. */
void sg_lanes_exchange(const struct sg_run *run, uint32_t warp, uint32_t group);
/**
 * Lets each of `lanes` have the values of those in its own mask; they and those are among `here`, at one
 * point (exchange.c).
 */
void sg_lanes_exchange_each(const struct sg_run *run, uint32_t warp, uint32_t here, uint32_t lanes);
/** Does what the point says with the matrices of the lanes, which are all that have not ended in the warp. */
void sg_lanes_matrices(const struct sg_run *run, uint32_t warp, uint32_t lanes, const struct sg_point *point);
/**
 * Threads that were together have come to their points, which the context holds; sg_lanes_run_detached takes
 * them on.
 */
void sg_lanes_part(struct sg_run *run);
/**
 * Takes threads that are detached on until all are ready at one point (ENDED, and they are together at
 * m->point), or have ended (ENDED, SG_POINT_END); TURN: they wait for another block, and are still detached.
 */
enum sg_leave sg_lanes_run_detached(struct sg_run *run);
/**
 * After SG_LEAVE_DEADLOCK: tells of the threads that wait for ever, and of the first of them in the fault's
 * report.
 */
void sg_lanes_report_deadlock(struct sg_run *run);

#endif
