/*
 * points.c - where a kernel in loop form is cut, and whether it can be.
 */
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/regions/matrices.h"
#include "softgpu/compiler/regions/regions.h"

#define POINTS_MAX  400u
#define LOCAL_MAX   4096u /* bytes of .local variables a thread */
#define GROWTH_MAX  4u    /* how often the regions may hold an instruction, on average … */
#define GROWTH_FREE 4000u /* … beyond so many instructions */

/*
 * A thread that waits for what another writes comes to a point on its way back to where it looks (grid
 * barriers, locks), or before it looks (barriers in shared memory), so that the others go on meanwhile. In
 * such kernels fences are points, too: programs rely on all lanes having stored when one of them sets a flag
 * behind the fence.
 */
void sg_points_mark_yields(struct sg_ptx_function *kernel)
{
    bool any = false;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        struct sg_insn *insn = &kernel->insns[i];
        enum sg_op op = insn->form->op;
        insn->yields =
            op == SG_OP_MBARRIER_WAIT || op == SG_OP_NANOSLEEP || (op == SG_OP_BRA && insn->waits_in_loop);
        insn->aligns |= op == SG_OP_MBARRIER_WAIT;
        any |= insn->yields;
    }
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        kernel->insns[i].aligns |= any && kernel->insns[i].form->op == SG_OP_FENCE;
}

/* What needs a stack of the thread's own, or lets others run at places that are no points. */
static bool needs_fiber(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_ALLOCA:
    case SG_OP_STACKSAVE:
    case SG_OP_STACKRESTORE:
        return true;
    default:
        return (insn->waits_in_loop && !insn->yields) || (sg_is_matrix(insn) && !sg_matrix_in_columns(insn));
    }
}

/* How many instructions the region holds that begins at an instruction. */
static uint32_t reach_of(struct sg_walk *walk, uint32_t insn)
{
    uint32_t count = 0, block = walk->flow->block_of[insn];
    sg_walk_begin(walk);
    do {
        uint32_t end = walk->flow->first[block + 1];
        while (insn < end && (count == 0 || !sg_is_point(&walk->flow->function->insns[insn]))) {
            insn++;
            count++;
        }
        if (insn == end)
            sg_walk_on(walk, block);
    } while (sg_walk_next(walk, &block, &insn));
    return count;
}

/* Can a thread come to the block again? */
static bool is_in_cycle(struct sg_walk *walk, uint32_t block)
{
    uint32_t at, insn;
    sg_walk_begin(walk);
    sg_walk_on(walk, block);
    while (sg_walk_next(walk, &at, &insn)) {
        if (at == block)
            return true;
        sg_walk_on(walk, at);
    }
    return false;
}

/* Is it an operation whose lanes name those that take part? bar.warp.sync may be the partner of another one elsewhere. */
static bool names_mask(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_SHFL:
    case SG_OP_VOTE:
    case SG_OP_MATCH:
    case SG_OP_REDUX:
    case SG_OP_ELECT:
        return true;
    default:
        return false;
    }
}

void sg_points_find_steady(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions)
{
    const struct sg_ptx_function *kernel = flow->function;
    struct sg_walk walk;
    sg_walk_init(arena, flow, &walk);
    regions->steady = SG_NEW_ARRAY(arena, uint8_t, regions->n_points + 1);
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        const struct sg_insn *insn = &kernel->insns[i];
        const struct sg_operand *mask = &insn->operands[insn->n_operands - (insn->n_operands != 0)];
        if (regions->points[i] == 0 || !names_mask(insn))
            continue;
        bool follows = mask->kind != SG_OPERAND_REG || regions->rematerialised[mask->reg] != 0;
        regions->steady[regions->points[i]] = follows || !is_in_cycle(&walk, flow->block_of[i]);
    }
}

bool sg_regions_possible(struct sg_arena *arena, const struct sg_reach *reach)
{
    const struct sg_ptx_function *kernel = reach->functions[0];
    uint32_t n_points = 0, local = 0;
    bool asks_space = false;
    for (uint32_t f = 0; f < reach->count; f++) {
        const struct sg_ptx_function *function = reach->functions[f];
        if (f > 0 && (function->waits || function->exits))
            return false;
        for (uint32_t i = 0; i < function->n_insns; i++)
            asks_space |= function->insns[i].form->op == SG_OP_ISSPACEP;
    }
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        if (needs_fiber(&kernel->insns[i]))
            return false;
        n_points += sg_is_point(&kernel->insns[i]);
    }
    for (uint32_t i = 0; i < kernel->n_vars; i++)
        if (kernel->vars[i]->space == SG_SPACE_LOCAL)
            local += (uint32_t)(kernel->vars[i]->size < LOCAL_MAX ? kernel->vars[i]->size : LOCAL_MAX) + 16;
    if (n_points == 0 || n_points > POINTS_MAX || local > LOCAL_MAX)
        return false;
    if (local > 0 && asks_space) /* what is local is told by its nearness to the stack */
        return false;
    struct sg_flow flow = {0};
    sg_flow_build(arena, kernel, &flow);
    struct sg_walk walk;
    sg_walk_init(arena, &flow, &walk);
    uint64_t total = reach_of(&walk, 0);
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (sg_is_point(&kernel->insns[i]))
            total += reach_of(&walk, i);
    return total <= (uint64_t)kernel->n_insns * GROWTH_MAX + GROWTH_FREE;
}
