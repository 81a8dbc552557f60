/*
 * flow.c - the basic blocks of a function and the ways from one to the next.
 */
#include "softgpu/compiler/ir/flow.h"

static bool ends_block(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return op == SG_OP_BRA || op == SG_OP_BRX || op == SG_OP_RET || op == SG_OP_EXIT || op == SG_OP_TRAP;
}

void sg_flow_build(struct sg_arena *arena, const struct sg_ptx_function *function, struct sg_flow *flow)
{
    uint32_t n = function->n_insns;
    uint8_t *leader = sg_arena_alloc(arena, n + 1);
    flow->function = function;
    flow->block_of = SG_NEW_ARRAY(arena, uint32_t, n + 1);
    flow->first = SG_NEW_ARRAY(arena, uint32_t, n + 2);
    leader[0] = 1;
    for (uint32_t i = 0; i < function->n_labels; i++)
        leader[function->labels[i].insn] = 1;
    for (uint32_t i = 0; i < n; i++)
        if (ends_block(&function->insns[i]))
            leader[i + 1] = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (leader[i])
            flow->first[flow->n_blocks++] = i;
        flow->block_of[i] = flow->n_blocks - 1;
    }
    flow->first[flow->n_blocks] = n;
}

uint32_t sg_flow_label(const struct sg_flow *flow, uint64_t label)
{
    uint32_t insn = flow->function->labels[label].insn;
    return insn < flow->function->n_insns ? flow->block_of[insn] : UINT32_MAX;
}

bool sg_flow_successor(const struct sg_flow *flow, uint32_t block, uint32_t index, uint32_t *to)
{
    const struct sg_insn *last = &flow->function->insns[flow->first[block + 1] - 1];
    enum sg_op op = last->form->op;
    bool falls = !ends_block(last) || last->guard != 0;
    *to = UINT32_MAX;
    if (falls) {
        if (index == 0) {
            *to = block + 1 < flow->n_blocks ? block + 1 : UINT32_MAX;
            return true;
        }
        index--;
    }
    if (op == SG_OP_BRA && index == 0) {
        *to = sg_flow_label(flow, last->operands[0].value);
        return true;
    }
    if (op == SG_OP_BRX) {
        const struct sg_table *table = &flow->function->tables[last->operands[1].value];
        if (index < table->count) {
            *to = sg_flow_label(flow, table->labels[index]);
            return true;
        }
    }
    return false;
}

void sg_walk_init(struct sg_arena *arena, const struct sg_flow *flow, struct sg_walk *walk)
{
    *walk = (struct sg_walk){.flow = flow};
    walk->seen = SG_NEW_ARRAY(arena, uint32_t, 2 * (size_t)flow->n_blocks);
    walk->stack = walk->seen + flow->n_blocks;
}

void sg_walk_begin(struct sg_walk *walk)
{
    walk->number++;
    walk->n_stack = 0;
}

void sg_walk_to(struct sg_walk *walk, uint32_t block)
{
    if (walk->seen[block] == walk->number)
        return;
    walk->seen[block] = walk->number;
    walk->stack[walk->n_stack++] = block;
}

bool sg_walk_on(struct sg_walk *walk, uint32_t block)
{
    bool ends = false;
    uint32_t to;
    for (uint32_t i = 0; sg_flow_successor(walk->flow, block, i, &to); i++) {
        ends |= to == UINT32_MAX;
        if (to != UINT32_MAX)
            sg_walk_to(walk, to);
    }
    return ends;
}

bool sg_walk_next(struct sg_walk *walk, uint32_t *block, uint32_t *insn)
{
    if (walk->n_stack == 0)
        return false;
    *block = walk->stack[--walk->n_stack];
    *insn = walk->flow->first[*block];
    return true;
}
