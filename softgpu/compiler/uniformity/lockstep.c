/*
 * lockstep.c - which loops the threads of a block had better go through together: those that all leave after
 * about as many turns and whose accesses to memory lie side by side, and those that wait for the time.
 */
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/uniformity/uniformity.h"

#define STEP_NEAR 32 /* bytes from one thread's access to the next one's that still share cache lines */

typedef struct sg_uniformity uniformity;

/* The jump back that ends a loop; its instructions are those between label and jump. */
struct loop {
    uint32_t first, jump;
};

static bool jumps_back(const struct sg_ptx_function *function, uint32_t i, struct loop *loop)
{
    const struct sg_insn *insn = &function->insns[i];
    if (insn->form->op != SG_OP_BRA)
        return false;
    *loop = (struct loop){function->labels[insn->operands[0].value].insn, i};
    return loop->first <= i;
}

static bool leaves_rarely(const uniformity *uniformities, const struct sg_insn *insn)
{
    const uniformity *guard = insn->guard == 0 ? NULL : &uniformities[insn->guard - 1];
    return guard == NULL || guard->kind == SG_UNIFORMITY_AFFINE || guard->piecewise;
}

/* Counts an access to memory for or against taking turns together. */
static void judge_access(const uniformity *uniformities, const struct sg_insn *insn, uint32_t *near,
                         uint32_t *far)
{
    enum sg_op op = insn->form->op;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    if ((op != SG_OP_LD && op != SG_OP_ST && op != SG_OP_ATOM && op != SG_OP_RED) || space == SG_MOD_PARAM ||
        space == SG_MOD_SHARED || space == SG_MOD_LOCAL)
        return;
    uniformity at =
        sg_uniformity_of(uniformities, &insn->operands[op == SG_OP_LD || op == SG_OP_ATOM ? 1 : 0]);
    bool is_near = at.kind == SG_UNIFORMITY_AFFINE && at.step >= -STEP_NEAR && at.step <= STEP_NEAR;
    ++*(is_near ? near : far);
}

/* Does a condition that divides rows decide whether a thread comes to the loop at all? */
static bool is_rarely_entered(const struct sg_ptx_function *function, const uniformity *uniformities,
                              const struct loop *loop)
{
    for (uint32_t i = 0; i < loop->first; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (insn->form->op == SG_OP_BRX)
            return true;
        if (insn->form->op == SG_OP_BRA && function->labels[insn->operands[0].value].insn > loop->first &&
            !leaves_rarely(uniformities, insn))
            return true;
    }
    return false;
}

static bool worth_it(const struct sg_ptx_function *function, const uniformity *uniformities,
                     const struct loop *loop)
{
    uint32_t near = 0, far = 0;
    if (is_rarely_entered(function, uniformities, loop))
        return false;
    for (uint32_t i = loop->first; i <= loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        struct loop inner;
        if (sg_is_meeting(insn) || insn->yields || insn->call != NULL || insn->waits_in_loop ||
            insn->form->op == SG_OP_BRX)
            return false; /* it is cut anyway, or cannot be */
        if (jumps_back(function, i, &inner) && i != loop->jump && inner.first >= loop->first && !insn->passes)
            return false;
        bool leaves = i == loop->jump || insn->form->op == SG_OP_EXIT || insn->form->op == SG_OP_RET;
        if (insn->form->op == SG_OP_BRA && i != loop->jump) {
            uint32_t to = function->labels[insn->operands[0].value].insn;
            leaves = to < loop->first || to > loop->jump;
        }
        if (leaves && !leaves_rarely(uniformities, insn))
            return false;
        judge_access(uniformities, insn, &near, &far);
    }
    return near >= far;
}

static bool has_meeting(const struct sg_ptx_function *function, const struct loop *loop)
{
    for (uint32_t i = loop->first; i <= loop->jump; i++)
        if (sg_is_meeting(&function->insns[i]) || function->insns[i].yields)
            return true;
    return false;
}

/* Does each turn of the loop begin with a point at which threads wait? */
static bool begins_by_yielding(const struct sg_ptx_function *function, const struct loop *loop)
{
    for (uint32_t i = loop->first; i < loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        enum sg_op op = insn->form->op;
        if (insn->yields && insn->guard == 0)
            return true;
        if (op == SG_OP_BRA || op == SG_OP_BRX || op == SG_OP_RET || op == SG_OP_EXIT)
            return false;
    }
    return false;
}

/*
 * Does the loop look at the time? Threads that wait for it wait at the same time if they take turns, and one
 * after the other if they do not.
 */
static bool watches_time(const struct sg_ptx_function *function, const struct loop *loop)
{
    bool watches = false;
    if (begins_by_yielding(function, loop))
        return false; /* the others have their turns meanwhile */
    for (uint32_t i = loop->first; i <= loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (insn->call != NULL || insn->waits_in_loop || insn->form->op == SG_OP_BRX)
            return false;
        for (uint32_t n = 0; n < insn->n_operands; n++)
            watches |= insn->operands[n].kind == SG_OPERAND_SPECIAL &&
                       insn->operands[n].reg >= SG_SPECIAL_CLOCK &&
                       insn->operands[n].reg <= SG_SPECIAL_GLOBALTIMER_HI;
    }
    return watches;
}

void sg_analyse_lockstep(struct sg_arena *arena, struct sg_ptx_function *kernel)
{
    struct loop loop;
    bool any = false;
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        any |= jumps_back(kernel, i, &loop);
    if (!any)
        return;
    const uniformity *uniformities = sg_uniformity_compute(arena, kernel, SG_AMONG_ROW);
    /* inner loops end before those around them */
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (jumps_back(kernel, i, &loop))
            kernel->insns[i].passes = watches_time(kernel, &loop) || worth_it(kernel, uniformities, &loop);
    /* a loop that threads go through one by one keeps no others from which they would come together */
    for (uint32_t i = kernel->n_insns; i-- > 0;) {
        if (!jumps_back(kernel, i, &loop) || kernel->insns[i].passes || has_meeting(kernel, &loop))
            continue;
        for (uint32_t n = loop.first; n < i; n++) {
            struct loop inner;
            kernel->insns[n].passes &= jumps_back(kernel, n, &inner) && watches_time(kernel, &inner);
        }
    }
}
