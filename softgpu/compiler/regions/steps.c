/*
 * steps.c - see steps.h. The last instruction that wrote a register on the way is what the register's value comes from, or else what is
 * computed anew or affine (regions.h).
 */
#include "softgpu/compiler/regions/steps.h"

#include "softgpu/compiler/ir/traits.h"

#define DEPTH_MAX 64u /* of what a condition is computed from */

static const struct sg_insn *insn_at(const struct sg_way *way, uint32_t i)
{
    return &way->flow->function->insns[i];
}

/* --- where values come from --- */

/*
 * An instruction that computes a value, on the way (place) or anew (NULL: it is affine, and step says how).
 */
struct origin {
    const struct sg_insn *insn;
    uint32_t before; /* what its operands are: as they are before this place of the way */
    struct sg_use_of *use;
    int64_t step;
};

struct search {
    uint32_t reg;
    bool written;
};

static void note_write(void *user, uint32_t reg, bool written, bool maybe)
{
    struct search *search = user;
    (void)maybe;
    search->written |= written && reg == search->reg;
}

static bool is_simple(const struct sg_insn *insn, uint32_t reg)
{
    return insn->guard == 0 && insn->call == NULL && SG_MOD(insn, SG_GROUP_CC) == 0 &&
           sg_is_arithmetic(insn->form->op) && insn->operands[0].kind == SG_OPERAND_REG &&
           insn->operands[0].reg == reg;
}

static bool find_origin(struct sg_way *way, uint32_t reg, uint32_t before, struct origin *origin)
{
    const struct sg_regions *regions = way->regions;
    if (regions->rematerialised[reg] != 0) {
        uint32_t by = regions->rematerialised[reg] - 1;
        *origin = (struct origin){.insn = insn_at(way, by), .before = 0, .use = &way->rematerialised[by]};
        return true;
    }
    for (uint32_t i = before; i-- > 0;) {
        struct search search = {.reg = reg};
        const struct sg_insn *insn = insn_at(way, way->insns[i]);
        sg_visit_registers(insn, note_write, &search);
        if (!search.written)
            continue;
        *origin = (struct origin){.insn = insn, .before = i, .use = &way->uses[i]};
        return is_simple(insn, reg);
    }
    *origin = (struct origin){.step = way->point != 0 ? regions->step[reg] : 0};
    return way->point != 0 && sg_regions_has(regions->affine[way->point], reg);
}

/* --- how they grow from thread to thread --- */

static bool step_of_special(const struct sg_operand *operand, int64_t *step)
{
    *step = operand->reg == SG_SPECIAL_TID && operand->component == 0;
    return operand->reg == SG_SPECIAL_TID || operand->reg == SG_SPECIAL_NTID ||
           operand->reg == SG_SPECIAL_CTAID || operand->reg == SG_SPECIAL_NCTAID;
}

static bool step_of_operand(struct sg_way *way, const struct sg_operand *operand, uint32_t before,
                            int64_t *step)
{
    *step = 0;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return sg_way_step(way, operand->reg, before, step);
    case SG_OPERAND_INTEGER:
    case SG_OPERAND_FLOAT32:
    case SG_OPERAND_FLOAT64:
        return true;
    case SG_OPERAND_SPECIAL:
        return step_of_special(operand, step);
    case SG_OPERAND_VAR:
        return operand->var->space != SG_SPACE_LOCAL;
    default:
        return false;
    }
}

/* A register that grows must be as wide as what is computed in it: nothing is cut off or filled up. */
static bool has_width(const struct sg_way *way, const struct sg_operand *operand, unsigned bits)
{
    return operand->kind != SG_OPERAND_REG ||
           sg_types[way->flow->function->regs[operand->reg].type].bits == bits;
}

static bool multiply(int64_t a, uint64_t b, int64_t *product)
{
    int64_t factor = (int64_t)b;
    return factor > -(1 << 20) && factor < 1 << 20 && !__builtin_mul_overflow(a, factor, product) &&
           *product > -(INT64_C(1) << 40) && *product < INT64_C(1) << 40;
}

/* steps: of the operands, by place; those of what is not read are 0. */
static bool step_of_product(const struct sg_insn *insn, const int64_t *steps, int64_t *step)
{
    uint32_t stepped = steps[1] != 0 ? 1 : 2;
    const struct sg_operand *factor = &insn->operands[3 - stepped];
    unsigned bits = sg_types[insn->types[0]].bits;
    *step = 0;
    if (steps[1] == 0 && steps[2] == 0)
        return true;
    if ((steps[1] != 0 && steps[2] != 0) || factor->kind != SG_OPERAND_INTEGER ||
        SG_MOD(insn, SG_GROUP_WIDE) == SG_HI)
        return false;
    uint64_t value = bits < 64 && sg_type_is_signed((enum sg_type)insn->types[0])
                         ? (uint64_t)((int64_t)(factor->value << (64 - bits)) >> (64 - bits))
                     : bits < 64 ? factor->value & ((UINT64_C(1) << bits) - 1)
                                 : factor->value;
    return multiply(steps[stepped], value, step);
}

/* What an instruction of integers computes if some of its operands grow; sets the use. */
static bool step_of_growing(struct sg_way *way, const struct origin *origin, const int64_t *steps,
                            int64_t *step)
{
    const struct sg_insn *insn = origin->insn;
    const struct sg_operand *operands = insn->operands;
    unsigned bits = sg_types[insn->types[0]].bits, from = bits;
    uint8_t stepped = steps[1] != 0 ? 1 : 2;
    enum sg_op op = insn->form->op;
    bool wide = (op == SG_OP_MUL || op == SG_OP_MAD) && SG_MOD(insn, SG_GROUP_WIDE) == SG_WIDE;
    if (SG_MOD(insn, SG_GROUP_SAT) != 0 || sg_type_is_float((enum sg_type)insn->types[0]) ||
        insn->types[0] == SG_PRED)
        return false;
    switch (op) {
    case SG_OP_MOV:
        *step = steps[1];
        break;
    case SG_OP_CVT:
        from = sg_types[insn->types[1]].bits;
        if (sg_type_is_float((enum sg_type)insn->types[1]) || from > bits)
            return false;
        *step = steps[1];
        break;
    case SG_OP_ADD:
        *step = steps[1] + steps[2];
        break;
    case SG_OP_SUB:
        *step = steps[1] - steps[2];
        break;
    case SG_OP_NEG:
        *step = -steps[1];
        break;
    case SG_OP_MUL:
    case SG_OP_MAD:
        if (!step_of_product(insn, steps, step))
            return false;
        *step += op == SG_OP_MAD ? steps[3] : 0;
        break;
    case SG_OP_SHL:
        if (steps[2] != 0 || operands[2].kind != SG_OPERAND_INTEGER || operands[2].value >= 20 ||
            !multiply(steps[1], UINT64_C(1) << operands[2].value, step))
            return false;
        break;
    default:
        return false;
    }
    bool widens = wide || (op == SG_OP_CVT && from < bits);
    bits *= wide ? 2 : 1;
    bool factors_grow = steps[1] != 0 || steps[2] != 0;
    for (uint32_t i = 1; i < insn->n_operands; i++)
        if (steps[i] != 0 && !has_width(way, &operands[i], widens && i < 3 ? (wide ? bits / 2 : from) : bits))
            return false;
    if (bits < 16 || from < 16 || !has_width(way, &operands[0], bits))
        return false;
    if (widens && factors_grow)
        *origin->use = (struct sg_use_of){SG_USE_WIDEN, stepped, steps[stepped]};
    return true;
}

static bool step_of_comparison(struct sg_way *way, const struct origin *origin, const int64_t *steps)
{
    const struct sg_insn *insn = origin->insn;
    uint8_t stepped = steps[1] != 0 ? 1 : 2;
    enum sg_type type = (enum sg_type)insn->types[0];
    if ((steps[1] != 0 && steps[2] != 0) || (insn->n_operands > 3 && steps[3] != 0))
        return false;
    if (steps[1] == 0 && steps[2] == 0)
        return true;
    if (sg_type_is_float(type) || sg_types[type].bits < 16 || sg_types[type].bits > 64 ||
        !has_width(way, &insn->operands[stepped], sg_types[type].bits))
        return false;
    *origin->use = (struct sg_use_of){SG_USE_COMPARE, stepped, steps[stepped]};
    return true;
}

/* How a register grows. Predicates count as growing by 0; comparisons note what changes them. */
bool sg_way_step(struct sg_way *way, uint32_t reg, uint32_t before, int64_t *step)
{
    struct origin origin;
    int64_t steps[SG_INSN_OPERANDS] = {0};
    bool grows = false, done = false;
    if (way->depth >= DEPTH_MAX || !find_origin(way, reg, before, &origin))
        return false;
    *step = origin.step;
    if (origin.insn == NULL)
        return true;
    const struct sg_insn *insn = origin.insn;
    way->depth++;
    if (origin.use->kind == SG_USE_NONE)
        origin.use->kind = SG_USE_VALUE;
    done = true;
    if (insn->form->op != SG_OP_LD) { /* of a parameter, that is */
        for (uint32_t i = 1; i < insn->n_operands && done; i++) {
            done = step_of_operand(way, &insn->operands[i], origin.before, &steps[i]);
            grows |= steps[i] != 0;
        }
        if (done && insn->form->op == SG_OP_SETP)
            done = step_of_comparison(way, &origin, steps);
        else if (done && grows)
            done = step_of_growing(way, &origin, steps, step);
    }
    way->depth--;
    return done;
}
