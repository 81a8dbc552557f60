/*
 * flow.h - the control flow graph of a function: basic blocks, numbered in the order of the text.
 */
#ifndef SG_COMPILER_IR_FLOW_H
#define SG_COMPILER_IR_FLOW_H

#include "softgpu/compiler/ir/ir.h"

struct sg_flow {
    const struct sg_ptx_function *function;
    uint32_t *block_of; /* instruction → block */
    uint32_t *first;    /* block → first instruction; one more at the end */
    uint32_t n_blocks;
};

/** Lives as long as the arena and the function. */
void sg_flow_build(struct sg_arena *arena, const struct sg_ptx_function *function, struct sg_flow *flow);
/** The block that a label names; UINT32_MAX: the end of the function. */
uint32_t sg_flow_label(const struct sg_flow *flow, uint64_t label);
/** The `index`th successor of a block, or UINT32_MAX for the end of the function; false past the last. */
bool sg_flow_successor(const struct sg_flow *flow, uint32_t block, uint32_t index, uint32_t *to);

/** Walks over blocks, each of which is entered once a walk. */
struct sg_walk {
    const struct sg_flow *flow;
    uint32_t *seen, *stack; /* by block: the last walk that has seen it; blocks still to enter */
    uint32_t n_stack, number;
};
/** For walks over `flow`, one after another. */
void sg_walk_init(struct sg_arena *arena, const struct sg_flow *flow, struct sg_walk *walk);
/** A new walk; nothing is seen, or to be entered. */
void sg_walk_begin(struct sg_walk *walk);
/** The block is to be entered, unless it has been seen. */
void sg_walk_to(struct sg_walk *walk, uint32_t block);
/** So are its successors; true if the function's end is one of them. */
bool sg_walk_on(struct sg_walk *walk, uint32_t block);
/** The next block and its first instruction; false: there is none. */
bool sg_walk_next(struct sg_walk *walk, uint32_t *block, uint32_t *insn);

#endif
