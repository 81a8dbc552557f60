/*
 * bits.c - logic, shifts and bit fields. Shifts by the width or more give 0 (or the sign).
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

/* An amount as the type of the value that is shifted; what does not fit is cut to the value's width. */
static LLVMValueRef fit_amount(struct sg_codegen *gen, LLVMValueRef amount, unsigned bits)
{
    if (LLVMIsAConstantInt(amount) != NULL) {
        uint64_t number = LLVMConstIntGetZExtValue(amount);
        return sg_gen_const(gen, bits, number < bits ? number : bits);
    }
    amount = sg_gen_math(gen, "llvm.umin", amount, sg_gen_const(gen, 32, bits), NULL);
    if (bits > 32)
        return LLVMBuildZExt(B, amount, sg_gen_int(gen, bits), "");
    return bits < 32 ? LLVMBuildTrunc(B, amount, sg_gen_int(gen, bits), "") : amount;
}

enum shift { SHIFT_LEFT, SHIFT_RIGHT, SHIFT_SIGNED };

static LLVMValueRef shift(struct sg_codegen *gen, LLVMValueRef value, LLVMValueRef amount, enum shift kind)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    unsigned bits = LLVMGetIntTypeWidth(type);
    LLVMValueRef fitted = fit_amount(gen, amount, bits);
    LLVMValueRef all = LLVMConstInt(type, bits, 0), last = LLVMConstInt(type, bits - 1, 0);
    LLVMValueRef too_far = sg_gen_compare(gen, LLVMIntUGE, fitted, all);
    if (LLVMIsNull(too_far) && kind != SHIFT_SIGNED) /* by a number, mostly */
        return kind == SHIFT_LEFT ? LLVMBuildShl(B, value, fitted, "") : LLVMBuildLShr(B, value, fitted, "");
    if (kind == SHIFT_SIGNED)
        return LLVMBuildAShr(B, value, sg_gen_select(gen, too_far, last, fitted), "");
    fitted = sg_gen_select(gen, too_far, LLVMConstNull(type), fitted);
    LLVMValueRef shifted =
        kind == SHIFT_LEFT ? LLVMBuildShl(B, value, fitted, "") : LLVMBuildLShr(B, value, fitted, "");
    return sg_gen_select(gen, too_far, LLVMConstNull(type), shifted);
}

/* `length` ones at the low end, all ones for lengths from the width on. */
static LLVMValueRef low_ones(struct sg_codegen *gen, LLVMTypeRef type, LLVMValueRef length)
{
    return LLVMBuildNot(B, shift(gen, LLVMConstAllOnes(type), length, SHIFT_LEFT), "");
}

static LLVMValueRef low_byte(struct sg_codegen *gen, LLVMValueRef value)
{
    return LLVMBuildAnd(B, value, sg_gen_const(gen, 32, 0xff), "");
}

static LLVMValueRef extract_field(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1);
    LLVMTypeRef type = LLVMTypeOf(a);
    unsigned bits = LLVMGetIntTypeWidth(type);
    LLVMValueRef position = low_byte(gen, sg_gen_operand_u32(gen, 2)),
                 length = low_byte(gen, sg_gen_operand_u32(gen, 3));
    if (!sg_type_is_signed(sg_gen_type_of(gen)))
        return LLVMBuildAnd(B, shift(gen, a, position, SHIFT_RIGHT), low_ones(gen, type, length), "");
    /* the field to the low end, then its top bit to the top and back */
    LLVMValueRef field = shift(gen, a, position, SHIFT_SIGNED);
    LLVMValueRef fitted = sg_gen_math(gen, "llvm.umin", length, sg_gen_const(gen, 32, bits), NULL);
    LLVMValueRef away = LLVMBuildSub(B, sg_gen_const(gen, 32, bits), fitted, "");
    field = shift(gen, shift(gen, field, away, SHIFT_LEFT), away, SHIFT_SIGNED);
    LLVMValueRef empty = sg_gen_compare(gen, LLVMIntEQ, length, sg_gen_const(gen, 32, 0));
    return sg_gen_select(gen, empty, LLVMConstNull(type), field);
}

static LLVMValueRef insert_field(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2);
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef position = low_byte(gen, sg_gen_operand_u32(gen, 3)),
                 length = low_byte(gen, sg_gen_operand_u32(gen, 4));
    LLVMValueRef mask = shift(gen, low_ones(gen, type, length), position, SHIFT_LEFT);
    LLVMValueRef field = LLVMBuildAnd(B, shift(gen, a, position, SHIFT_LEFT), mask, "");
    return LLVMBuildOr(B, LLVMBuildAnd(B, b, LLVMBuildNot(B, mask, ""), ""), field, "");
}

static LLVMValueRef clamp_or_wrap(struct sg_codegen *gen, LLVMValueRef value)
{
    if (SG_MOD(gen->insn, SG_GROUP_CLAMP) == SG_WRAP)
        return LLVMBuildAnd(B, value, sg_gen_const(gen, 32, 31), "");
    return sg_gen_math(gen, "llvm.umin", value, sg_gen_const(gen, 32, 32), NULL);
}

static LLVMValueRef bit_mask(struct sg_codegen *gen)
{
    LLVMValueRef from = clamp_or_wrap(gen, sg_gen_operand_u32(gen, 1)),
                 width = clamp_or_wrap(gen, sg_gen_operand_u32(gen, 2));
    return shift(gen, low_ones(gen, gen->i32, width), from, SHIFT_LEFT);
}

static LLVMValueRef extend_from(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1), bits = clamp_or_wrap(gen, sg_gen_operand_u32(gen, 2));
    LLVMValueRef away = LLVMBuildSub(B, sg_gen_const(gen, 32, 32), bits, "");
    LLVMValueRef value = shift(gen, shift(gen, a, away, SHIFT_LEFT), away,
                               sg_type_is_signed(sg_gen_type_of(gen)) ? SHIFT_SIGNED : SHIFT_RIGHT);
    LLVMValueRef none = sg_gen_compare(gen, LLVMIntEQ, bits, sg_gen_const(gen, 32, 0));
    return sg_gen_select(gen, none, sg_gen_const(gen, 32, 0), value);
}

static LLVMValueRef to_u32(struct sg_codegen *gen, LLVMValueRef value)
{
    return LLVMGetIntTypeWidth(LLVMTypeOf(value)) > 32 ? LLVMBuildTrunc(B, value, gen->i32, "") : value;
}

static LLVMValueRef count_leading(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    LLVMValueRef arguments[2] = {value, sg_gen_const(gen, 1, 0)};
    return to_u32(gen, sg_gen_intrinsic(gen, "llvm.ctlz", &type, 1, arguments, 2));
}

/* The highest bit that differs from the sign, or all ones; with .shiftamt, how far it is from the top. */
static LLVMValueRef find_high(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1);
    LLVMTypeRef type = LLVMTypeOf(a);
    unsigned bits = LLVMGetIntTypeWidth(type);
    if (sg_type_is_signed(sg_gen_type_of(gen)))
        a = LLVMBuildXor(B, a, LLVMBuildAShr(B, a, LLVMConstInt(type, bits - 1, 0), ""), "");
    LLVMValueRef none = sg_gen_compare(gen, LLVMIntEQ, a, LLVMConstNull(type));
    LLVMValueRef leading = count_leading(gen, a);
    if (SG_MOD(gen->insn, SG_GROUP_SHIFTAMT) == 0)
        leading = LLVMBuildSub(B, sg_gen_const(gen, 32, bits - 1), leading, "");
    return sg_gen_select(gen, none, sg_gen_const(gen, 32, UINT32_MAX), leading);
}

/* Which byte of {b, a} goes to place i, for the modes that compute it from the low bits of the selector. */
static LLVMValueRef prmt_source(struct sg_codegen *gen, LLVMValueRef selector, uint32_t i)
{
    LLVMValueRef c = LLVMBuildAnd(B, selector, sg_gen_const(gen, 32, 3), "");
    LLVMValueRef place = sg_gen_const(gen, 32, i);
    switch (SG_MOD(gen->insn, SG_GROUP_PRMT)) {
    case SG_PRMT_F4E:
        return LLVMBuildAdd(B, c, place, "");
    case SG_PRMT_B4E:
        return LLVMBuildAnd(B, LLVMBuildSub(B, c, place, ""), sg_gen_const(gen, 32, 7), "");
    case SG_PRMT_RC8:
        return c;
    case SG_PRMT_ECL:
        return sg_gen_math(gen, "llvm.umax", c, place, NULL);
    case SG_PRMT_ECR:
        return sg_gen_math(gen, "llvm.umin", c, place, NULL);
    case SG_PRMT_RC16:
        return LLVMBuildOr(B, LLVMBuildAnd(B, c, sg_gen_const(gen, 32, 2), ""), sg_gen_const(gen, 32, i & 1),
                           "");
    default:
        return LLVMBuildAnd(B, LLVMBuildLShr(B, selector, sg_gen_const(gen, 32, 4 * i), ""),
                            sg_gen_const(gen, 32, 15), "");
    }
}

static LLVMValueRef permute(struct sg_codegen *gen)
{
    LLVMValueRef bytes = sg_gen_join(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2));
    LLVMValueRef selector = sg_gen_operand_u32(gen, 3), value = sg_gen_const(gen, 32, 0);
    for (uint32_t i = 0; i < 4; i++) {
        LLVMValueRef source = prmt_source(gen, selector, i);
        LLVMValueRef amount = LLVMBuildShl(B, LLVMBuildAnd(B, source, sg_gen_const(gen, 32, 7), ""),
                                           sg_gen_const(gen, 32, 3), "");
        LLVMValueRef byte = LLVMBuildLShr(B, bytes, LLVMBuildZExt(B, amount, gen->i64, ""), "");
        byte = LLVMBuildTrunc(B, byte, gen->i8, "");
        LLVMValueRef sign = LLVMBuildAShr(B, byte, sg_gen_const(gen, 8, 7), "");
        LLVMValueRef replicate = LLVMBuildAnd(B, source, sg_gen_const(gen, 32, 8), "");
        replicate = sg_gen_compare(gen, LLVMIntNE, replicate, sg_gen_const(gen, 32, 0));
        byte = LLVMBuildZExt(B, sg_gen_select(gen, replicate, sign, byte), gen->i32, "");
        value = LLVMBuildOr(B, value, LLVMBuildShl(B, byte, sg_gen_const(gen, 32, 8 * i), ""), "");
    }
    return value;
}

static LLVMValueRef funnel_shift(struct sg_codegen *gen)
{
    LLVMValueRef both = sg_gen_join(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2));
    LLVMValueRef amount = LLVMBuildZExt(B, clamp_or_wrap(gen, sg_gen_operand_u32(gen, 3)), gen->i64, "");
    if (SG_MOD(gen->insn, SG_GROUP_DIRECTION) == SG_RIGHT)
        return LLVMBuildTrunc(B, LLVMBuildLShr(B, both, amount, ""), gen->i32, "");
    both = LLVMBuildShl(B, both, amount, "");
    return LLVMBuildTrunc(B, LLVMBuildLShr(B, both, sg_gen_const(gen, 64, 32), ""), gen->i32, "");
}

/* The function of two bits that a half or quarter of the table says: 2^n entries for n values. */
static LLVMValueRef table_function(struct sg_codegen *gen, uint32_t table, LLVMValueRef *values,
                                   uint32_t count)
{
    uint32_t entries = 1u << (1u << count);
    if ((table & (entries - 1)) == 0)
        return sg_gen_const(gen, 32, 0);
    if ((table & (entries - 1)) == entries - 1)
        return sg_gen_const(gen, 32, UINT32_MAX);
    uint32_t half = 1u << (count - 1);
    LLVMValueRef yes = table_function(gen, table >> half, values + 1, count - 1);
    LLVMValueRef no = table_function(gen, table & ((1u << half) - 1), values + 1, count - 1);
    LLVMValueRef on = LLVMBuildAnd(B, values[0], yes, "");
    return LLVMBuildOr(B, on, LLVMBuildAnd(B, LLVMBuildNot(B, values[0], ""), no, ""), "");
}

static LLVMValueRef any_logic(struct sg_codegen *gen)
{
    LLVMValueRef values[3] = {sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), sg_gen_operand(gen, 3)};
    if (gen->insn->operands[4].kind != SG_OPERAND_INTEGER)
        sg_gen_fail(gen, "the table of lop3 must be a number");
    LLVMValueRef value = table_function(gen, (uint32_t)gen->insn->operands[4].value & 0xff, values, 3);
    if (SG_MOD(gen->insn, SG_GROUP_BOOL) == 0)
        return value;
    LLVMValueRef p = sg_gen_compare(gen, LLVMIntNE, value, sg_gen_const(gen, 32, 0));
    sg_gen_write(gen, &gen->insn->operands[gen->insn->n_operands], SG_PRED, sg_gen_combine(gen, p, 5));
    return value;
}

static LLVMValueRef find_nth(struct sg_codegen *gen)
{
    LLVMValueRef arguments[3] = {sg_gen_operand_u32(gen, 1), sg_gen_operand_u32(gen, 2),
                                 sg_gen_operand_u32(gen, 3)};
    return sg_gen_runtime(gen, "sg_math_fns", gen->i32, arguments, 3);
}

static void write_u32(struct sg_codegen *gen, LLVMValueRef value)
{
    sg_gen_write(gen, &gen->insn->operands[0], SG_U32, value);
}

LLVMValueRef sg_emit_bits(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_AND:
        return LLVMBuildAnd(B, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), "");
    case SG_OP_OR:
        return LLVMBuildOr(B, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), "");
    case SG_OP_XOR:
        return LLVMBuildXor(B, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), "");
    case SG_OP_NOT:
        return LLVMBuildNot(B, sg_gen_operand(gen, 1), "");
    case SG_OP_CNOT: {
        LLVMValueRef a = sg_gen_operand(gen, 1);
        LLVMValueRef zero = sg_gen_compare(gen, LLVMIntEQ, a, LLVMConstNull(LLVMTypeOf(a)));
        return LLVMBuildZExt(B, zero, LLVMTypeOf(a), "");
    }
    case SG_OP_SHL:
        return sg_gen_unwrapped(gen,
                                shift(gen, sg_gen_operand(gen, 1), sg_gen_operand_u32(gen, 2), SHIFT_LEFT));
    case SG_OP_SHR:
        return shift(gen, sg_gen_operand(gen, 1), sg_gen_operand_u32(gen, 2),
                     sg_type_is_signed(sg_gen_type_of(gen)) ? SHIFT_SIGNED : SHIFT_RIGHT);
    case SG_OP_SHF:
        return funnel_shift(gen);
    case SG_OP_LOP3:
        return any_logic(gen);
    case SG_OP_PRMT:
        return permute(gen);
    case SG_OP_BFE:
        return extract_field(gen);
    case SG_OP_BFI:
        return insert_field(gen);
    case SG_OP_BMSK:
        return bit_mask(gen);
    case SG_OP_SZEXT:
        return extend_from(gen);
    case SG_OP_FNS:
        return find_nth(gen);
    case SG_OP_BREV:
        return sg_gen_math(gen, "llvm.bitreverse", sg_gen_operand(gen, 1), NULL, NULL);
    case SG_OP_POPC:
        write_u32(gen, to_u32(gen, sg_gen_math(gen, "llvm.ctpop", sg_gen_operand(gen, 1), NULL, NULL)));
        return NULL;
    case SG_OP_CLZ:
        write_u32(gen, count_leading(gen, sg_gen_operand(gen, 1)));
        return NULL;
    case SG_OP_BFIND:
        write_u32(gen, find_high(gen));
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
