/*
 * lanes_group.c - what lanes of a warp do together after they have parted: those that name the same mask wait
 * for each other, with the same rules as for fibers (warp.c), and activemask tells who is at the same point.
 *
 * A group is complete when all of its mask that live have come; then they have each other's values and are
 * ready. Lanes whose masks can never agree go on by what each names. Slot's thread only.
 */
#include "softgpu/exec/lanes/lanes_detached.h"

/** Those of `lanes` that are at the same point as `lane`. */
static uint32_t at_point_of(const struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t lane)
{
    const struct sg_point *point = sg_lanes_point(run, warp * SG_WARP_SIZE + lane);
    uint32_t same = 0;
    SG_FOR_LANES(other, lanes)
    same |= (uint32_t)(sg_lanes_point(run, warp * SG_WARP_SIZE + other) == point) << other;
    return same;
}

static void finish_group(struct sg_run *run, uint32_t warp, uint32_t index)
{
    struct sg_lanes_warp *w = &run->loop->warps[warp];
    uint32_t group = w->groups[index].arrived, mask = w->groups[index].mask;
    w->groups[index] = w->groups[--w->n_groups];
    SG_FOR_LANES(lane, group & ~mask)
    sg_lanes_exchange_each(run, warp, at_point_of(run, warp, group, lane), 1u << lane);
    sg_lanes_exchange(run, warp, group & mask);
    sg_lanes_make_ready(run->loop, warp, group);
}

/**
 * All that live of the mask are there, and one of them at least: who is not in its own mask does not end a
 * group.
 */
static bool is_complete(const struct sg_lanes_warp *w, const struct sg_warp_group *group)
{
    return group->arrived & group->mask && (group->mask & w->alive & ~group->arrived) == 0;
}

/** `lanes` come to an operation of the lanes in `mask`. */
static void join(struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t mask)
{
    struct sg_lanes_warp *w = &run->loop->warps[warp];
    uint32_t i = 0;
    while (i < w->n_groups && w->groups[i].mask != mask)
        i++;
    if (i == w->n_groups)
        w->groups[w->n_groups++] = (struct sg_warp_group){.mask = mask};
    w->groups[i].arrived |= lanes;
    if (is_complete(w, &w->groups[i]))
        finish_group(run, warp, i);
}

static uint32_t mask_of(const struct sg_run *run, uint32_t warp, uint32_t lane)
{
    uint32_t thread = warp * SG_WARP_SIZE + lane;
    const struct sg_point *point = sg_lanes_point(run, thread);
    return sg_lanes_operand(run->loop, point, SG_POINT_MASK, point->mask, SG_LANES_MASK, thread);
}

/** The lanes among `lanes`, all at one point, that name `mask`. */
static uint32_t that_name(const struct sg_run *run, uint32_t warp, uint32_t lanes, uint32_t mask)
{
    uint32_t same = 0;
    SG_FOR_LANES(lane, lanes)
    same |= (uint32_t)(mask_of(run, warp, lane) == mask) << lane;
    return same;
}

/**
 * Lanes `same` name `others`, which are at the same point with other masks. May those come again with this one?
 * Then they do first what their own masks say, as in a loop that they have not left yet. They cannot where
 * a lane names the same mask each time, or if they wait for `same` themselves.
 */
static bool may_come_again(const struct sg_run *run, uint32_t warp, uint32_t same, uint32_t others)
{
    if (sg_lanes_point(run, warp * SG_WARP_SIZE + (uint32_t)__builtin_ctz(same))->constant & SG_POINT_STEADY)
        return false;
    SG_FOR_LANES(lane, others)
    {
        uint32_t mask = mask_of(run, warp, lane);
        if (mask & same || !(mask >> lane & 1))
            return false;
    }
    return true;
}

void sg_lanes_join(struct sg_run *run, uint32_t warp, uint32_t lanes)
{
    for (uint32_t todo = lanes; todo;) {
        uint32_t mask = mask_of(run, warp, (uint32_t)__builtin_ctz(todo));
        uint32_t same = that_name(run, warp, todo, mask), others = lanes & mask & ~same;
        todo &= ~same;
        bool wait = !others || may_come_again(run, warp, same, others);
        uint32_t disagree = wait ? same & ~mask : same;
        if (disagree && (mask & run->loop->warps[warp].alive & ~lanes) == 0) {
            sg_lanes_exchange_each(run, warp, lanes, disagree);
            sg_lanes_make_ready(run->loop, warp, disagree);
            same &= ~disagree;
        }
        if (same)
            join(run, warp, same, mask);
    }
}

void sg_lanes_converge(struct sg_run *run, uint32_t warp)
{
    struct sg_loop_block *m = run->loop;
    const uint16_t *points = (const uint16_t *)sg_lanes_column(m, SG_LANES_POINT) + warp * SG_WARP_SIZE;
    uint32_t todo = m->warps[warp].converging;
    m->n_converging -= (uint32_t)__builtin_popcount(todo);
    m->warps[warp].converging = 0;
    while (todo) {
        uint16_t point = points[__builtin_ctz(todo)];
        uint32_t group = 0;
        SG_FOR_LANES(lane, todo)
        group |= (uint32_t)(points[lane] == point) << lane;
        SG_FOR_LANES(lane, group)
        sg_lanes_set_result(m, warp * SG_WARP_SIZE + lane, group);
        sg_lanes_make_ready(m, warp, group);
        todo &= ~group;
    }
}

void sg_lanes_rescue(struct sg_run *run, uint32_t warp)
{
    struct sg_lanes_warp *w = &run->loop->warps[warp];
    uint32_t waiting = 0, rescued = 0;
    for (uint32_t i = 0; i < w->n_groups; i++)
        waiting |= w->groups[i].arrived;
    SG_FOR_LANES(lane, waiting)
    {
        uint32_t here = at_point_of(run, warp, waiting, lane);
        if (mask_of(run, warp, lane) & w->alive & ~here)
            continue;
        sg_lanes_exchange_each(run, warp, here, 1u << lane);
        rescued |= 1u << lane;
    }
    for (uint32_t i = 0; i < w->n_groups;) {
        w->groups[i].arrived &= ~rescued;
        if (w->groups[i].arrived)
            i++;
        else
            w->groups[i] = w->groups[--w->n_groups];
    }
    sg_lanes_make_ready(run->loop, warp, rescued);
}

void sg_lanes_groups_after_end(struct sg_run *run, uint32_t warp)
{
    struct sg_lanes_warp *w = &run->loop->warps[warp];
    if (w->converging && w->converging == w->alive)
        sg_lanes_converge(run, warp);
    for (uint32_t i = 0; i < w->n_groups;) {
        if (is_complete(w, &w->groups[i]))
            finish_group(run, warp, i);
        else
            i++;
    }
}
