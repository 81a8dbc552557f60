/*
 * warp.c - warp operations against a plain model of them: full and partial masks, diverged groups,
 * exited lanes.
 */
#include "tests/softgpu/exec/kernel_test.h"

#define FULL 0xffffffffu

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* --- shuffles --- */

/* The definition in the PTX manual, for one lane. */
static uint32_t shuffle_source(uint32_t mode, uint32_t lane, uint32_t b, uint32_t c, bool *inside)
{
    uint32_t segment = c >> 8 & 31, limit = c & 31;
    int max_lane = (int)((lane & segment) | (limit & ~segment)), min_lane = (int)(lane & segment), j;
    b &= 31;
    switch (mode) {
    case 0:
        j = (int)lane - (int)b;
        *inside = j >= max_lane;
        break;
    case 1:
        j = (int)(lane + b);
        *inside = j <= max_lane;
        break;
    case 2:
        j = (int)(lane ^ b);
        *inside = j <= max_lane;
        break;
    default:
        j = min_lane | (int)(b & ~segment);
        *inside = j <= max_lane;
        break;
    }
    return *inside ? (uint32_t)j : lane;
}

static void shuffles(struct sg_thread *t, const unsigned char *params)
{
    static const uint32_t masks[] = {FULL, 0x0000ffff, 0xffff0000, 0x55555555, 0x80000001, 0x00000100};
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t random = mix(round), mode = round % 4, width = 1u << random % 6;
        uint32_t c = (32 - width) << 8 | (mode == 0 ? 0 : 31), mask = masks[round / 4 % 6];
        uint32_t b = mode == 3 ? mix(random + lane) % 32 : mix(random) % 32; /* idx may differ by lane */
        if (!(mask >> lane & 1))
            continue;
        uint64_t got = sg_rt_shfl(t, mode, round * 1000 + t->linear, b, c, mask);
        bool inside;
        uint32_t source = shuffle_source(mode, lane, b, c, &inside);
        if (got >> 32 != inside)
            ++*wrong;
        if ((mask >> source & 1) && (uint32_t)got != round * 1000 + (t->linear & ~31u) + source)
            ++*wrong;
    }
}

/* --- votes, matches and reductions --- */

static uint32_t lane_value(uint32_t round, uint32_t lane)
{
    return round % 3 == 0 ? mix(round * 32 + lane) : round % 3 == 1 ? 5 : mix(round * 32 + lane) % 3;
}

static void collectives(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32;
    for (uint32_t round = 0; round < 120; round++) {
        uint32_t mask = round % 2 ? FULL : mix(round) | 1u << round % 32;
        if (!(mask >> lane & 1))
            continue;
        uint32_t ballot = 0, same = 0, first = lane_value(round, (uint32_t)__builtin_ctz(mask));
        bool all_same = true;
        uint32_t expected[8] = {0, first, first, first, first, FULL, 0, 0};
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t value = lane_value(round, l);
            if (!(mask >> l & 1))
                continue;
            ballot |= (uint32_t)(value % 3 == 1) << l;
            same |= (uint32_t)(value == lane_value(round, lane)) << l;
            all_same &= value == first;
            expected[0] += value;
            expected[1] = (int32_t)value < (int32_t)expected[1] ? value : expected[1];
            expected[2] = (int32_t)value > (int32_t)expected[2] ? value : expected[2];
            expected[3] = value < expected[3] ? value : expected[3];
            expected[4] = value > expected[4] ? value : expected[4];
            expected[5] &= value;
            expected[6] |= value;
            expected[7] ^= value;
        }
        uint32_t mine = lane_value(round, lane), predicate = mine % 3 == 1;
        *wrong += sg_rt_vote(t, 3, predicate, mask) != ballot;
        *wrong += sg_rt_vote(t, 0, predicate, mask) != (ballot == mask);
        *wrong += sg_rt_vote(t, 1, predicate, mask) != (ballot != 0);
        *wrong += sg_rt_vote(t, 2, predicate, mask) != (ballot == mask || ballot == 0);
        uint64_t wide = (uint64_t)mine << 32 | 1;
        *wrong += sg_rt_match_any(t, wide, mask) != same;
        *wrong += sg_rt_match_all(t, wide, mask) != (all_same ? 1ull << 32 | mask : 0);
        for (uint32_t op = 0; op < 8; op++)
            *wrong += sg_rt_redux(t, op, mine, mask) != expected[op];
        sg_rt_warp_sync(t, mask);
    }
}

/* --- diverged groups: three parts of each warp do different things at different rates --- */

static void diverged(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32;
    if (lane < 8) {
        for (uint32_t i = 0; i < 50; i++)
            *wrong += sg_rt_redux(t, 0, i + lane, 0x000000ff) != i * 8 + 28;
    } else if (lane < 20) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 9; i++)
            sum += (uint32_t)__builtin_popcount(sg_rt_vote(t, 3, (lane + i) & 1, 0x000fff00));
        *wrong += sum != 54;
    } else if (lane < 30) {
        uint64_t got = sg_rt_shfl(t, 3, lane, 25, 31, 0x3ff00000);
        *wrong += (uint32_t)got != 25;
        sg_rt_warp_sync(t, 1u << lane); /* alone */
    } else {
        sg_rt_exit(t); /* lanes 30 and 31 are gone before the warp meets again */
    }
    *wrong += sg_rt_vote(t, 3, 1, FULL) != 0x3fffffff;
    *wrong +=
        (sg_rt_activemask(t) & (0xc0000000 | 1u << lane)) != 1u << lane; /* others may have ended since */
}

/* Lanes leave one by one out of a loop of full-mask operations. */
static void leave_one_by_one(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32;
    for (uint32_t i = 0; i <= lane; i++)
        *wrong += sg_rt_vote(t, 3, 1, FULL) != FULL << i;
}

/* A last warp of 8 threads: its mask names lanes that never were. */
static void partial_warp(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lanes = t->linear < 32 ? FULL : 0xff;
    *wrong += sg_rt_activemask(t) != lanes;
    *wrong += sg_rt_vote(t, 3, 1, FULL) != lanes;
    *wrong += sg_rt_redux(t, 0, 1, FULL) != (uint32_t)__builtin_popcount(lanes);
}

/* Branches of an if meet in operations of different kinds with the same mask. */
static void mixed_kinds(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    if (t->linear % 2)
        *wrong += sg_rt_vote(t, 0, 1, FULL) != 1;
    else
        sg_rt_warp_sync(t, FULL);
}

/* A block reduction as programs write it: shuffles in the warps, shared memory, a barrier, the first warp. */
static void block_sum(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t *partial = (uint32_t *)(void *)t->block->shared, sum = t->linear;
    for (uint32_t delta = 16; delta; delta /= 2)
        sum += (uint32_t)sg_rt_shfl(t, 1, sum, delta, 31, FULL);
    if (t->linear % 32 == 0)
        partial[t->linear / 32] = sum;
    sg_rt_barrier_sync(t, 0, 0);
    if (t->linear < 32) {
        sum = partial[t->linear];
        for (uint32_t delta = 16; delta; delta /= 2)
            sum += (uint32_t)sg_rt_shfl(t, 1, sum, delta, 31, FULL);
        if (t->linear == 0)
            *wrong += sum != 1023 * 512;
    }
}

/* activemask tells the lanes that took the same path, whatever the others do meanwhile. */
static void active_lanes(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32, mask;
    if (lane % 2) {
        mask = sg_rt_activemask(t);
        *wrong += mask != 0xaaaaaaaa;
        *wrong += sg_rt_redux(t, 0, lane, mask) != 256; /* nobody else comes to this operation */
    } else if (lane % 4 == 0) {
        sg_rt_yield(t);
        mask = sg_rt_activemask(t);
        *wrong += mask != 0x11111111;
        *wrong += (uint32_t)__builtin_popcount(sg_rt_vote(t, 3, 1, mask)) != 8;
    }
    sg_rt_warp_sync(t, FULL);
    *wrong += sg_rt_activemask(t) != FULL;
    for (uint32_t i = 0; i < lane; i++) /* lanes leave the loop one by one */
        *wrong += sg_rt_activemask(t) != FULL << (i + 1);
    sg_rt_barrier_sync(t, 0, 0);
    if (lane == 7)
        sg_rt_exit(t);
    *wrong += sg_rt_activemask(t) != (FULL & ~(1u << 7));
}

/* One lane holds what another spins for while it waits in activemask. */
static void active_lane_awaited(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    volatile uint32_t *flag = (volatile uint32_t *)(void *)t->block->shared;
    if (t->linear == 0)
        *flag = 0;
    sg_rt_barrier_sync(t, 0, 0);
    if (t->linear % 32 == 3) {
        *wrong += sg_rt_activemask(t) != 8;
        if (t->linear == 35)
            *flag = 1;
    } else {
        while (!*flag)
            sg_rt_yield(t);
    }
}

static void active_block_form(struct sg_block *block, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    for (uint32_t i = 0; i < block->n_threads; i++) {
        struct sg_thread thread = {.linear = i, .block = block};
        *wrong += sg_rt_activemask(&thread) != 1u << i % 32;
    }
}

static void run_wrong(const char *name, sg_thread_code code, uint32_t threads)
{
    _Atomic uint32_t wrong = 0;
    void *pointer = (void *)&wrong;
    struct sg_launch launch = thread_launch(code, 3, threads, &pointer);
    launch.kernel_name = name;
    launch.shared_static = 4096;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    if (wrong)
        fprintf(stderr, "%s: %u wrong results\n", name, wrong);
    CHECK_EQUAL(wrong, 0);
}

/* --- masks that disagree, which GPUs take lane by lane --- */

/* Each lane names those below it; some lanes are gone. */
static void disagreeing(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t lane = t->linear % 32, last = t->linear < 32 ? 31 : 20;
    if (lane > last)
        return;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t mask = (1u << lane) - 1, ballot = 0, sum = 0, equal = 0;
        for (uint32_t l = 0; l < 32; l++) {
            if (!(mask >> l & 1) && l != lane)
                continue;
            ballot |= (uint32_t)(mix(round + l) % 3 == 1 && mask >> l & 1) << l;
            sum += lane_value(round, l);
            equal |= (uint32_t)(lane_value(round, l) == lane_value(round, lane)) << l;
        }
        uint32_t predicate = mix(round + lane) % 3 == 1, mine = lane_value(round, lane);
        *wrong += sg_rt_vote(t, 3, predicate, mask) != ballot;
        *wrong += sg_rt_vote(t, 0, predicate, mask) != (ballot == mask);
        *wrong += sg_rt_vote(t, 1, predicate, mask) != (ballot != 0);
        *wrong += sg_rt_redux(t, 0, mine, mask) != sum;
        *wrong += sg_rt_match_any(t, mine, mask) != equal;
        uint32_t below = lane ? lane - 1 : 0;
        *wrong += (uint32_t)sg_rt_shfl(t, 3, mine, below, 31, mask) != lane_value(round, below);
        sg_rt_barrier_sync(t, 0, 0);
    }
}

/* Lane 0 is in nobody's mask, nor in its own. */
static void outsider(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    *wrong += sg_rt_vote(t, 3, 1, FULL - 1) != FULL - 1;
    sg_rt_barrier_sync(t, 0, 0);
}

/* --- lanes that never meet --- */

static void different_masks(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    sg_rt_warp_sync(t, t->linear < 16 ? FULL : 0xffff0000);
    if (t->linear >= 16)
        sg_rt_barrier_sync(t, 0, 0);
}

int main(void)
{
    run_wrong("shuffles", shuffles, 96);
    run_wrong("collectives", collectives, 64);
    run_wrong("diverged", diverged, 128);
    run_wrong("leave_one_by_one", leave_one_by_one, 64);
    run_wrong("partial_warp", partial_warp, 40);
    run_wrong("active_lanes", active_lanes, 96);
    run_wrong("active_lane_awaited", active_lane_awaited, 64);
    _Atomic uint32_t wrong = 0;
    CHECK_EQUAL(run_blocks(active_block_form, 1, 70, (void *)&wrong), SG_FAULT_NONE);
    CHECK_EQUAL(wrong, 0);
    run_wrong("mixed_kinds", mixed_kinds, 64);
    run_wrong("block_sum", block_sum, 1024);
    run_wrong("disagreeing", disagreeing, 64);
    run_wrong("outsider", outsider, 32);
    CHECK_EQUAL(run_threads(different_masks, 1, 32, NULL), SG_FAULT_DEADLOCK);
    run_wrong("shuffles", shuffles, 96);
    return TEST_RESULT();
}
