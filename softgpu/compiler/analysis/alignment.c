/*
 * alignment.c - what is known of the low bits of registers, so that the check of an access's alignment costs
 * nothing where they are known, and is the same for all turns of a loop where they are those of a kernel's
 * parameter.
 *
 * Of each register it finds out: its value is base + offset modulo 2^bits at all times, where base is nothing
 * or a parameter of the kernel, which never changes. Flow does not matter: every write of a register must
 * agree. Registers go from "not written" down to fewer and fewer bits, so the walks over the function end.
 */
#include "softgpu/compiler/analysis/analysis.h"

#define MOST_BITS 4 /* no access asks for more than 16 bytes' alignment */
#define NOTHING   ((struct sg_low_bits){.base = UINT32_MAX})

static uint8_t trailing_zeros(uint64_t value)
{
    uint32_t zeros = value == 0 ? MOST_BITS : (uint32_t)__builtin_ctzll(value);
    return (uint8_t)(zeros > MOST_BITS ? MOST_BITS : zeros);
}

static uint8_t least(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static struct sg_low_bits constant(uint64_t value)
{
    return (struct sg_low_bits){UINT32_MAX, (uint8_t)(value & 15), MOST_BITS, true};
}

static struct sg_low_bits multiple(uint8_t bits)
{
    return (struct sg_low_bits){UINT32_MAX, 0, bits, true};
}

/* What holds of both. */
static struct sg_low_bits meet(struct sg_low_bits a, struct sg_low_bits b)
{
    if (!a.written)
        return b;
    if (!b.written)
        return a;
    if (a.base != b.base)
        return multiple(0);
    a.bits = least(least(a.bits, b.bits), trailing_zeros((uint64_t)(a.offset ^ b.offset)));
    return a;
}

static struct sg_low_bits read_operand(const struct sg_low_bits *known, const struct sg_operand *operand)
{
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return known[operand->reg];
    case SG_OPERAND_INTEGER:
        return constant(operand->value);
    case SG_OPERAND_VAR: {
        struct sg_low_bits address = constant(operand->value);
        address.bits = trailing_zeros(operand->var->align);
        return address;
    }
    default:
        return multiple(0);
    }
}

static struct sg_low_bits add(struct sg_low_bits a, struct sg_low_bits b, bool subtract)
{
    if (!a.written || !b.written)
        return NOTHING;
    if (b.base != UINT32_MAX && (subtract || a.base != UINT32_MAX))
        return multiple(0);
    if (b.base != UINT32_MAX)
        a.base = b.base;
    a.offset = (uint8_t)((subtract ? a.offset - b.offset : a.offset + b.offset) & 15);
    a.bits = least(a.bits, b.bits);
    return a;
}

static struct sg_low_bits multiply(struct sg_low_bits a, const struct sg_operand *factor)
{
    if (!a.written)
        return NOTHING;
    if (factor->kind != SG_OPERAND_INTEGER)
        return multiple(0);
    uint8_t zeros = trailing_zeros(factor->value);
    if (a.base != UINT32_MAX)
        return multiple(zeros);
    uint8_t bits = (uint8_t)(a.bits + zeros);
    return (struct sg_low_bits){UINT32_MAX, (uint8_t)(a.offset * factor->value & 15),
                                bits > MOST_BITS ? MOST_BITS : bits, true};
}

static bool is_integer(enum sg_type type)
{
    return sg_types[type].class == SG_CLASS_BITS || sg_types[type].class == SG_CLASS_SIGNED ||
           sg_types[type].class == SG_CLASS_UNSIGNED;
}

/* What the instruction's first operand is afterwards. */
static struct sg_low_bits compute(const struct sg_ptx_function *function, const struct sg_low_bits *known,
                                  const struct sg_insn *insn)
{
    const struct sg_operand *o = insn->operands;
    switch (insn->form->op) {
    case SG_OP_LD:
        if (function->is_entry && o[0].kind == SG_OPERAND_REG && sg_is_own_param(function, &o[1]))
            return (struct sg_low_bits){(uint32_t)(insn - function->insns), 0, MOST_BITS, true};
        return multiple(0);
    case SG_OP_MOV:
    case SG_OP_CVTA: /* the window of shared memory begins at a multiple of 1024 */
        return o[1].kind == SG_OPERAND_VECTOR ? multiple(0) : read_operand(known, &o[1]);
    case SG_OP_ADD:
    case SG_OP_SUB:
        if (SG_MOD(insn, SG_GROUP_SAT) != 0 || sg_types[insn->types[0]].class == SG_CLASS_BITS)
            return multiple(0);
        return add(read_operand(known, &o[1]), read_operand(known, &o[2]), insn->form->op == SG_OP_SUB);
    case SG_OP_MUL:
        return SG_MOD(insn, SG_GROUP_WIDE) == SG_HI ? multiple(0)
                                                    : multiply(read_operand(known, &o[1]), &o[2]);
    case SG_OP_MAD:
        if (SG_MOD(insn, SG_GROUP_WIDE) == SG_HI || SG_MOD(insn, SG_GROUP_SAT) != 0)
            return multiple(0);
        return add(multiply(read_operand(known, &o[1]), &o[2]), read_operand(known, &o[3]), false);
    case SG_OP_SHL: {
        if (o[2].kind != SG_OPERAND_INTEGER)
            return multiple(0);
        struct sg_operand factor = {.kind = SG_OPERAND_INTEGER,
                                    .value = o[2].value < 64 ? UINT64_C(1) << o[2].value : 0};
        return multiply(read_operand(known, &o[1]), &factor);
    }
    case SG_OP_AND:
        if (o[2].kind != SG_OPERAND_INTEGER || insn->types[0] == SG_PRED)
            return multiple(0);
        return multiple(trailing_zeros(o[2].value));
    case SG_OP_CVT:
        if (!is_integer((enum sg_type)insn->types[0]) || !is_integer((enum sg_type)insn->types[1]) ||
            SG_MOD(insn, SG_GROUP_SAT) != 0)
            return multiple(0);
        return read_operand(known, &o[1]);
    case SG_OP_SELP:
        return meet(read_operand(known, &o[1]), read_operand(known, &o[2]));
    default:
        return multiple(0);
    }
}

struct walk {
    struct sg_low_bits *known;
    bool changed;
};

static void write_register(struct walk *walk, const struct sg_operand *operand, struct sg_low_bits value)
{
    if (operand->kind == SG_OPERAND_VECTOR)
        for (uint32_t i = 0; i < operand->count; i++)
            write_register(walk, &operand->items[i], multiple(0));
    if (operand->kind != SG_OPERAND_REG)
        return;
    struct sg_low_bits *slot = &walk->known[operand->reg], joined = meet(*slot, value);
    if (joined.written != slot->written || joined.base != slot->base || joined.bits != slot->bits) {
        *slot = joined;
        walk->changed = true;
    }
}

/* All registers that the instruction may write; what is not a plain result of it is unknown afterwards. */
static void visit(struct walk *walk, const struct sg_ptx_function *function, const struct sg_insn *insn)
{
    if (insn->call != NULL) {
        for (uint32_t i = 0; i < insn->call->n_returns; i++)
            write_register(walk, &insn->call->returns[i], multiple(0));
        return;
    }
    for (uint32_t i = 0; i <= insn->n_operands; i++) { /* the last is the second result of a pair */
        bool result = i == insn->n_operands || insn->form->n_operands == 0 || i >= SG_INSN_OPERANDS ||
                      (insn->form->operand[i].flags & SG_OPF_DEST) != 0;
        if (!result)
            continue;
        bool plain = i == 0 && insn->operands[0].kind == SG_OPERAND_REG;
        write_register(walk, &insn->operands[i], plain ? compute(function, walk->known, insn) : multiple(0));
    }
}

struct sg_low_bits *sg_analyse_alignment(struct sg_arena *arena, const struct sg_ptx_function *function)
{
    struct walk walk = {.known = SG_NEW_ARRAY(arena, struct sg_low_bits, function->n_regs)};
    for (uint32_t i = 0; i < function->n_regs; i++)
        walk.known[i] = NOTHING;
    for (uint32_t i = 0; i < function->n_params; i++)
        if (function->params[i].by_register)
            walk.known[function->params[i].reg] = multiple(0);
    do {
        walk.changed = false;
        for (uint32_t i = 0; i < function->n_insns; i++)
            visit(&walk, function, &function->insns[i]);
    } while (walk.changed);
    return walk.known;
}
