/*
 * address.c - addresses as sums: see address.h.
 *
 * An operand is followed through the only instructions that write its registers, as long as these are sums and no more than a dozen. Whatever
 * else computes a register makes that a root of its own. With more roots than there is room for, nothing is known of the sum. Part of a
 * compilation: its thread, the arena's memory.
 */
#include "softgpu/compiler/uniformity/address.h"

#include "softgpu/compiler/ir/traits.h"

#define DEPTH_MAX 12u

struct count {
    uint32_t *of;
    uint32_t insn;
};

static void note_writer(void *user, uint32_t reg, bool written, bool maybe)
{
    const struct count *count = user;
    if (written)
        count->of[reg] = count->of[reg] != 0 || maybe ? UINT32_MAX : count->insn + 1;
}

struct sg_writers sg_writers_find(struct sg_arena *arena, const struct sg_ptx_function *function)
{
    struct count count = {.of = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1)};
    for (; count.insn < function->n_insns; count.insn++)
        sg_visit_registers(&function->insns[count.insn], note_writer, &count);
    return (struct sg_writers){.function = function, .of = count.of};
}

static void add_term(struct sg_address *sum, uint64_t root, uint64_t factor)
{
    uint32_t i = 0;
    while (i < sum->n && sum->term[i].root != root)
        i++;
    if (i == sum->n) {
        if (i == SG_ADDRESS_TERMS) {
            sum->known = false;
            return;
        }
        sum->term[sum->n++].root = root;
        sum->term[i].factor = 0;
    }
    sum->term[i].factor += factor;
    if (sum->term[i].factor == 0)
        sum->term[i] = sum->term[--sum->n];
}

static uint64_t signed_number(const struct sg_insn *insn, uint64_t value)
{
    return sg_type_bytes((enum sg_type)insn->types[0]) == 4 ? (uint64_t)(int64_t)(int32_t)value : value;
}

static bool is_number(const struct sg_operand *operand)
{
    return operand->kind == SG_OPERAND_INTEGER;
}

static void add_operand(const struct sg_writers *writers, struct sg_address *sum,
                        const struct sg_operand *operand, uint64_t factor, uint32_t depth);

/* An or with a number of bits that are 0 is a sum. */
static bool add_or(const struct sg_writers *writers, struct sg_address *sum, const struct sg_operand in[2],
                   uint64_t factor, uint32_t depth)
{
    struct sg_address part = {.known = true};
    if (!is_number(&in[1]) || in[1].value >= 1u << 16)
        return false;
    add_operand(writers, &part, &in[0], 1, depth);
    uint64_t all = part.number;
    for (uint32_t i = 0; i < part.n; i++)
        all |= part.term[i].factor;
    if (!part.known || all == 0 || in[1].value >= (all & -all))
        return false;
    add_operand(writers, sum, &in[0], factor, depth);
    sum->number += factor * in[1].value;
    return true;
}

/* Adds what an instruction computes, if it is a sum; false: it is none. */
static bool add_result(const struct sg_writers *writers, struct sg_address *sum, const struct sg_insn *insn,
                       uint64_t factor, uint32_t depth)
{
    const struct sg_operand *in = &insn->operands[1];
    if (depth == 0 || insn->guard != 0 || insn->n_operands < 2 ||
        sg_type_is_float((enum sg_type)insn->types[0]))
        return false;
    switch (insn->form->op) {
    case SG_OP_CVT:
        if (sg_type_is_float((enum sg_type)insn->types[1]) || sg_type_bytes((enum sg_type)insn->types[1]) < 4)
            return false;
        add_operand(writers, sum, &in[0], factor, depth);
        return true;
    case SG_OP_MOV:
    case SG_OP_CVTA:
        if (in[0].kind != SG_OPERAND_REG && in[0].kind != SG_OPERAND_VAR && !is_number(&in[0]))
            return false;
        add_operand(writers, sum, &in[0], factor, depth);
        return true;
    case SG_OP_ADD:
    case SG_OP_SUB:
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t times = i == 1 && insn->form->op == SG_OP_SUB ? -factor : factor;
            if (is_number(&in[i]))
                sum->number += times * signed_number(insn, in[i].value);
            else
                add_operand(writers, sum, &in[i], times, depth);
        }
        return true;
    case SG_OP_SHL:
        if (!is_number(&in[1]) || in[1].value > 31)
            return false;
        add_operand(writers, sum, &in[0], factor << in[1].value, depth);
        return true;
    case SG_OP_MUL:
    case SG_OP_MAD:
        if (SG_MOD(insn, SG_GROUP_WIDE) == SG_HI || is_number(&in[0]) == is_number(&in[1]))
            return false;
        add_operand(writers, sum, &in[is_number(&in[0])],
                    factor * signed_number(insn, in[is_number(&in[1])].value), depth);
        if (insn->form->op == SG_OP_MAD)
            add_operand(writers, sum, &in[2], factor, depth);
        return true;
    case SG_OP_OR:
        return add_or(writers, sum, in, factor, depth);
    default:
        return false;
    }
}

static void add_operand(const struct sg_writers *writers, struct sg_address *sum,
                        const struct sg_operand *operand, uint64_t factor, uint32_t depth)
{
    switch (operand->kind) {
    case SG_OPERAND_INTEGER:
        sum->number += factor * operand->value;
        return;
    case SG_OPERAND_VAR:
        add_term(sum, (uint64_t)(uintptr_t)operand->var, factor);
        sum->number += factor * operand->value;
        return;
    case SG_OPERAND_REG: {
        uint32_t writer = writers->of[operand->reg];
        if (writer == 0 || writer == UINT32_MAX ||
            !add_result(writers, sum, &writers->function->insns[writer - 1], factor, depth - (depth != 0)))
            add_term(sum, operand->reg, factor);
        return;
    }
    default:
        sum->known = false;
    }
}

struct sg_address sg_address_of(const struct sg_writers *writers, const struct sg_operand *operand)
{
    struct sg_address address = {.known = true};
    add_operand(writers, &address, operand, 1, DEPTH_MAX);
    return address;
}

struct sg_address sg_address_difference(const struct sg_address *a, const struct sg_address *b,
                                        uint32_t *common)
{
    struct sg_address apart = *a;
    *common = 0;
    apart.known &= b->known;
    apart.number -= b->number;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t before = apart.n;
        add_term(&apart, b->term[i].root, -b->term[i].factor);
        *common += apart.n < before;
    }
    return apart;
}
