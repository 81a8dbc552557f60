/*
 * round.c - pieces of floating-point arithmetic: flushing of denormal numbers, saturation, directed
 * rounding, half precision.
 *
 * The host's arithmetic rounds to nearest. Directed rounding of float is made exact through double: a product
 * of two floats is exact in double, a sum p + c is s + error with both known exactly (Knuth's two-sum). The
 * nearest float to s is the wanted one or its neighbour, which comparing with s and the sign of the error
 * decides.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static LLVMValueRef zero_like(LLVMValueRef value)
{
    return LLVMConstReal(LLVMTypeOf(value), 0.0);
}

LLVMValueRef sg_gen_flush(struct sg_codegen *gen, LLVMValueRef value)
{
    if (LLVMTypeOf(value) != gen->f32)
        return value;
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32);
    LLVMValueRef sign =
        sg_gen_cast(gen, LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x80000000u), ""), gen->f32);
    LLVMValueRef exponent = LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x7f800000u), "");
    LLVMValueRef small = sg_gen_compare(gen, LLVMIntEQ, exponent, sg_gen_const(gen, 32, 0));
    return sg_gen_select(gen, small, sign, value);
}

LLVMValueRef sg_gen_saturate(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef zero = zero_like(value), one = LLVMConstReal(LLVMTypeOf(value), 1.0);
    /* the first comparison is false for NaN, which becomes 0 */
    value = sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOGT, value, zero, ""), value, zero);
    return sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOLT, value, one, ""), value, one);
}

LLVMValueRef sg_gen_relu(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef negative = LLVMBuildFCmp(B, LLVMRealOLE, value, zero_like(value), "");
    return sg_gen_select(gen, negative, zero_like(value), value);
}

LLVMValueRef sg_gen_clamp_finite(struct sg_codegen *gen, LLVMValueRef value, enum sg_type to)
{
    uint32_t greatest = to == SG_F16 ? 0x477fe000u : 0x7f7f0000u; /* 65504 or bfloat16's greatest */
    LLVMValueRef top = LLVMConstBitCast(sg_gen_const(gen, 32, greatest), gen->f32);
    LLVMValueRef bottom = LLVMConstBitCast(sg_gen_const(gen, 32, greatest | 0x80000000u), gen->f32);
    value = sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOGT, value, top, ""), top, value);
    return sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOLT, value, bottom, ""), bottom, value);
}

/* --- directed rounding --- */

/* s and the error of s = p + c, which is exact. */
static LLVMValueRef two_sum(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c, LLVMValueRef *error)
{
    LLVMValueRef s = LLVMBuildFAdd(B, p, c, "");
    LLVMValueRef c_part = LLVMBuildFSub(B, s, p, "");
    LLVMValueRef p_part = LLVMBuildFSub(B, s, c_part, "");
    *error = LLVMBuildFAdd(B, LLVMBuildFSub(B, p, p_part, ""), LLVMBuildFSub(B, c, c_part, ""), "");
    return s;
}

/* The float below (or above) one that is not NaN. */
static LLVMValueRef neighbour(struct sg_codegen *gen, LLVMValueRef value, bool up)
{
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32);
    LLVMValueRef zero = sg_gen_const(gen, 32, 0), one = sg_gen_const(gen, 32, 1);
    LLVMValueRef negative = sg_gen_compare(gen, LLVMIntSLT, bits, zero);
    LLVMValueRef away = LLVMBuildAdd(B, bits, one, ""), towards = LLVMBuildSub(B, bits, one, "");
    LLVMValueRef step =
        up ? sg_gen_select(gen, negative, towards, away) : sg_gen_select(gen, negative, away, towards);
    LLVMValueRef magnitude = LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x7fffffff), "");
    LLVMValueRef least = sg_gen_const(gen, 32, up ? 1u : 0x80000001u);
    step = sg_gen_select(gen, sg_gen_compare(gen, LLVMIntEQ, magnitude, zero), least, step);
    return sg_gen_cast(gen, step, gen->f32);
}

/* s + error to float, downwards or upwards. */
static LLVMValueRef round_towards(struct sg_codegen *gen, LLVMValueRef s, LLVMValueRef error, bool up)
{
    LLVMValueRef nearest = LLVMBuildFPTrunc(B, s, gen->f32, "");
    LLVMValueRef back = LLVMBuildFPExt(B, nearest, gen->f64, "");
    LLVMRealPredicate beyond = up ? LLVMRealOLT : LLVMRealOGT;
    LLVMValueRef wrong = LLVMBuildFCmp(B, beyond, back, s, "");
    if (error != NULL) {
        LLVMValueRef equal = LLVMBuildFCmp(B, LLVMRealOEQ, back, s, "");
        LLVMValueRef rest = LLVMBuildFCmp(B, up ? LLVMRealOGT : LLVMRealOLT, error, zero_like(error), "");
        wrong = LLVMBuildOr(B, wrong, LLVMBuildAnd(B, equal, rest, ""), "");
    }
    return sg_gen_select(gen, wrong, neighbour(gen, nearest, up), nearest);
}

static LLVMValueRef round_double(struct sg_codegen *gen, LLVMValueRef s, LLVMValueRef error, uint8_t round)
{
    switch (round) {
    case SG_RM:
        return round_towards(gen, s, error, false);
    case SG_RP:
        return round_towards(gen, s, error, true);
    case SG_RZ: {
        LLVMValueRef negative = LLVMBuildFCmp(B, LLVMRealOLT, s, zero_like(s), "");
        return sg_gen_select(gen, negative, round_towards(gen, s, error, true),
                             round_towards(gen, s, error, false));
    }
    default:
        return LLVMBuildFPTrunc(B, s, gen->f32, "");
    }
}

LLVMValueRef sg_gen_round_f32(struct sg_codegen *gen, LLVMValueRef value, uint8_t round)
{
    return round_double(gen, value, NULL, round);
}

LLVMValueRef sg_gen_round_sum(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c, uint8_t round)
{
    LLVMValueRef error;
    LLVMValueRef s = two_sum(gen, p, c, &error);
    LLVMValueRef value = round_double(gen, s, error, round);
    if (round != SG_RM)
        return value;
    /* rounding down, a sum that cancels is -0 */
    LLVMValueRef zero = LLVMBuildFCmp(B, LLVMRealOEQ, s, zero_like(s), "");
    LLVMValueRef signs = LLVMBuildOr(B, sg_gen_cast(gen, p, gen->i64), sg_gen_cast(gen, c, gen->i64), "");
    LLVMValueRef negative = sg_gen_compare(gen, LLVMIntSLT, signs, sg_gen_const(gen, 64, 0));
    LLVMValueRef minus = LLVMConstReal(gen->f32, -0.0);
    return sg_gen_select(gen, LLVMBuildAnd(B, zero, negative, ""), minus, value);
}

LLVMValueRef sg_gen_sum_to_odd(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c)
{
    LLVMValueRef error;
    LLVMValueRef s = two_sum(gen, p, c, &error);
    LLVMValueRef bits = sg_gen_cast(gen, s, gen->i64), one = sg_gen_const(gen, 64, 1);
    LLVMValueRef inexact = LLVMBuildFCmp(B, LLVMRealONE, error, zero_like(error), "");
    LLVMValueRef odd = LLVMBuildTrunc(B, bits, gen->i1, "");
    LLVMValueRef error_up = LLVMBuildFCmp(B, LLVMRealOGT, error, zero_like(error), "");
    LLVMValueRef s_up = LLVMBuildFCmp(B, LLVMRealOGT, s, zero_like(s), "");
    LLVMValueRef away = LLVMBuildNot(B, LLVMBuildXor(B, error_up, s_up, ""), "");
    LLVMValueRef step =
        sg_gen_select(gen, away, LLVMBuildAdd(B, bits, one, ""), LLVMBuildSub(B, bits, one, ""));
    LLVMValueRef moves = LLVMBuildAnd(B, inexact, LLVMBuildNot(B, odd, ""), "");
    return sg_gen_cast(gen, sg_gen_select(gen, moves, step, bits), gen->f64);
}

LLVMValueRef sg_gen_f64_to_f32_odd(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef cut = round_double(gen, value, NULL, SG_RZ);
    LLVMValueRef back = LLVMBuildFPExt(B, cut, gen->f64, "");
    LLVMValueRef inexact = LLVMBuildFCmp(B, LLVMRealONE, back, value, "");
    LLVMValueRef bits = sg_gen_cast(gen, cut, gen->i32);
    bits = LLVMBuildOr(B, bits, LLVMBuildZExt(B, inexact, gen->i32, ""), "");
    return sg_gen_cast(gen, bits, gen->f32);
}

/* --- half precision and bfloat16 --- */

static LLVMValueRef half_to_f32(struct sg_codegen *gen, LLVMValueRef bits)
{
    if (!gen->has_half)
        return sg_gen_runtime(gen, "sg_math_half_to_float", gen->f32,
                              (LLVMValueRef[]){LLVMBuildZExt(B, bits, gen->i32, "")}, 1);
    return LLVMBuildFPExt(B, sg_gen_cast(gen, bits, LLVMHalfTypeInContext(gen->context)), gen->f32, "");
}

LLVMValueRef sg_gen_f32_to_half(struct sg_codegen *gen, LLVMValueRef value, uint8_t round)
{
    if (!gen->has_half || round != SG_RN) {
        LLVMValueRef arguments[2] = {value, sg_gen_const(gen, 32, round)};
        LLVMValueRef bits = sg_gen_runtime(gen, "sg_math_float_to_half", gen->i32, arguments, 2);
        return LLVMBuildTrunc(B, bits, sg_gen_int(gen, 16), "");
    }
    LLVMTypeRef i16 = sg_gen_int(gen, 16);
    LLVMValueRef half = LLVMBuildFPTrunc(B, value, LLVMHalfTypeInContext(gen->context), "");
    LLVMValueRef nan = LLVMBuildFCmp(B, LLVMRealUNO, value, value, "");
    return sg_gen_select(gen, nan, LLVMConstInt(i16, 0x7fff, 0), sg_gen_cast(gen, half, i16));
}

static LLVMValueRef bf16_to_f32(struct sg_codegen *gen, LLVMValueRef bits)
{
    bits = LLVMBuildShl(B, LLVMBuildZExt(B, bits, gen->i32, ""), sg_gen_const(gen, 32, 16), "");
    return sg_gen_cast(gen, bits, gen->f32);
}

static LLVMValueRef f32_to_bf16(struct sg_codegen *gen, LLVMValueRef value, uint8_t round)
{
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32), sixteen = sg_gen_const(gen, 32, 16);
    LLVMValueRef nan = LLVMBuildFCmp(B, LLVMRealUNO, value, value, "");
    LLVMValueRef negative = sg_gen_compare(gen, LLVMIntSLT, bits, sg_gen_const(gen, 32, 0));
    LLVMValueRef add = sg_gen_const(gen, 32, 0), all = sg_gen_const(gen, 32, 0xffff);
    if (round == SG_RN)
        add = LLVMBuildAdd(B,
                           LLVMBuildAnd(B, LLVMBuildLShr(B, bits, sixteen, ""), sg_gen_const(gen, 32, 1), ""),
                           sg_gen_const(gen, 32, 0x7fff), "");
    else if (round == SG_RM)
        add = sg_gen_select(gen, negative, all, add);
    else if (round == SG_RP)
        add = sg_gen_select(gen, negative, add, all);
    /* infinities have no lower bits that could carry */
    LLVMValueRef magnitude = LLVMBuildAnd(B, bits, sg_gen_const(gen, 32, 0x7fffffff), "");
    LLVMValueRef infinite = sg_gen_compare(gen, LLVMIntEQ, magnitude, sg_gen_const(gen, 32, 0x7f800000));
    bits = sg_gen_select(gen, infinite, bits, LLVMBuildAdd(B, bits, add, ""));
    LLVMValueRef top = LLVMBuildTrunc(B, LLVMBuildLShr(B, bits, sixteen, ""), sg_gen_int(gen, 16), "");
    return sg_gen_select(gen, nan, sg_gen_const(gen, 16, 0x7fff), top);
}

LLVMValueRef sg_gen_small_to_f32(struct sg_codegen *gen, enum sg_type type, LLVMValueRef bits)
{
    bool half = type == SG_F16 || type == SG_F16X2;
    return half ? half_to_f32(gen, bits) : bf16_to_f32(gen, bits);
}

LLVMValueRef sg_gen_f32_to_small(struct sg_codegen *gen, enum sg_type type, LLVMValueRef value, uint8_t round)
{
    bool half = type == SG_F16 || type == SG_F16X2;
    return half ? sg_gen_f32_to_half(gen, value, round) : f32_to_bf16(gen, value, round);
}
