/*
 * divergence.h - the divergence tree: how the threads of a row part where they begin, as far as that is known
 * beforehand.
 *
 * A region (or a kernel in block form) often begins with tests such as `if (tid < s)` or `if (i >= n)
 * return`, whose operands grow by the same amount from each thread to the next. Where such a test changes its
 * mind can be computed, so a row is run in few pieces in each of which all threads take the same way: a loop
 * for each leaf, without masks, and without turns for threads that do nothing.
 *
 * Unlike uniformity.h this is no guess: how far a piece goes is a lower bound that always holds, overflows
 * included.
 */
#ifndef SG_COMPILER_REGIONS_DIVERGENCE_H
#define SG_COMPILER_REGIONS_DIVERGENCE_H

#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/regions/regions.h"

#define SG_LEAVES_MAX 4u  /* of the tree of one region; each becomes a loop */
#define SG_TESTS_MAX  15u /* of one kernel: there are two bits for each in a word */

/** What an instruction of a node is to the tests that follow. */
enum sg_use {
    SG_USE_NONE,    /* nothing */
    SG_USE_VALUE,   /* it computes something that they depend on … */
    SG_USE_COMPARE, /* … by comparing integers, of which one grows by `step` from thread to thread */
    SG_USE_WIDEN,   /* … of more bits than its operand, which grows by `step` */
};

struct sg_use_of {
    enum sg_use kind;
    uint8_t stepped; /* the operand that grows */
    int64_t step;
};

/**
 * Instructions one after the other, up to a test (a jump or an exit with a condition), or as far as is known.
 */
struct sg_divergence_node {
    uint32_t count;
    uint32_t *insns;
    struct sg_use_of *uses;
    uint32_t test; /* instruction; UINT32_MAX: none, the node is a leaf */
    struct sg_divergence_node *taken, *passed;
    uint32_t leaf;
};

struct sg_divergence_leaf {
    uint32_t decisions; /* of test n (from 1): bit 2n: known, bit 2n + 1: its condition holds */
    uint32_t next;      /* where all threads come to: a point, SG_POINT_END, or 0 if it differs */
    bool keeps;         /* it ends a turn, and of what can be kept once a block … */
    uint32_t written;   /* … these are written (bits) and still grow as they should */
};

struct sg_divergence {
    struct sg_divergence_node *first; /* NULL: nothing is known */
    uint32_t n_leaves;
    struct sg_divergence_leaf leaves[SG_LEAVES_MAX];
    struct sg_use_of
        *rematerialised; /* by instruction: of those that compute anew what the tests depend on */
};

/** The tests of a kernel that its divergence trees decide; their conditions take their numbers from here. */
struct sg_tests {
    uint32_t count;
    uint32_t insns[SG_TESTS_MAX];
};

/**
 * Finds the divergence tree of a region, or with point 0 of the kernel's start. `regions` of a kernel in
 * block form has nothing but `rematerialised`.
 */
void sg_divergence_find(struct sg_arena *arena, const struct sg_flow *flow, const struct sg_regions *regions,
                        uint32_t point, struct sg_tests *tests, struct sg_divergence *tree);

#endif
