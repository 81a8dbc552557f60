/*
 * bounds.c - how large the values of registers can be. What is known not to wrap can be computed with more
 * bits just as well: an offset is added to an address of 32 bits after it has been widened, which processors
 * do for nothing, and LLVM sees that neighbouring threads have neighbouring addresses.
 *
 * Of each register it finds a number that its value, without sign, never exceeds. Flow does not matter: the
 * largest of all writes counts. A register that still grows after some walks over the function (a counter)
 * may hold anything.
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/ir/traits.h"

#define WALKS       6
#define ANYTHING    UINT64_MAX
#define TID_MOST    1023u
#define SIZE_MOST   1024u
#define SHARED_MOST (UINT64_C(1) << 30) /* where a variable may lie */

struct walk {
    uint64_t *bounds;
    const struct sg_insn *insn;
    bool changed, last;
};

/* Of values of the type; without their sign bit, if signed ones are not to be negative. */
static uint64_t largest(enum sg_type type, bool positive)
{
    uint32_t bits = sg_types[type].bits - (positive && sg_type_is_signed(type));
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

static bool is_integer(enum sg_type type)
{
    return (type >= SG_B8 && type <= SG_B64) || (type >= SG_U8 && type <= SG_S64);
}

static uint64_t special_bound(enum sg_special special)
{
    switch (special) {
    case SG_SPECIAL_TID:
        return TID_MOST;
    case SG_SPECIAL_NTID:
        return SIZE_MOST;
    case SG_SPECIAL_LANEID:
        return 31;
    default:
        return ANYTHING;
    }
}

uint64_t sg_bound_of_operand(const uint64_t *bounds, const struct sg_operand *operand, enum sg_type type)
{
    uint64_t most = ANYTHING;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        most = bounds[operand->reg];
        break;
    case SG_OPERAND_INTEGER:
        most = operand->value & largest(type, false);
        break;
    case SG_OPERAND_SPECIAL:
        most = special_bound((enum sg_special)operand->reg);
        break;
    case SG_OPERAND_VAR: /* the offset of a shared variable, known when all are laid out */
        if (operand->var->space == SG_SPACE_SHARED && operand->value < SHARED_MOST)
            most = SHARED_MOST + operand->value;
        break;
    default:
        break;
    }
    if (operand->negated || most > largest(type, true))
        most = ANYTHING;
    return sg_type_is_signed(type) || most != ANYTHING ? most : largest(type, false);
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t result;
    return a == ANYTHING || b == ANYTHING || __builtin_add_overflow(a, b, &result) ? ANYTHING : result;
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;
    return a == ANYTHING || b == ANYTHING || __builtin_mul_overflow(a, b, &result) ? ANYTHING : result;
}

/* The least number of the form 2^n - 1 that is not smaller. */
static uint64_t all_bits(uint64_t value)
{
    return value == 0 ? 0 : UINT64_MAX >> __builtin_clzll(value);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t loaded(const struct sg_insn *insn)
{
    enum sg_type type = (enum sg_type)insn->types[0];
    return is_integer(type) && !sg_type_is_signed(type) && sg_types[type].bits < 32 ? largest(type, false)
                                                                                    : ANYTHING;
}

/* What the first operand is at most; for instructions on integers of 32 or 64 bits. */
static uint64_t compute(const uint64_t *bounds, const struct sg_insn *insn)
{
    const struct sg_operand *o = insn->operands;
    enum sg_type type = (enum sg_type)insn->types[0];
    uint64_t a = ANYTHING, b = ANYTHING;
    if (insn->n_operands > 1)
        a = sg_bound_of_operand(bounds, &o[1], type);
    if (insn->n_operands > 2)
        b = sg_bound_of_operand(bounds, &o[2], type);
    bool constant = insn->n_operands > 2 && o[2].kind == SG_OPERAND_INTEGER;
    bool shifts = constant && o[2].value < 32, divides = constant && b != ANYTHING && b > 0;
    switch (insn->form->op) {
    case SG_OP_MOV:
        return a;
    case SG_OP_CVT:
        return is_integer((enum sg_type)insn->types[1])
                   ? sg_bound_of_operand(bounds, &o[1], (enum sg_type)insn->types[1])
                   : ANYTHING;
    case SG_OP_ADD:
        return sum(a, b);
    case SG_OP_MUL:
        return SG_MOD(insn, SG_GROUP_WIDE) == SG_HI ? ANYTHING : product(a, b);
    case SG_OP_MAD:
        return SG_MOD(insn, SG_GROUP_WIDE) == SG_LO
                   ? sum(product(a, b), sg_bound_of_operand(bounds, &o[3], type))
                   : ANYTHING;
    case SG_OP_SHL:
        return shifts ? product(a, UINT64_C(1) << o[2].value) : ANYTHING;
    case SG_OP_SHR:
        return shifts && a != ANYTHING ? a >> o[2].value : ANYTHING;
    case SG_OP_AND:
        return smaller(a, b);
    case SG_OP_OR:
    case SG_OP_XOR:
        return all_bits(a | b);
    case SG_OP_MIN:
        return a == ANYTHING || b == ANYTHING ? ANYTHING : smaller(a, b);
    case SG_OP_MAX:
    case SG_OP_SELP:
        return larger(a, b);
    case SG_OP_REM:
        return divides && a != ANYTHING ? smaller(a, b - 1) : ANYTHING;
    case SG_OP_DIV:
        return divides && a != ANYTHING ? a / b : ANYTHING;
    default:
        return ANYTHING;
    }
}

/* An operation on integers of 32 or 64 bits that writes one register. */
static bool is_plain(const struct sg_insn *insn)
{
    enum sg_type type = (enum sg_type)insn->types[0];
    return is_integer(type) && sg_types[type].bits >= 32 && SG_MOD(insn, SG_GROUP_SAT) == 0 &&
           SG_MOD(insn, SG_GROUP_CC) == 0;
}

uint64_t sg_bound_of_result(const uint64_t *bounds, const struct sg_insn *insn)
{
    return is_plain(insn) ? compute(bounds, insn) : ANYTHING;
}

static uint64_t result(const uint64_t *bounds, const struct sg_insn *insn)
{
    if (insn->form->op == SG_OP_LD)
        return loaded(insn);
    bool wide = insn->form->op == SG_OP_MUL && SG_MOD(insn, SG_GROUP_WIDE) == SG_WIDE;
    uint64_t most = sg_bound_of_result(bounds, insn);
    return wide || most <= largest((enum sg_type)insn->types[0], true) ? most : ANYTHING;
}

static void note_write(void *user, uint32_t reg, bool written, bool maybe)
{
    struct walk *walk = user;
    const struct sg_insn *insn = walk->insn;
    (void)maybe;
    if (!written)
        return;
    bool first = insn->call == NULL && insn->n_operands > 1 && insn->operands[0].kind == SG_OPERAND_REG &&
                 insn->operands[0].reg == reg;
    uint64_t most = first ? result(walk->bounds, insn) : ANYTHING;
    if (most <= walk->bounds[reg])
        return;
    walk->bounds[reg] = walk->last ? ANYTHING : most;
    walk->changed = true;
}

uint64_t *sg_analyse_bounds(struct sg_arena *arena, const struct sg_ptx_function *function)
{
    struct walk walk = {.bounds = SG_NEW_ARRAY(arena, uint64_t, function->n_regs)};
    for (uint32_t i = 0; i < function->n_params; i++)
        if (function->params[i].by_register)
            walk.bounds[function->params[i].reg] = ANYTHING;
    for (uint32_t round = 0; round == 0 || walk.changed; round++) {
        walk.changed = false;
        walk.last = round >= WALKS;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            walk.insn = &function->insns[i];
            sg_visit_registers(walk.insn, note_write, &walk);
        }
    }
    return walk.bounds;
}
