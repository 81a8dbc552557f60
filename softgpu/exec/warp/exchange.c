/*
 * exchange.c - what the lanes of a warp get of each other: shuffle, vote, match, reduce. Lanes of one group
 * that came by different operations are told apart, and each operation's result is that of the lanes that
 * came by it.
 */
#include "softgpu/exec/warp/exchange.h"
#include "softgpu/exec/matrix/matrix.h"

static void shuffle(struct sg_lane_exchange *x, uint32_t group, uint32_t mode)
{
    SG_FOR_LANES(lane, group)
    {
        bool inside;
        const uint32_t source = sg_shuffle_source(mode, lane, x->b[lane], x->c[lane], &inside);
        /* what a lane outside the group would give is undefined; here it is 0 */
        const uint32_t value = group >> source & 1 ? (uint32_t)x->value[source] : 0;
        x->result[lane] = value | (uint64_t)inside << 32;
    }
}

/** What the lanes `of` vote. */
static uint32_t result_of_vote(const struct sg_lane_exchange *x, uint32_t of, uint32_t mode)
{
    uint32_t ballot = 0;
    SG_FOR_LANES(lane, of)
    ballot |= (uint32_t)(x->value[lane] != 0) << lane;
    return mode == 0   ? ballot == of
           : mode == 1 ? ballot != 0
           : mode == 2 ? ballot == of || ballot == 0
                       : ballot;
}

static void vote(struct sg_lane_exchange *x, uint32_t group, uint32_t mode)
{
    uint32_t result = result_of_vote(x, group, mode);
    SG_FOR_LANES(lane, group)
    x->result[lane] = result;
}

static void match_any(struct sg_lane_exchange *x, uint32_t group)
{
    uint32_t todo = group;
    while (todo) {
        uint64_t value = x->value[__builtin_ctz(todo)];
        uint32_t equal = 0;
        SG_FOR_LANES(lane, todo)
        equal |= (uint32_t)(x->value[lane] == value) << lane;
        SG_FOR_LANES(lane, equal)
        x->result[lane] = equal;
        todo &= ~equal;
    }
}

static void match_all(struct sg_lane_exchange *x, uint32_t group)
{
    uint64_t value = x->value[__builtin_ctz(group)];
    bool equal = true;
    SG_FOR_LANES(lane, group)
    equal &= x->value[lane] == value;
    SG_FOR_LANES(lane, group)
    x->result[lane] = equal ? group | 1ull << 32 : 0;
}

static void reduce(struct sg_lane_exchange *x, uint32_t group, uint32_t mode)
{
    uint32_t result = (uint32_t)x->value[__builtin_ctz(group)];
    SG_FOR_LANES(lane, group & (group - 1))
    {
        uint32_t value = (uint32_t)x->value[lane];
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
    SG_FOR_LANES(lane, group)
    x->result[lane] = result;
}

void sg_exchange_resolve(struct sg_lane_exchange *x, uint32_t group)
{
    for (uint32_t todo = group; todo;) {
        uint32_t operation = x->operation[__builtin_ctz(todo)], mode = operation & 255, same = 0;
        SG_FOR_LANES(lane, todo)
        same |= (uint32_t)(x->operation[lane] == operation) << lane;
        todo &= ~same;
        switch (operation >> 8) {
        case SG_EXCHANGE_SHUFFLE:
            shuffle(x, same, mode);
            break;
        case SG_EXCHANGE_VOTE:
            vote(x, same, mode);
            break;
        case SG_EXCHANGE_MATCH_ANY:
            match_any(x, same);
            break;
        case SG_EXCHANGE_MATCH_ALL:
            match_all(x, same);
            break;
        case SG_EXCHANGE_REDUCE:
            reduce(x, same, mode);
            break;
        case SG_EXCHANGE_MATRIX:
            sg_matrix_resolve(x, same);
            break;
        default:
            break;
        }
    }
}

void sg_exchange_resolve_each(struct sg_lane_exchange *x, uint32_t here, uint32_t lanes)
{
    SG_FOR_LANES(lane, lanes)
    {
        uint32_t of = x->mask[lane] & here;
        if (x->operation[lane] >> 8 == SG_EXCHANGE_VOTE) {
            x->result[lane] = result_of_vote(x, of, x->operation[lane] & 255);
        } else {
            struct sg_lane_exchange own = *x;
            sg_exchange_resolve(&own, of | 1u << lane);
            x->result[lane] = own.result[lane];
        }
    }
}
