/*
 * warp.c - operations among the lanes of a warp: shuffle, vote, match, reduce, synchronise.
 *
 * A lane that arrives joins the group of its mask. The lane that completes the group (all lanes of the mask
 * that have not exited are in it) computes the results of all of them, makes the others ready and goes on.
 * Groups with different masks are independent of each other, so diverged parts of a warp may be at different
 * operations. Lanes of one group that came by different operations let each other go (exchange.c).
 *
 * Where programs rely on lanes that run together without saying so, lanes wait for each other before an access
 * (sg_rt_pass). Those that have parted before, as by a branch that not all take, pass from the first place on.
 *
 * activemask asks which lanes run together, and there is no such thing here. The answer that programs rely on
 * is made up: a lane waits at the call until no other thread of the block can do anything but wait or spin,
 * and then the lanes at the same call are told of each other. Lanes on another path have gone on to wherever
 * that path ends.
 *
 * CUDA wants all lanes of an operation to name the same mask, with themselves in it. Programs that do not
 * (each lane votes among the lanes below it) work on GPUs, where the lanes have converged. So lanes that
 * would wait for ever get what is in their own masks, once all lanes that they name wait at the same
 * operation. It is too late for what lanes had that have gone on, as their own masks allowed; in loop form,
 * where converged lanes come together (lanes_detached.c), it is not, unless they may yet come to agree.
 */
#include "softgpu/exec/matrix/matrix.h"
#include "softgpu/exec/warp/exchange.h"
#include "softgpu/exec/warp/schedule.h"

#include <string.h>

/** Those of `lanes` that came by the same operation as `lane`. */
static uint32_t same_operation(const struct sg_lane_exchange *x, uint32_t lanes, uint32_t lane)
{
    uint32_t same = 0;
    SG_FOR_LANES(other, lanes)
    same |= (uint32_t)(x->operation[other] == x->operation[lane]) << other;
    return same;
}

/** Ends group `index` of the warp; every lane of it but `self` becomes ready. */
static void finish_group(struct sg_run *run, struct sg_warp *warp, uint32_t index, uint32_t self)
{
    uint32_t group = warp->groups[index].arrived, mask = warp->groups[index].mask;
    warp->groups[index] = warp->groups[--warp->n_groups];
    SG_FOR_LANES(lane, group & ~mask)
    sg_exchange_resolve_each(&warp->exchange, same_operation(&warp->exchange, group, lane), 1u << lane);
    sg_exchange_resolve(&warp->exchange, group & mask);
    SG_FOR_LANES(lane, group & ~self)
    sg_ready_append(run, warp->lanes[lane]);
    if (group == warp->alive)
        warp->behind = warp->turns = 0;
}

/**
 * Lanes that wait before an access go on: of several places those at the first, which come to where the others
 * are. Those that come back are in a loop, which others have left; for these there is an end to waiting, as the loop may wait
 * for them.
 */
static void let_pass(struct sg_run *run, struct sg_warp *warp)
{
    uint64_t first = UINT32_MAX;
    uint32_t lanes = 0;
    SG_FOR_LANES(lane, warp->passing)
    first = warp->lanes[lane]->value < first ? warp->lanes[lane]->value : first;
    const bool onwards = first >= warp->behind || ++warp->turns < SG_PASS_TURNS;
    SG_FOR_LANES(lane, warp->passing)
    {
        if (onwards && warp->lanes[lane]->value != first)
            continue;
        lanes |= 1u << lane;
        sg_ready_append(run, warp->lanes[lane]);
    }
    warp->passing &= ~lanes;
    warp->behind = onwards && lanes != warp->alive ? (uint32_t)first + 1 : 0;
    warp->turns = warp->behind != 0 ? warp->turns : 0;
    run->n_passing -= (uint32_t)__builtin_popcount(lanes);
}

static uint64_t warp_operation(struct sg_thread *t, uint32_t operation, uint64_t value, uint32_t b,
                               uint32_t c, uint32_t mask)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_warp *warp = &run->warps[t->linear / SG_WARP_SIZE];
    uint32_t lane = t->linear % SG_WARP_SIZE, self = 1u << lane, i;

    warp->exchange.mask[lane] = mask;
    warp->exchange.operation[lane] = operation;
    warp->exchange.value[lane] = value;
    warp->exchange.b[lane] = b;
    warp->exchange.c[lane] = c;
    for (i = 0; i < warp->n_groups; i++)
        if (warp->groups[i].mask == mask)
            break;
    if (i == warp->n_groups) {
        warp->groups[i] = (struct sg_warp_group){.mask = mask};
        warp->n_groups++;
    }
    warp->groups[i].arrived |= self;
    if (mask & self && (mask & warp->alive & ~warp->groups[i].arrived) == 0) {
        finish_group(run, warp, i, self);
        run->progress = true;
    } else {
        sg_wait(fiber);
    }
    return warp->exchange.result[lane];
}

/**
 * Gives every lane that waits in activemask the lanes of its warp that are at the same call, and lets it go
 * on.
 */
static void converge(struct sg_run *run, struct sg_warp *warp)
{
    uint32_t todo = warp->converging;
    warp->converging = 0;
    run->n_converging -= (uint32_t)__builtin_popcount(todo);
    while (todo) {
        uint64_t site = warp->lanes[__builtin_ctz(todo)]->value;
        uint32_t group = 0;
        SG_FOR_LANES(lane, todo)
        group |= (uint32_t)(warp->lanes[lane]->value == site) << lane;
        SG_FOR_LANES(lane, group)
        {
            warp->lanes[lane]->result = group;
            sg_ready_append(run, warp->lanes[lane]);
        }
        todo &= ~group;
    }
}

void sg_warp_thread_ended(struct sg_run *run, struct sg_warp *warp)
{
    if (warp->passing && warp->passing == warp->alive)
        let_pass(run, warp);
    if (warp->converging && warp->converging == warp->alive)
        converge(run, warp);
    for (uint32_t i = 0; i < warp->n_groups;) {
        const struct sg_warp_group *group = &warp->groups[i];
        if (group->arrived & group->mask && (group->mask & warp->alive & ~group->arrived) == 0)
            finish_group(run, warp, i, 0);
        else
            i++;
    }
}

static bool rescue(struct sg_run *run, struct sg_warp *warp)
{
    struct sg_lane_exchange *x = &warp->exchange;
    uint32_t waiting = 0, rescued = 0;
    for (uint32_t i = 0; i < warp->n_groups; i++)
        waiting |= warp->groups[i].arrived;
    SG_FOR_LANES(lane, waiting)
    {
        uint32_t here = same_operation(x, waiting, lane);
        if (x->mask[lane] & warp->alive & ~here)
            continue;
        sg_exchange_resolve_each(x, here, 1u << lane);
        rescued |= 1u << lane;
    }
    for (uint32_t i = 0; i < warp->n_groups;) {
        warp->groups[i].arrived &= ~rescued;
        if (warp->groups[i].arrived)
            i++;
        else
            warp->groups[i] = warp->groups[--warp->n_groups];
    }
    SG_FOR_LANES(lane, rescued)
    sg_ready_append(run, warp->lanes[lane]);
    return rescued != 0;
}

bool sg_warps_rescue(struct sg_run *run)
{
    bool rescued = false;
    for (uint32_t w = 0; w < run->grid->n_warps; w++)
        rescued |= rescue(run, &run->warps[w]);
    return rescued;
}

void sg_rt_warp_sync(struct sg_thread *t, uint32_t mask)
{
    warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_SYNC, 0), 0, 0, 0, mask);
}

bool sg_warps_pass(struct sg_run *run)
{
    if (!run->n_passing)
        return false;
    for (uint32_t w = 0; w < run->grid->n_warps; w++)
        if (run->warps[w].passing)
            let_pass(run, &run->warps[w]);
    return true;
}

void sg_rt_pass(struct sg_thread *t, uint32_t place)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_warp *warp = &run->warps[t->linear / SG_WARP_SIZE];
    fiber->value = place;
    warp->passing |= 1u << t->linear % SG_WARP_SIZE;
    run->n_passing++;
    if (warp->passing == warp->alive)
        let_pass(run, warp);
    sg_let_others_run(fiber); /* no progress: accesses stand in loops that spin, too */
}

bool sg_warps_converge(struct sg_run *run)
{
    if (!run->n_converging)
        return false;
    for (uint32_t w = 0; w < run->grid->n_warps; w++)
        if (run->warps[w].converging)
            converge(run, &run->warps[w]);
    return true;
}

uint32_t sg_rt_activemask(struct sg_thread *t)
{
    uint32_t self = 1u << t->linear % SG_WARP_SIZE;
    if (!t->engine)
        return self; /* block form: no lane does anything together with another */
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_warp *warp = &run->warps[t->linear / SG_WARP_SIZE];
    fiber->value = (uintptr_t)__builtin_return_address(0);
    warp->converging |= self;
    run->n_converging++;
    if (warp->converging == warp->alive)
        converge(run, warp); /* this lane, too, is made ready, and takes its turn */
    sg_wait(fiber);
    return (uint32_t)fiber->result;
}

uint64_t sg_rt_shfl(struct sg_thread *t, uint32_t mode, uint32_t value, uint32_t b, uint32_t c, uint32_t mask)
{
    return warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_SHUFFLE, mode), value, b, c, mask);
}

uint32_t sg_rt_vote(struct sg_thread *t, uint32_t mode, uint32_t predicate, uint32_t mask)
{
    return (uint32_t)warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_VOTE, mode), predicate, 0, 0, mask);
}

uint32_t sg_rt_match_any(struct sg_thread *t, uint64_t value, uint32_t mask)
{
    return (uint32_t)warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_MATCH_ANY, 0), value, 0, 0, mask);
}

uint64_t sg_rt_match_all(struct sg_thread *t, uint64_t value, uint32_t mask)
{
    return warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_MATCH_ALL, 0), value, 0, 0, mask);
}

void sg_rt_matrix(struct sg_thread *t, uint64_t kind, void *address, uint32_t stride,
                  struct sg_matrix_fragments *fragments)
{
    struct sg_matrix_request request = {.stride = stride, .address = address, .fragments = fragments};
    _Static_assert(sizeof(request.kind) == sizeof(kind), "a kind of matrix operation is passed as a word");
    memcpy(&request.kind, &kind, sizeof(kind));
    if (!sg_matrix_scratch_get(sg_thread_fiber(t)->run->slot))
        sg_rt_fault(t, SG_FAULT_OUT_OF_RESOURCES);
    warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_MATRIX, 0), (uintptr_t)&request, 0, 0, UINT32_MAX);
}

uint32_t sg_rt_redux(struct sg_thread *t, uint32_t op, uint32_t value, uint32_t mask)
{
    return (uint32_t)warp_operation(t, SG_EXCHANGE(SG_EXCHANGE_REDUCE, op), value, 0, 0, mask);
}
