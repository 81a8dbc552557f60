/*
 * rematerialise.c - registers that need not be kept across points, because what they hold follows from the
 * thread's place and the kernel's parameters and is computed anew with few instructions.
 */
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/regions/matrices.h"
#include "softgpu/compiler/regions/regions.h"

#define REMATERIALISE_COST_MAX 24u /* instructions to compute one register anew */
#define REMAKE_DEPTH           24u

struct remaking {
    const struct sg_ptx_function *function;
    uint32_t *made_by; /* register → 1 + the only instruction that writes it; UINT32_MAX: several */
    uint8_t *cost;     /* register → 1 + cost; 255: cannot be; 0: not known yet */
    uint32_t insn;
};

static void note_writer(void *user, uint32_t reg, bool written, bool maybe)
{
    struct remaking *r = user;
    if (written)
        r->made_by[reg] = r->made_by[reg] == 0 && !maybe ? r->insn + 1 : UINT32_MAX;
}

/* The engine takes what it multiplies from columns. */
static void keep_in_column(void *user, uint32_t reg, bool written, bool maybe)
{
    uint8_t *cost = user;
    (void)written;
    (void)maybe;
    cost[reg] = 255;
}

/* Its result follows from its operands, and it is cheap and does no harm wherever it is computed. */
static bool is_pure(const struct sg_ptx_function *function, const struct sg_insn *insn)
{
    if (insn->guard != 0 || SG_MOD(insn, SG_GROUP_CC) != 0)
        return false;
    if (insn->form->op != SG_OP_LD)
        return sg_is_arithmetic(insn->form->op);
    return sg_is_own_param(function, &insn->operands[1]);
}

static bool is_constant_special(const struct sg_operand *operand)
{
    return operand->reg < SG_SPECIAL_CLOCK || operand->reg > SG_SPECIAL_GLOBALTIMER_HI;
}

static uint32_t cost_of(struct remaking *r, uint32_t reg, uint32_t depth);

static uint32_t cost_of_operand(struct remaking *r, const struct sg_operand *operand, uint32_t depth)
{
    uint32_t cost = 0;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return cost_of(r, operand->reg, depth + 1);
    case SG_OPERAND_SPECIAL:
        return is_constant_special(operand) ? 0 : 255;
    case SG_OPERAND_VECTOR:
        for (uint32_t i = 0; i < operand->count; i++)
            cost += cost_of_operand(r, &operand->items[i], depth);
        return cost;
    default:
        return 0;
    }
}

static uint32_t cost_of(struct remaking *r, uint32_t reg, uint32_t depth)
{
    if (r->cost[reg] != 0)
        return r->cost[reg] == 255 ? 255 : r->cost[reg] - 1u;
    uint32_t by = r->made_by[reg], cost = 255;
    r->cost[reg] = 255; /* also for what depends on itself */
    if (by != 0 && by != UINT32_MAX && depth < REMAKE_DEPTH) {
        const struct sg_insn *insn = &r->function->insns[by - 1];
        if (is_pure(r->function, insn) && insn->operands[0].kind == SG_OPERAND_REG) {
            enum sg_op op = insn->form->op;
            cost = op == SG_OP_LD || (op == SG_OP_MOV && insn->operands[1].kind != SG_OPERAND_REG) ? 0 : 1;
            for (uint32_t i = 1; i < insn->n_operands && op != SG_OP_LD; i++)
                cost += cost_of_operand(r, &insn->operands[i], depth);
        }
    }
    if (cost <= REMATERIALISE_COST_MAX)
        r->cost[reg] = (uint8_t)(cost + 1);
    return cost <= REMATERIALISE_COST_MAX ? cost : 255;
}

uint32_t *sg_rematerialise_find(struct sg_arena *arena, const struct sg_ptx_function *function)
{
    struct remaking r = {.function = function,
                         .made_by = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1),
                         .cost = SG_NEW_ARRAY(arena, uint8_t, function->n_regs + 1)};
    uint32_t *rematerialised = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1);
    for (r.insn = 0; r.insn < function->n_insns; r.insn++)
        sg_visit_registers(&function->insns[r.insn], note_writer, &r);
    for (uint32_t i = 0; i < function->n_insns; i++)
        if (sg_is_matrix(&function->insns[i]))
            sg_matrix_visit(&function->insns[i], keep_in_column, r.cost);
    for (uint32_t reg = 0; reg < function->n_regs; reg++)
        if (cost_of(&r, reg, 0) != 255)
            rematerialised[reg] = r.made_by[reg];
    return rematerialised;
}
