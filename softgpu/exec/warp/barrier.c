/*
 * barrier.c - the sixteen barriers of a block: sync, arrive, and reductions.
 *
 * Threads that wait hang in the barrier's list; whoever completes the barrier makes the whole list ready at
 * once and goes on without a switch. A barrier for the whole block completes when all threads that have not
 * exited wait in it; one with an explicit count completes at that count, and exited threads are counted only
 * when nothing else in the block can run (programs may give the whole block's count for one of which threads
 * have left).
 *
 * A barrier number above 15 is an illegal instruction.
 */
#include "softgpu/exec/warp/schedule.h"

enum reduction { REDUCE_NONE = 3, REDUCE_COUNT = 0, REDUCE_AND = 1, REDUCE_OR = 2 };

/** Ends the barrier's round: everyone in it may go on. */
static void release(struct sg_run *run, struct sg_barrier *barrier)
{
    run->whole_waiting &= ~(1u << (barrier - run->barriers));
    if (barrier->n_red) {
        for (struct sg_fiber *fiber = barrier->first; fiber; fiber = fiber->next) {
            if (fiber->operation == REDUCE_COUNT)
                fiber->result = barrier->sum;
            else if (fiber->operation == REDUCE_AND)
                fiber->result = barrier->sum == barrier->n_red;
            else if (fiber->operation == REDUCE_OR)
                fiber->result = barrier->sum != 0;
        }
        barrier->n_red = barrier->sum = 0;
    }
    if (barrier->first)
        sg_ready_append_list(run, barrier->first, barrier->last);
    barrier->first = barrier->last = NULL;
    barrier->arrived = 0;
    for (uint32_t w = 0; w < run->grid->n_warps; w++)
        run->warps[w].behind = run->warps[w].turns = 0;
}

static bool complete(const struct sg_run *run, const struct sg_barrier *barrier)
{
    return barrier->arrived >= (barrier->count ? barrier->count : run->live);
}

/** Counts one arrival; the first of a round says how many are awaited. */
static struct sg_barrier *arrive(struct sg_thread *t, uint32_t id, uint32_t count)
{
    struct sg_run *run = sg_thread_fiber(t)->run;
    if (id >= SG_BARRIERS)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_INSTRUCTION);
    struct sg_barrier *barrier = &run->barriers[id];
    if (barrier->arrived++ == 0)
        barrier->count = count;
    return barrier;
}

/** Arrives and waits for the others; `operation` and `predicate` are the reduction's. */
static uint32_t synchronise(struct sg_thread *t, uint32_t id, uint32_t count, uint32_t operation,
                            uint32_t predicate)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_barrier *barrier = arrive(t, id, count);

    fiber->operation = operation;
    if (operation != REDUCE_NONE) {
        barrier->n_red++;
        barrier->sum += predicate != 0;
    }
    if (complete(run, barrier)) {
        uint32_t sum = barrier->sum, all = barrier->sum == barrier->n_red;
        release(run, barrier);
        run->progress = true;
        return operation == REDUCE_COUNT ? sum : operation == REDUCE_AND ? all : sum != 0;
    }
    fiber->next = NULL;
    if (barrier->first)
        barrier->last->next = fiber;
    else
        barrier->first = fiber;
    barrier->last = fiber;
    if (!barrier->count)
        run->whole_waiting |= 1u << id;
    sg_wait(fiber);
    return (uint32_t)fiber->result;
}

void sg_rt_barrier_sync(struct sg_thread *t, uint32_t id, uint32_t count)
{
    synchronise(t, id, count, REDUCE_NONE, 0);
}

uint32_t sg_rt_barrier_red(struct sg_thread *t, uint32_t id, uint32_t count, uint32_t op, uint32_t predicate)
{
    if (op > REDUCE_OR)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_INSTRUCTION);
    return synchronise(t, id, count, op, predicate);
}

void sg_rt_barrier_arrive(struct sg_thread *t, uint32_t id, uint32_t count)
{
    if (!t->engine) {
        if (id >= SG_BARRIERS)
            sg_rt_fault(t, SG_FAULT_ILLEGAL_INSTRUCTION);
        return; /* block form: no thread ever waits for it */
    }
    struct sg_run *run = sg_thread_fiber(t)->run;
    struct sg_barrier *barrier = arrive(t, id, count ? count : t->block->n_threads);
    if (complete(run, barrier))
        release(run, barrier);
}

void sg_barriers_thread_ended(struct sg_run *run)
{
    for (uint32_t waiting = run->whole_waiting; waiting; waiting &= waiting - 1) {
        struct sg_barrier *barrier = &run->barriers[__builtin_ctz(waiting)];
        if (complete(run, barrier))
            release(run, barrier);
    }
}

bool sg_barriers_rescue(struct sg_run *run)
{
    bool rescued = false;
    uint32_t ended = run->grid->n_threads - run->live;
    for (unsigned i = 0; i < SG_BARRIERS; i++) {
        struct sg_barrier *barrier = &run->barriers[i];
        if (barrier->first && barrier->count && barrier->arrived + ended >= barrier->count) {
            release(run, barrier);
            rescued = true;
        }
    }
    return rescued;
}
