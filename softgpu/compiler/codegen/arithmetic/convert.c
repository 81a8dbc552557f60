/*
 * convert.c - cvt. Conversions to integers clamp; NaN becomes 0, but the smallest number (or,
 * unsigned, the top bit) if a double is converted or the integer has 64 bits.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static bool is_small(enum sg_type type)
{
    return type == SG_F16 || type == SG_BF16;
}

/* --- integers --- */

static LLVMValueRef clamp_integer(struct sg_codegen *gen, LLVMValueRef value, enum sg_type from,
                                  enum sg_type to)
{
    unsigned from_bits = sg_types[from].bits, to_bits = sg_types[to].bits;
    bool from_signed = sg_type_is_signed(from), to_signed = sg_type_is_signed(to);
    LLVMTypeRef type = LLVMTypeOf(value);
    if (from_signed && !to_signed)
        value = sg_gen_math(gen, "llvm.smax", value, LLVMConstNull(type), NULL);
    unsigned top_bits = to_signed ? to_bits - 1 : to_bits;
    if (top_bits >= (from_signed ? from_bits - 1 : from_bits))
        return value;
    uint64_t top = (UINT64_C(1) << top_bits) - 1;
    value =
        sg_gen_math(gen, from_signed ? "llvm.smin" : "llvm.umin", value, LLVMConstInt(type, top, 0), NULL);
    if (from_signed && to_signed)
        value = sg_gen_math(gen, "llvm.smax", value, LLVMConstInt(type, ~top, 1), NULL);
    return value;
}

static LLVMValueRef integer_to_integer(struct sg_codegen *gen, LLVMValueRef value, enum sg_type from,
                                       enum sg_type to)
{
    unsigned from_bits = sg_types[from].bits, to_bits = sg_types[to].bits;
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        value = clamp_integer(gen, value, from, to);
    if (to_bits < from_bits)
        return LLVMBuildTrunc(B, value, sg_gen_int(gen, to_bits), "");
    if (to_bits == from_bits)
        return value;
    return sg_type_is_signed(from) ? LLVMBuildSExt(B, value, sg_gen_int(gen, to_bits), "")
                                   : LLVMBuildZExt(B, value, sg_gen_int(gen, to_bits), "");
}

/* --- floating point to integers, and to whole numbers --- */

static LLVMValueRef to_whole(struct sg_codegen *gen, LLVMValueRef value)
{
    static const char *const names[] = {[SG_RNI] = "llvm.roundeven",
                                        [SG_RZI] = "llvm.trunc",
                                        [SG_RMI] = "llvm.floor",
                                        [SG_RPI] = "llvm.ceil"};
    uint8_t mode = SG_MOD(gen->insn, SG_GROUP_RINT);
    return mode == 0 ? value : sg_gen_math(gen, names[mode], value, NULL, NULL);
}

static LLVMValueRef float_to_integer(struct sg_codegen *gen, LLVMValueRef value, enum sg_type from,
                                     enum sg_type to)
{
    unsigned bits = sg_types[to].bits;
    if (SG_MOD(gen->insn, SG_GROUP_RINT) != SG_RZI)
        value = to_whole(gen, value);
    LLVMTypeRef types[2] = {sg_gen_int(gen, bits), LLVMTypeOf(value)};
    const char *name = sg_type_is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
    LLVMValueRef result = sg_gen_intrinsic(gen, name, types, 2, &value, 1);
    if (from != SG_F64 && bits != 64)
        return result;
    LLVMValueRef nan = LLVMBuildFCmp(B, LLVMRealUNO, value, value, "");
    return sg_gen_select(gen, nan, sg_gen_const(gen, bits, UINT64_C(1) << (bits - 1)), result);
}

/* --- integers to floating point --- */

/* A 64-bit integer that double cannot hold, with the bits that do not fit folded into one that does. */
static LLVMValueRef fold_low_bits(struct sg_codegen *gen, LLVMValueRef value, bool is_signed)
{
    LLVMValueRef low = LLVMBuildAnd(B, value, sg_gen_const(gen, 64, 0xfff), "");
    LLVMValueRef some = sg_gen_compare(gen, LLVMIntNE, low, sg_gen_const(gen, 64, 0));
    LLVMValueRef sticky = sg_gen_select(gen, some, sg_gen_const(gen, 64, 0x800), sg_gen_const(gen, 64, 0));
    LLVMValueRef folded =
        LLVMBuildOr(B, LLVMBuildAnd(B, value, sg_gen_const(gen, 64, ~UINT64_C(0xfff)), ""), sticky, "");
    LLVMValueRef magnitude = value;
    if (is_signed)
        magnitude = sg_gen_math(gen, "llvm.umin", value, LLVMBuildNeg(B, value, ""), NULL);
    LLVMValueRef big = sg_gen_compare(gen, LLVMIntUGE, magnitude, sg_gen_const(gen, 64, UINT64_C(1) << 53));
    return sg_gen_select(gen, big, folded, value);
}

static LLVMValueRef to_double(struct sg_codegen *gen, LLVMValueRef value, bool is_signed)
{
    return is_signed ? LLVMBuildSIToFP(B, value, gen->f64, "") : LLVMBuildUIToFP(B, value, gen->f64, "");
}

static LLVMValueRef integer_to_float(struct sg_codegen *gen, LLVMValueRef value, enum sg_type from,
                                     enum sg_type to)
{
    bool is_signed = sg_type_is_signed(from), wide = sg_types[from].bits == 64;
    uint8_t round = sg_gen_rounding(gen);
    if (to == SG_F64) {
        if (round == SG_RN || !wide)
            return to_double(gen, value, is_signed);
        LLVMValueRef arguments[3] = {value, sg_gen_const(gen, 32, is_signed), sg_gen_const(gen, 32, round)};
        return sg_gen_runtime(gen, "sg_math_integer_to_f64", gen->f64, arguments, 3);
    }
    if (to == SG_F32 && round == SG_RN)
        return is_signed ? LLVMBuildSIToFP(B, value, gen->f32, "") : LLVMBuildUIToFP(B, value, gen->f32, "");
    LLVMValueRef exact = to_double(gen, wide ? fold_low_bits(gen, value, is_signed) : value, is_signed);
    if (to == SG_F32)
        return sg_gen_round_f32(gen, exact, round);
    return sg_gen_f32_to_small(gen, to, sg_gen_f64_to_f32_odd(gen, exact), round);
}

/* --- between floating-point types --- */

static LLVMValueRef f32_to_tf32(struct sg_codegen *gen, LLVMValueRef value, uint8_t round)
{
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32), add = sg_gen_const(gen, 32, 0);
    if (round == SG_RNA)
        add = sg_gen_const(gen, 32, 0x1000);
    else if (round == SG_RN)
        add = LLVMBuildAdd(B,
                           LLVMBuildAnd(B, LLVMBuildLShr(B, bits, sg_gen_const(gen, 32, 13), ""),
                                        sg_gen_const(gen, 32, 1), ""),
                           sg_gen_const(gen, 32, 0xfff), "");
    LLVMValueRef special = LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x7f800000), "");
    special = sg_gen_compare(gen, LLVMIntEQ, special, sg_gen_const(gen, 32, 0x7f800000));
    LLVMValueRef rounded =
        LLVMBuildAnd(B, LLVMBuildAdd(B, bits, add, ""), sg_gen_const(gen, 32, 0xffffe000u), "");
    if (SG_MOD(gen->insn, SG_GROUP_SATFINITE) == 0)
        return sg_gen_select(gen, special, bits, rounded);
    /* infinity, or what has been rounded up to it, becomes the greatest number */
    LLVMValueRef sign = LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x80000000u), "");
    LLVMValueRef magnitude = LLVMBuildAnd(B, rounded, sg_gen_const(gen, 32, 0x7fffffff), "");
    magnitude = sg_gen_math(gen, "llvm.umin", magnitude, sg_gen_const(gen, 32, 0x7f7fe000), NULL);
    LLVMValueRef nan = LLVMBuildFCmp(B, LLVMRealUNO, value, value, "");
    return sg_gen_select(gen, nan, sg_gen_const(gen, 32, 0x7fffffff), LLVMBuildOr(B, sign, magnitude, ""));
}

static LLVMValueRef float_to_float(struct sg_codegen *gen, LLVMValueRef value, enum sg_type from,
                                   enum sg_type to)
{
    value = to_whole(gen, value);
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        value = sg_gen_saturate(gen, value);
    if (SG_MOD(gen->insn, SG_GROUP_RELU) != 0)
        value = sg_gen_relu(gen, value);
    if (to == SG_TF32)
        return f32_to_tf32(gen, value, sg_gen_rounding(gen));
    if (to == SG_F64)
        return from == SG_F64 ? value : LLVMBuildFPExt(B, value, gen->f64, "");
    if (to == SG_F32) {
        if (from == SG_F64)
            value = sg_gen_round_f32(gen, value, sg_gen_rounding(gen));
        return sg_gen_flushes(gen) ? sg_gen_flush(gen, value) : value;
    }
    if (from == SG_F64)
        value = sg_gen_f64_to_f32_odd(gen, value);
    if (SG_MOD(gen->insn, SG_GROUP_SATFINITE) != 0)
        value = sg_gen_clamp_finite(gen, value, to);
    return sg_gen_f32_to_small(gen, to, value, sg_gen_rounding(gen));
}

static void convert(struct sg_codegen *gen)
{
    enum sg_type to = sg_gen_type_of(gen), from = (enum sg_type)gen->insn->types[1];
    LLVMValueRef value = sg_gen_read(gen, &gen->insn->operands[1], from);
    bool from_float = sg_type_is_float(from), to_float = sg_type_is_float(to) || to == SG_TF32;
    if (is_small(from))
        value = sg_gen_small_to_f32(gen, from, value);
    if (from == SG_F32 && sg_gen_flushes(gen))
        value = sg_gen_flush(gen, value);
    if (from_float)
        value = to_float ? float_to_float(gen, value, from, to) : float_to_integer(gen, value, from, to);
    else
        value = to_float ? integer_to_float(gen, value, from, to) : integer_to_integer(gen, value, from, to);
    if (!from_float && to_float && SG_MOD(gen->insn, SG_GROUP_SAT) != 0 && !is_small(to))
        value = sg_gen_saturate(gen, value);
    sg_gen_write(gen, &gen->insn->operands[0], to, value);
}

/* Two integers saturated to a smaller type, a above b, below what the other operand has of lower bits. */
static void saturate_and_pack(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type to = (enum sg_type)insn->types[0];
    bool is_signed = to == SG_S2 || to == SG_S4 || sg_type_is_signed(to);
    unsigned bits = sg_types[to].bits;
    int64_t top = is_signed ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
    int64_t bottom = is_signed ? -top - 1 : 0;
    LLVMValueRef packed = sg_gen_const(gen, 32, 0);
    if (insn->n_operands > 3)
        packed = LLVMBuildShl(B, sg_gen_read(gen, &insn->operands[3], SG_B32),
                              sg_gen_const(gen, 32, 2u * bits), "");
    for (uint32_t i = 0; i < 2; i++) {
        LLVMValueRef value = sg_gen_read(gen, &insn->operands[2 - i], SG_S32);
        value = sg_gen_math(gen, "llvm.smin", value, sg_gen_const(gen, 32, (uint64_t)top & 0xffffffff), NULL);
        value =
            sg_gen_math(gen, "llvm.smax", value, sg_gen_const(gen, 32, (uint64_t)bottom & 0xffffffff), NULL);
        value = LLVMBuildAnd(B, value, sg_gen_const(gen, 32, (UINT64_C(1) << bits) - 1), "");
        packed =
            LLVMBuildOr(B, packed, LLVMBuildShl(B, value, sg_gen_const(gen, 32, (uint64_t)i * bits), ""), "");
    }
    sg_gen_write(gen, &insn->operands[0], SG_B32, packed);
}

LLVMValueRef sg_emit_conversion(struct sg_codegen *gen)
{
    if (gen->insn->form->op == SG_OP_CVT)
        convert(gen);
    else if (gen->insn->form->op == SG_OP_CVT_PACK)
        sg_gen_convert_pair(gen);
    else if (gen->insn->form->op == SG_OP_CVT_SATURATE_PACK)
        saturate_and_pack(gen);
    else
        sg_gen_lacks(gen);
    return NULL;
}
