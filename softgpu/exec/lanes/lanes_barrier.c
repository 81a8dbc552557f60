/*
 * lanes_barrier.c - barriers of a block in loop form whose threads have parted, with the same rules as for
 * fibers (barrier.c): threads that come are counted, and the last one makes all that wait ready again. One
 * that waits for the whole block is complete, too, when the threads that are missing have ended.
 *
 * A barrier that there is not, or a reduction that there is not, is the thread's fault. Slot's thread only.
 */
#include "softgpu/exec/lanes/lanes_detached.h"

static void release(struct sg_run *run, struct sg_lanes_barrier *barrier)
{
    struct sg_loop_block *m = run->loop;
    m->whole_waiting &= ~(1u << (barrier - m->barriers));
    for (uint32_t warp = 0; warp < run->grid->n_warps; warp++) {
        uint32_t waiting = barrier->waiting[warp];
        barrier->waiting[warp] = 0;
        sg_lanes_make_ready(m, warp, waiting);
        if (!barrier->n_red)
            continue;
        SG_FOR_LANES(lane, waiting)
        {
            uint32_t thread = warp * SG_WARP_SIZE + lane;
            const struct sg_point *point = sg_lanes_point(run, thread);
            if (point->kind == SG_POINT_BARRIER_RED)
                sg_lanes_set_result(m, thread,
                                    point->mode == 0   ? barrier->sum
                                    : point->mode == 1 ? barrier->sum == barrier->n_red
                                                       : barrier->sum != 0);
        }
    }
    barrier->n_red = barrier->sum = barrier->arrived = 0;
}

static void complete(struct sg_run *run, struct sg_lanes_barrier *barrier)
{
    if (barrier->arrived && barrier->arrived >= (barrier->count ? barrier->count : run->loop->live))
        release(run, barrier);
}

static void fault(struct sg_run *run, uint32_t thread)
{
    const uint32_t *ntid = run->block.ntid;
    struct sg_thread t = {.tid = {thread % ntid[0], thread / ntid[0] % ntid[1], thread / ntid[0] / ntid[1]},
                          .block = &run->block};
    sg_rt_fault(&t, SG_FAULT_ILLEGAL_INSTRUCTION);
}

void sg_lanes_arrive(struct sg_run *run, const struct sg_point *point, uint32_t warp, uint32_t lanes,
                     uint32_t thread)
{
    struct sg_loop_block *m = run->loop;
    uint32_t id = sg_lanes_operand(m, point, SG_POINT_A, point->a, SG_LANES_A, thread);
    uint32_t count = sg_lanes_operand(m, point, SG_POINT_B, point->b, SG_LANES_B, thread);
    if (id >= SG_BARRIERS || (point->kind == SG_POINT_BARRIER_RED && point->mode > 2))
        fault(run, thread);
    struct sg_lanes_barrier *barrier = &m->barriers[id];
    if (point->kind == SG_POINT_BARRIER_ARRIVE && !count)
        count = run->grid->n_threads;
    uint32_t n = (uint32_t)__builtin_popcount(lanes), awaited = barrier->arrived ? barrier->count : count;
    if (point->kind == SG_POINT_BARRIER && (!awaited || awaited - barrier->arrived >= n)) { /* in one go */
        barrier->count = awaited;
        barrier->arrived += n;
        barrier->waiting[warp] |= lanes;
        if (!awaited)
            m->whole_waiting |= 1u << id;
        complete(run, barrier);
        return;
    }
    SG_FOR_LANES(lane, lanes)
    {
        uint32_t i = warp * SG_WARP_SIZE + lane;
        if (barrier->arrived++ == 0)
            barrier->count = count;
        if (point->kind == SG_POINT_BARRIER_ARRIVE) {
            sg_lanes_make_ready(m, warp, 1u << lane);
        } else {
            barrier->waiting[warp] |= 1u << lane;
            if (!barrier->count)
                m->whole_waiting |= 1u << id;
        }
        if (point->kind == SG_POINT_BARRIER_RED) {
            barrier->n_red++;
            barrier->sum += sg_lanes_value(m, point, i) != 0;
        }
        complete(run, barrier);
    }
}

void sg_lanes_barriers_after_end(struct sg_run *run)
{
    for (uint32_t waiting = run->loop->whole_waiting; waiting; waiting &= waiting - 1)
        complete(run, &run->loop->barriers[__builtin_ctz(waiting)]);
}

void sg_lanes_barriers_without_ended(struct sg_run *run)
{
    uint32_t ended = run->grid->n_threads - run->loop->live;
    for (unsigned i = 0; i < SG_BARRIERS; i++) {
        struct sg_lanes_barrier *barrier = &run->loop->barriers[i];
        if (barrier->arrived && barrier->count && barrier->arrived + ended >= barrier->count)
            release(run, barrier);
    }
}
