/*
 * arithmetic.c - the rules of moves, conversions and arithmetic that the instruction table cannot say.
 */
#include "softgpu/compiler/check/checker.h"

static enum sg_type mov_part(enum sg_type whole, uint32_t parts)
{
    switch (sg_types[whole].bits / parts) {
    case 8:
        return SG_B8;
    case 16:
        return SG_B16;
    case 32:
        return SG_B32;
    case 64:
        return SG_B64;
    default:
        return SG_TYPE_NONE;
    }
}

void sg_check_mov(struct sg_checker *checker, struct sg_insn *insn)
{
    enum sg_type type = (enum sg_type)insn->types[0];
    for (int i = 0; i < 2; i++) {
        struct sg_operand *operand = &insn->operands[i];
        if (operand->kind != SG_OPERAND_VECTOR) {
            if (operand->kind == SG_OPERAND_INTEGER && type != SG_PRED)
                continue; /* "mov.f32 %f, 0" too: bits */
            if (operand->kind == SG_OPERAND_REG && operand->value != 0)
                sg_check_fail(checker, "a register has no offset here");
            if (operand->kind == SG_OPERAND_FUNCTION)
                sg_check_take_address(checker, operand->function);
            if (type == SG_PRED && operand->kind == SG_OPERAND_INTEGER)
                continue;
            sg_check_type(checker, operand, type, i == 0, false);
            continue;
        }
        enum sg_type part = mov_part(type, operand->count);
        if ((operand->count != 2 && operand->count != 4) || part == SG_TYPE_NONE ||
            sg_types[type].class != SG_CLASS_BITS)
            sg_check_fail(checker, "a vector of %u does not fit .%s", operand->count, sg_types[type].name);
        for (uint32_t n = 0; n < operand->count; n++)
            sg_check_type(checker, &operand->items[n], part, i == 0, part == SG_B8);
    }
}

static bool is_float_round(const struct sg_insn *insn)
{
    return sg_type_is_float((enum sg_type)insn->types[0]) && sg_type_is_float((enum sg_type)insn->types[1]);
}

void sg_check_conversion(struct sg_checker *checker, struct sg_insn *insn)
{
    enum sg_type to = (enum sg_type)insn->types[0], from = (enum sg_type)insn->types[1];
    bool narrowing = is_float_round(insn) && sg_types[to].bits < sg_types[from].bits;
    bool rounds = SG_MOD(insn, SG_GROUP_ROUND) != 0, to_integer = SG_MOD(insn, SG_GROUP_RINT) != 0;
    if (sg_type_is_float(from) && !sg_type_is_float(to) && to != SG_TF32 && !to_integer)
        sg_check_fail(checker, "a conversion to an integer needs .rni, .rzi, .rmi or .rpi");
    if (!sg_type_is_float(from) && sg_type_is_float(to) && !rounds)
        sg_check_fail(checker, "a conversion from an integer needs .rn, .rz, .rm or .rp");
    if (narrowing && !rounds)
        sg_check_fail(checker, "a narrowing conversion needs .rn, .rz, .rm or .rp");
    if (!sg_type_is_float(from) && !sg_type_is_float(to) && (rounds || to_integer))
        sg_check_fail(checker, "a conversion between integers does not round");
    if (SG_MOD(insn, SG_GROUP_ROUND) == SG_RNA && to != SG_TF32)
        sg_check_fail(checker, ".rna is for .tf32");
}

/* Pairs: halves are rounded to nearest or towards 0, scales towards 0 or up, what is smaller to nearest. */
void sg_check_pair_conversion(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t round = SG_MOD(insn, SG_GROUP_ROUND);
    enum sg_type to = (enum sg_type)insn->types[0], from = (enum sg_type)insn->types[1];
    bool scale = to == SG_UE8M0X2, halves = (to == SG_F16X2 || to == SG_BF16X2) && from == SG_F32;
    if ((round != SG_RN || scale) && (round != SG_RZ || (!scale && !halves)) && (round != SG_RP || !scale))
        sg_check_fail(checker, "this rounding does not fit .%s", sg_types[to].name);
}

/* .rz, .rm and .rp exist for all of these types except half precision. */
void sg_check_rounding(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t round = SG_MOD(insn, SG_GROUP_ROUND);
    if (round == SG_RNA)
        sg_check_fail(checker, ".rna does not fit this instruction");
    if (round > SG_RN && !sg_check_type_in(insn, "f32 f64 f32x2"))
        sg_check_fail(checker, "only .rn fits .%s", sg_types[insn->types[0]].name);
}

void sg_check_division(struct sg_checker *checker, struct sg_insn *insn)
{
    sg_check_rounding(checker, insn);
    if (SG_MOD(insn, SG_GROUP_APPROX) == 0 && SG_MOD(insn, SG_GROUP_ROUND) == 0)
        sg_check_fail(checker, "needs .approx or a rounding mode");
}

void sg_check_multiply_add(struct sg_checker *checker, struct sg_insn *insn)
{
    if (SG_MOD(insn, SG_GROUP_CC) != 0 && SG_MOD(insn, SG_GROUP_WIDE) == SG_WIDE)
        sg_check_fail(checker, ".cc does not fit .wide");
}
