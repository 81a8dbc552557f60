/*
 * warp.c - operations among the lanes of a warp: shuffle, vote, match, reduce, synchronise.
 *
 * A lane that arrives joins the group of its mask. The lane that completes the group (all lanes of the mask
 * that have not exited are in it) computes the results of all of them, makes the others ready and goes on.
 * Groups with different masks are independent of each other, so diverged parts of a warp may be at different
 * operations. Lanes of one group that came by different operations let each other go, and each operation's
 * result is that of the lanes that came by it.
 *
 * activemask asks which lanes run together, and there is no such thing here. The answer that programs rely on is made
 * up: a lane waits at the call until no other thread of the block can do anything but wait or spin, and then the
 * lanes at the same call are told of each other. Lanes on another path have gone on to wherever that path ends.
 *
 * A lane that is not in its own mask counts as if it were.
 */
#include "softgpu/exec/schedule.h"

enum kind { KIND_SYNC, KIND_SHUFFLE, KIND_VOTE, KIND_MATCH_ANY, KIND_MATCH_ALL, KIND_REDUCE, KIND_MATRIX };
#define OPERATION(kind, mode) ((uint32_t)(kind) << 8 | (mode))

#define FOR_LANES(lane, set)                                                                                 \
    for (uint32_t rest_ = (set), lane = 0; rest_ && (lane = (uint32_t)__builtin_ctz(rest_), 1);              \
         rest_ &= rest_ - 1)

static void shuffle(struct sg_fiber *const *lanes, uint32_t group, uint32_t mode)
{
    FOR_LANES(lane, group)
    {
        struct sg_fiber *fiber = lanes[lane];
        uint32_t b = fiber->b & 31, clamp = fiber->c & 31, segment = fiber->c >> 8 & 31;
        int32_t max_lane = (int32_t)((lane & segment) | (clamp & ~segment));
        int32_t source;
        bool inside;
        switch (mode) {
        case 0: /* up */
            source = (int32_t)lane - (int32_t)b;
            inside = source >= max_lane;
            break;
        case 1: /* down */
            source = (int32_t)(lane + b);
            inside = source <= max_lane;
            break;
        case 2: /* butterfly */
            source = (int32_t)(lane ^ b);
            inside = source <= max_lane;
            break;
        default: /* index */
            source = (int32_t)((lane & segment) | (b & ~segment));
            inside = source <= max_lane;
            break;
        }
        if (!inside)
            source = (int32_t)lane;
        /* what a lane outside the group would give is undefined; here it is 0 */
        uint32_t value = group >> source & 1 ? (uint32_t)lanes[source]->value : 0;
        fiber->result = value | (uint64_t)inside << 32;
    }
}

static void vote(struct sg_fiber *const *lanes, uint32_t group, uint32_t mode)
{
    uint32_t ballot = 0;
    FOR_LANES(lane, group)
    ballot |= (uint32_t)(lanes[lane]->value != 0) << lane;
    uint32_t result = mode == 0   ? ballot == group
                      : mode == 1 ? ballot != 0
                      : mode == 2 ? ballot == group || ballot == 0
                                  : ballot;
    FOR_LANES(lane, group)
    lanes[lane]->result = result;
}

static void match_any(struct sg_fiber *const *lanes, uint32_t group)
{
    uint32_t todo = group;
    while (todo) {
        uint64_t value = lanes[__builtin_ctz(todo)]->value;
        uint32_t equal = 0;
        FOR_LANES(lane, todo)
        equal |= (uint32_t)(lanes[lane]->value == value) << lane;
        FOR_LANES(lane, equal)
        lanes[lane]->result = equal;
        todo &= ~equal;
    }
}

static void match_all(struct sg_fiber *const *lanes, uint32_t group)
{
    uint64_t value = lanes[__builtin_ctz(group)]->value;
    bool equal = true;
    FOR_LANES(lane, group)
    equal &= lanes[lane]->value == value;
    FOR_LANES(lane, group)
    lanes[lane]->result = equal ? group | 1ull << 32 : 0;
}

static void reduce(struct sg_fiber *const *lanes, uint32_t group, uint32_t mode)
{
    uint32_t result = (uint32_t)lanes[__builtin_ctz(group)]->value;
    FOR_LANES(lane, group & (group - 1))
    {
        uint32_t value = (uint32_t)lanes[lane]->value;
        switch (mode) {
        case 0:
            result += value;
            break;
        case 1:
            result = (int32_t)value < (int32_t)result ? value : result;
            break;
        case 2:
            result = (int32_t)value > (int32_t)result ? value : result;
            break;
        case 3:
            result = value < result ? value : result;
            break;
        case 4:
            result = value > result ? value : result;
            break;
        case 5:
            result &= value;
            break;
        case 6:
            result |= value;
            break;
        default:
            result ^= value;
            break;
        }
    }
    FOR_LANES(lane, group)
    lanes[lane]->result = result;
}

/** Computes the results of all lanes of a complete group. */
static void resolve(struct sg_fiber *const *lanes, uint32_t group)
{
    for (uint32_t todo = group; todo;) {
        uint32_t operation = lanes[__builtin_ctz(todo)]->operation, mode = operation & 255, same = 0;
        FOR_LANES(lane, todo)
        same |= (uint32_t)(lanes[lane]->operation == operation) << lane;
        todo &= ~same;
        switch (operation >> 8) {
        case KIND_SHUFFLE:
            shuffle(lanes, same, mode);
            break;
        case KIND_VOTE:
            vote(lanes, same, mode);
            break;
        case KIND_MATCH_ANY:
            match_any(lanes, same);
            break;
        case KIND_MATCH_ALL:
            match_all(lanes, same);
            break;
        case KIND_REDUCE:
            reduce(lanes, same, mode);
            break;
        case KIND_MATRIX:
            sg_matrix_resolve(lanes, same);
            break;
        default:
            break;
        }
    }
}

/** Ends group `index` of the warp; every lane of it but `self` becomes ready. */
static void finish_group(struct sg_run *run, struct sg_warp *warp, uint32_t index, uint32_t self)
{
    uint32_t group = warp->groups[index].arrived;
    warp->groups[index] = warp->groups[--warp->n_groups];
    resolve(warp->lanes, group);
    FOR_LANES(lane, group & ~self)
    sg_ready_append(run, warp->lanes[lane]);
}

static uint64_t warp_operation(struct sg_thread *t, uint32_t operation, uint64_t value, uint32_t b,
                               uint32_t c, uint32_t mask)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_warp *warp = &run->warps[t->linear / SG_WARP_SIZE];
    uint32_t self = 1u << t->linear % SG_WARP_SIZE, i;

    mask |= self;
    fiber->operation = operation;
    fiber->value = value;
    fiber->b = b;
    fiber->c = c;
    for (i = 0; i < warp->n_groups; i++)
        if (warp->groups[i].mask == mask)
            break;
    if (i == warp->n_groups) {
        warp->groups[i] = (struct sg_warp_group){.mask = mask};
        warp->n_groups++;
    }
    warp->groups[i].arrived |= self;
    if ((mask & warp->alive & ~warp->groups[i].arrived) == 0) {
        finish_group(run, warp, i, self);
        run->progress = true;
    } else {
        sg_wait(fiber);
    }
    return fiber->result;
}

/** Gives every lane that waits in activemask the lanes of its warp that are at the same call, and lets it go on. */
static void converge(struct sg_run *run, struct sg_warp *warp)
{
    uint32_t todo = warp->converging;
    warp->converging = 0;
    run->n_converging -= (uint32_t)__builtin_popcount(todo);
    while (todo) {
        uint64_t site = warp->lanes[__builtin_ctz(todo)]->value;
        uint32_t group = 0;
        FOR_LANES(lane, todo)
        group |= (uint32_t)(warp->lanes[lane]->value == site) << lane;
        FOR_LANES(lane, group)
        {
            warp->lanes[lane]->result = group;
            sg_ready_append(run, warp->lanes[lane]);
        }
        todo &= ~group;
    }
}

void sg_warp_thread_ended(struct sg_run *run, struct sg_warp *warp)
{
    if (warp->converging && warp->converging == warp->alive)
        converge(run, warp);
    for (uint32_t i = 0; i < warp->n_groups;) {
        if ((warp->groups[i].mask & warp->alive & ~warp->groups[i].arrived) == 0)
            finish_group(run, warp, i, 0);
        else
            i++;
    }
}

void sg_rt_warp_sync(struct sg_thread *t, uint32_t mask)
{
    warp_operation(t, OPERATION(KIND_SYNC, 0), 0, 0, 0, mask);
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
    return warp_operation(t, OPERATION(KIND_SHUFFLE, mode), value, b, c, mask);
}

uint32_t sg_rt_vote(struct sg_thread *t, uint32_t mode, uint32_t predicate, uint32_t mask)
{
    return (uint32_t)warp_operation(t, OPERATION(KIND_VOTE, mode), predicate, 0, 0, mask);
}

uint32_t sg_rt_match_any(struct sg_thread *t, uint64_t value, uint32_t mask)
{
    return (uint32_t)warp_operation(t, OPERATION(KIND_MATCH_ANY, 0), value, 0, 0, mask);
}

uint64_t sg_rt_match_all(struct sg_thread *t, uint64_t value, uint32_t mask)
{
    return warp_operation(t, OPERATION(KIND_MATCH_ALL, 0), value, 0, 0, mask);
}

void sg_warp_matrix(struct sg_thread *t, const void *request)
{
    warp_operation(t, OPERATION(KIND_MATRIX, 0), (uintptr_t)request, 0, 0, UINT32_MAX);
}

uint32_t sg_rt_redux(struct sg_thread *t, uint32_t op, uint32_t value, uint32_t mask)
{
    return (uint32_t)warp_operation(t, OPERATION(KIND_REDUCE, op), value, 0, 0, mask);
}
