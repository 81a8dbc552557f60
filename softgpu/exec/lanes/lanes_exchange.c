/*
 * lanes_exchange.c - what the lanes of a warp in loop form give each other: their operands are taken from
 * columns of the context, and their results put there. Shuffles of a whole warp by one distance, of which
 * kernels make many, are copies.
 *
 * Slot's thread only, on the fiber that runs the slot's blocks.
 */
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/warp/exchange.h"

#include <string.h>

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
    const uint32_t clamp = point->b & 31, segment = point->b >> 8 & 31;
    if (segment == 0 && clamp == (point->mode == 0 ? 0 : 31)) {
        shuffle_whole(point->mode, point->a & 31, value, result, predicate);
        return;
    }
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
        bool inside;
        result[lane] = value[sg_shuffle_source(point->mode, lane, point->a, point->b, &inside)];
        predicate[lane] = inside;
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

bool sg_lanes_is_even_shuffle(const struct sg_point *point)
{
    const uint8_t even = SG_POINT_A | SG_POINT_B;
    return point->kind == SG_POINT_SHFL && (point->constant & even) == even;
}

void sg_lanes_shuffle_warp(const struct sg_loop_block *m, const struct sg_point *point, uint32_t warp)
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
static bool gather(const struct sg_run *run, uint32_t warp, uint32_t lanes, struct sg_lane_exchange *x)
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

static void scatter(struct sg_loop_block *m, uint32_t warp, uint32_t lanes, const struct sg_lane_exchange *x)
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
    struct sg_lane_exchange x;
    if (group == SG_ALL_LANES && at_one_point(run, warp) &&
        sg_lanes_is_even_shuffle(sg_lanes_point(run, warp * SG_WARP_SIZE))) {
        sg_lanes_shuffle_warp(m, sg_lanes_point(run, warp * SG_WARP_SIZE), warp);
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
    struct sg_lane_exchange x;
    if (!gather(run, warp, here, &x))
        return;
    sg_exchange_resolve_each(&x, here, lanes);
    scatter(run->loop, warp, lanes, &x);
}
