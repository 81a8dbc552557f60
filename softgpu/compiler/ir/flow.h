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

void sg_flow_build(struct sg_arena *arena, const struct sg_ptx_function *function, struct sg_flow *flow);
/** The block that a label names; UINT32_MAX: the end of the function. */
uint32_t sg_flow_label(const struct sg_flow *flow, uint64_t label);
/** The `index`th successor of a block, or UINT32_MAX for the end of the function; false past the last. */
bool sg_flow_successor(const struct sg_flow *flow, uint32_t block, uint32_t index, uint32_t *to);

#endif
