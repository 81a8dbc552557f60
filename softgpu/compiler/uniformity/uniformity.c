/*
 * uniformity.c - see uniformity.h. The uniformity of registers is found by going over the instructions until
 * nothing changes any more; a register with several writers has a uniformity if they all agree on it.
 */
#include "softgpu/compiler/uniformity/uniformity.h"
#include "softgpu/compiler/ir/traits.h"

typedef struct sg_uniformity uniformity;

static const uniformity divergent = {.kind = SG_UNIFORMITY_DIVERGENT},
                        uniform = {.kind = SG_UNIFORMITY_AFFINE};

static uniformity affine(int64_t step)
{
    return (uniformity){.kind = SG_UNIFORMITY_AFFINE, .step = step};
}

static bool is_uniform(uniformity c)
{
    return c.kind == SG_UNIFORMITY_AFFINE && c.step == 0;
}

static uniformity of_special(const struct sg_operand *operand)
{
    switch (operand->reg) {
    case SG_SPECIAL_TID:
        return affine(operand->component == 0 ? 1 : 0);
    case SG_SPECIAL_LANEID:
    case SG_SPECIAL_WARPID:
    case SG_SPECIAL_LANEMASK_EQ:
    case SG_SPECIAL_LANEMASK_LE:
    case SG_SPECIAL_LANEMASK_LT:
    case SG_SPECIAL_LANEMASK_GE:
    case SG_SPECIAL_LANEMASK_GT:
    case SG_SPECIAL_CLOCK:
    case SG_SPECIAL_CLOCK_HI:
    case SG_SPECIAL_CLOCK64:
    case SG_SPECIAL_GLOBALTIMER:
    case SG_SPECIAL_GLOBALTIMER_LO:
    case SG_SPECIAL_GLOBALTIMER_HI:
        return divergent;
    default:
        return uniform;
    }
}

struct sg_uniformity sg_uniformity_of(const struct sg_uniformity *uniformities,
                                      const struct sg_operand *operand)
{
    uniformity all = uniform;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return uniformities[operand->reg];
    case SG_OPERAND_SPECIAL:
        return of_special(operand);
    case SG_OPERAND_VAR:
        return operand->var->space == SG_SPACE_LOCAL ? divergent : uniform;
    case SG_OPERAND_VECTOR:
        for (uint32_t i = 0; i < operand->count; i++) {
            uniformity item = sg_uniformity_of(uniformities, &operand->items[i]);
            if (item.kind == SG_UNIFORMITY_UNKNOWN || !is_uniform(item))
                all = item.kind == SG_UNIFORMITY_UNKNOWN ? item : divergent;
        }
        return all;
    default:
        return uniform;
    }
}

static uniformity product(const struct sg_operand *a, uniformity ca, const struct sg_operand *b,
                          uniformity cb)
{
    if (is_uniform(ca) && is_uniform(cb))
        return uniform;
    if (a->kind == SG_OPERAND_INTEGER && cb.kind == SG_UNIFORMITY_AFFINE)
        return affine((int64_t)((uint64_t)cb.step * a->value));
    if (b->kind == SG_OPERAND_INTEGER && ca.kind == SG_UNIFORMITY_AFFINE)
        return affine((int64_t)((uint64_t)ca.step * b->value));
    return divergent;
}

static uniformity sum(uniformity a, uniformity b, int sign)
{
    if (a.kind != SG_UNIFORMITY_AFFINE || b.kind != SG_UNIFORMITY_AFFINE)
        return divergent;
    return affine((int64_t)((uint64_t)a.step + (uint64_t)sign * (uint64_t)b.step));
}

static bool is_jump_register_op(enum sg_op op)
{
    return op == SG_OP_SETP || op == SG_OP_AND || op == SG_OP_OR || op == SG_OP_XOR || op == SG_OP_NOT;
}

/* Threads differ in it at few places of a row, if at all. */
static bool is_coarse(uniformity c)
{
    return is_uniform(c) || c.piecewise;
}

/* Affine values in steps most likely larger than a warp: quotients of a grid's threads, numbers of warps. */
static bool makes_coarse(const struct sg_insn *insn, const uniformity *in)
{
    const struct sg_operand *by = &insn->operands[2];
    if ((in[1].kind != SG_UNIFORMITY_AFFINE && !in[1].piecewise) || !is_uniform(in[2]))
        return false;
    if (insn->form->op == SG_OP_DIV)
        return by->kind != SG_OPERAND_INTEGER || by->value >= 32;
    return insn->form->op == SG_OP_SHR && by->kind == SG_OPERAND_INTEGER && by->value >= 5;
}

/* Of what some operations compute of operands like `in`; false: nothing more than of any operation. */
static bool of_operation(const struct sg_insn *insn, const uniformity *in, bool all_uniform,
                         uniformity *result)
{
    const struct sg_operand *operands = insn->operands;
    bool high = SG_MOD(insn, SG_GROUP_WIDE) == SG_HI && !all_uniform;
    enum sg_op op = insn->form->op;
    *result = divergent;
    switch (op) {
    case SG_OP_MOV:
    case SG_OP_CVTA:
        *result = in[1];
        return true;
    case SG_OP_CVT:
        if (all_uniform)
            *result = uniform;
        else if (!sg_type_is_float((enum sg_type)insn->types[0]) &&
                 !sg_type_is_float((enum sg_type)insn->types[1]))
            *result = in[1];
        return true;
    case SG_OP_ADD:
    case SG_OP_SUB:
        *result = sum(in[1], in[2], op == SG_OP_ADD ? 1 : -1);
        return true;
    case SG_OP_MUL:
    case SG_OP_MAD:
        if (!high)
            *result = product(&operands[1], in[1], &operands[2], in[2]);
        if (!high && op == SG_OP_MAD)
            *result = sum(*result, in[3], 1);
        return true;
    case SG_OP_NEG:
        *result = sum(uniform, in[1], -1);
        return true;
    case SG_OP_SHL:
        if (operands[2].kind != SG_OPERAND_INTEGER || operands[2].value >= 63 ||
            in[1].kind != SG_UNIFORMITY_AFFINE)
            return false;
        *result = affine((int64_t)((uint64_t)in[1].step << operands[2].value));
        return true;
    case SG_OP_LD:
        if (all_uniform && SG_MOD(insn, SG_GROUP_SPACE) != SG_MOD_LOCAL)
            *result = uniform;
        return true;
    case SG_OP_ATOM:
    case SG_OP_SHFL:
    case SG_OP_VOTE:
    case SG_OP_MATCH:
    case SG_OP_REDUX:
    case SG_OP_ACTIVEMASK:
    case SG_OP_ELECT:
        return true;
    default:
        return false;
    }
}

/* The uniformity of what the instruction writes. */
static uniformity of_result(const uniformity *uniformities, const struct sg_insn *insn)
{
    uniformity in[SG_INSN_OPERANDS] = {{0}};
    bool all_uniform = true, all_piecewise = true, all_coarse = true;
    enum sg_op op = insn->form->op;
    if (insn->call != NULL || insn->form->n_operands == 0 || sg_is_matrix(insn))
        return divergent;
    for (uint32_t i = 0; i < insn->n_operands; i++) {
        if ((insn->form->operand[i].flags & SG_OPF_DEST) != 0)
            continue;
        in[i] = sg_uniformity_of(uniformities, &insn->operands[i]);
        if (in[i].kind == SG_UNIFORMITY_UNKNOWN)
            return in[i];
        all_uniform &= is_uniform(in[i]);
        all_piecewise &= in[i].kind == SG_UNIFORMITY_AFFINE || in[i].piecewise;
        all_coarse &= is_coarse(in[i]);
    }
    if (!all_uniform && ((all_coarse && (sg_is_arithmetic(op) || op == SG_OP_DIV || op == SG_OP_REM)) ||
                         makes_coarse(insn, in)))
        return (uniformity){.kind = SG_UNIFORMITY_DIVERGENT, .piecewise = true};
    uniformity result;
    if (of_operation(insn, in, all_uniform, &result))
        return result;
    if (all_uniform)
        return uniform;
    return (uniformity){.kind = SG_UNIFORMITY_DIVERGENT,
                        .piecewise = is_jump_register_op(op) && all_piecewise};
}

/*
 * What is more regular in a warp than in a row: its threads differ in the lowest five bits of %tid.x alone,
 * so that tid / 32 is the same for all and tid & 31 is affine. (Where rows are no multiples of 32 threads it
 * is another guess.)
 */
static bool of_warp(const uniformity *uniformities, const struct sg_insn *insn, uniformity *result)
{
    if (insn->call != NULL || insn->n_operands < 2)
        return false;
    const struct sg_operand *in = &insn->operands[1];
    if (insn->form->op == SG_OP_MOV && in->kind == SG_OPERAND_SPECIAL &&
        (in->reg == SG_SPECIAL_LANEID || in->reg == SG_SPECIAL_WARPID)) {
        *result = affine(in->reg == SG_SPECIAL_LANEID);
        return true;
    }
    if (insn->n_operands < 3 || in->kind != SG_OPERAND_REG || in[1].kind != SG_OPERAND_INTEGER)
        return false;
    const uniformity from = uniformities[in->reg];
    const uint64_t by = in[1].value, step = (uint64_t)from.step;
    *result = uniform;
    if (insn->form->op == SG_OP_AND && from.kind == SG_UNIFORMITY_DIVERGENT && from.bits != 0)
        return (by & from.bits) == 0;
    if (from.kind != SG_UNIFORMITY_AFFINE || step == 0 || step > 1u << 16 || (step & (step - 1)) != 0)
        return false;
    const uint64_t lanes = 31 * step; /* the bits in which they differ */
    switch (insn->form->op) {
    case SG_OP_SHR:
        if (by < 64 && lanes >> by != 0)
            *result = (uniformity){.kind = SG_UNIFORMITY_DIVERGENT, .bits = lanes >> by};
        return by < 64;
    case SG_OP_DIV:
        return !sg_type_is_float((enum sg_type)insn->types[0]) && by != 0 && by % (32 * step) == 0;
    case SG_OP_REM:
        *result = from;
        return by != 0 && by % (32 * step) == 0;
    case SG_OP_AND:
        if ((by & lanes) != 0)
            *result = from;
        return (by & lanes) == 0 || (by & lanes) == lanes;
    default:
        return false;
    }
}

struct join {
    uniformity *uniformities;
    uniformity result;
    bool changed;
};

static void join(void *user, uint32_t reg, bool written, bool maybe)
{
    struct join *j = user;
    uniformity *to = &j->uniformities[reg], before = *to;
    (void)maybe;
    if (!written || j->result.kind == SG_UNIFORMITY_UNKNOWN)
        return;
    if (to->kind == SG_UNIFORMITY_UNKNOWN) {
        *to = j->result;
    } else if (to->kind != j->result.kind || to->step != j->result.step) {
        *to = divergent;
    } else {
        to->piecewise &= j->result.piecewise;
        to->bits = to->bits == j->result.bits ? to->bits : 0;
    }
    j->changed |= to->kind != before.kind || to->step != before.step || to->piecewise != before.piecewise ||
                  to->bits != before.bits;
}

struct sg_uniformity *sg_uniformity_compute(struct sg_arena *arena, const struct sg_ptx_function *function,
                                            enum sg_uniformity_among among)
{
    struct join j = {.uniformities = SG_NEW_ARRAY(arena, uniformity, function->n_regs + 1), .changed = true};
    while (j.changed) {
        j.changed = false;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            const struct sg_insn *insn = &function->insns[i];
            if (among != SG_AMONG_WARP || !of_warp(j.uniformities, insn, &j.result))
                j.result = of_result(j.uniformities, insn);
            if (insn->guard != 0 && j.result.kind != SG_UNIFORMITY_UNKNOWN &&
                !is_uniform(j.uniformities[insn->guard - 1]))
                j.result = divergent;
            sg_visit_registers(insn, join, &j);
        }
    }
    return j.uniformities;
}
