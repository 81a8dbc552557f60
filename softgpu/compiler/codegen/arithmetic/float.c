/*
 * float.c - floating-point arithmetic. Half precision and bfloat16 compute in float (where one
 * rounding more changes nothing, since float has more than twice their digits) and fused multiply-add in
 * double, rounded to odd. The approximate instructions compute more exactly than a GPU does.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static LLVMValueRef flush_if(struct sg_codegen *gen, LLVMValueRef value)
{
    return sg_gen_flushes(gen) ? sg_gen_flush(gen, value) : value;
}

static LLVMValueRef absolute(struct sg_codegen *gen, LLVMValueRef value)
{
    return sg_gen_math(gen, "llvm.fabs", value, NULL, NULL);
}

static LLVMValueRef widen(struct sg_codegen *gen, LLVMValueRef value)
{
    return LLVMBuildFPExt(B, value, gen->f64, "");
}

/* Operations that need the host's rounding mode changed: functions of math.h take it as last argument. */
static LLVMValueRef with_mode(struct sg_codegen *gen, const char *name32, const char *name64,
                              LLVMValueRef *values, unsigned count)
{
    LLVMValueRef arguments[4];
    for (unsigned i = 0; i < count; i++)
        arguments[i] = values[i];
    arguments[count] = sg_gen_const(gen, 32, sg_gen_rounding(gen));
    bool single = LLVMTypeOf(values[0]) == gen->f32;
    return sg_gen_runtime(gen, single ? name32 : name64, LLVMTypeOf(values[0]), arguments, count + 1);
}

/* --- the arithmetic on one value of float or double --- */

static LLVMValueRef sum(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, bool subtract)
{
    uint8_t round = sg_gen_rounding(gen);
    if (subtract && round != SG_RN)
        b = LLVMBuildFNeg(B, b, "");
    if (round == SG_RN)
        return subtract ? LLVMBuildFSub(B, a, b, "") : LLVMBuildFAdd(B, a, b, "");
    if (LLVMTypeOf(a) == gen->f32)
        return sg_gen_round_sum(gen, widen(gen, a), widen(gen, b), round);
    return with_mode(gen, NULL, "sg_math_add_f64", (LLVMValueRef[]){a, b}, 2);
}

static LLVMValueRef product(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    uint8_t round = sg_gen_rounding(gen);
    if (round == SG_RN)
        return LLVMBuildFMul(B, a, b, "");
    if (LLVMTypeOf(a) == gen->f32)
        return sg_gen_round_f32(gen, LLVMBuildFMul(B, widen(gen, a), widen(gen, b), ""), round);
    return with_mode(gen, NULL, "sg_math_mul_f64", (LLVMValueRef[]){a, b}, 2);
}

static LLVMValueRef fused(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    uint8_t round = sg_gen_rounding(gen);
    if (round == SG_RN)
        return sg_gen_math(gen, "llvm.fma", a, b, c);
    if (LLVMTypeOf(a) == gen->f32)
        return sg_gen_round_sum(gen, LLVMBuildFMul(B, widen(gen, a), widen(gen, b), ""), widen(gen, c),
                                round);
    return with_mode(gen, NULL, "sg_math_fma_f64", (LLVMValueRef[]){a, b, c}, 3);
}

static LLVMValueRef quotient(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    if (sg_gen_rounding(gen) == SG_RN)
        return LLVMBuildFDiv(B, a, b, "");
    return with_mode(gen, "sg_math_div_f32", "sg_math_div_f64", (LLVMValueRef[]){a, b}, 2);
}

static LLVMValueRef root(struct sg_codegen *gen, LLVMValueRef a)
{
    if (sg_gen_rounding(gen) == SG_RN)
        return sg_gen_math(gen, "llvm.sqrt", a, NULL, NULL);
    return with_mode(gen, "sg_math_sqrt_f32", "sg_math_sqrt_f64", &a, 1);
}

/* The .f64 approximations keep the upper word only. */
static LLVMValueRef upper_word(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef bits = LLVMBuildAnd(B, sg_gen_cast(gen, value, gen->i64),
                                     sg_gen_const(gen, 64, UINT64_C(0xffffffff00000000)), "");
    return sg_gen_cast(gen, bits, gen->f64);
}

static LLVMValueRef flush_f64(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i64);
    LLVMValueRef exponent = LLVMBuildAnd(B, bits, sg_gen_const(gen, 64, UINT64_C(0x7ff0000000000000)), "");
    LLVMValueRef sign = LLVMBuildAnd(B, bits, sg_gen_const(gen, 64, UINT64_C(1) << 63), "");
    LLVMValueRef small = sg_gen_compare(gen, LLVMIntEQ, exponent, sg_gen_const(gen, 64, 0));
    return sg_gen_select(gen, small, sg_gen_cast(gen, sign, gen->f64), value);
}

static LLVMValueRef reciprocal(struct sg_codegen *gen, LLVMValueRef a, bool of_root)
{
    bool approximate64 =
        LLVMTypeOf(a) == gen->f64 && SG_MOD(gen->insn, SG_GROUP_APPROX) != 0 && sg_gen_flushes(gen);
    if (approximate64)
        a = flush_f64(gen, a);
    if (of_root)
        a = sg_gen_math(gen, "llvm.sqrt", a, NULL, NULL);
    LLVMValueRef value = quotient(gen, LLVMConstReal(LLVMTypeOf(a), 1.0), a);
    return approximate64 ? upper_word(gen, flush_f64(gen, value)) : value;
}

static LLVMValueRef canonical_nan(struct sg_codegen *gen, LLVMTypeRef type)
{
    LLVMValueRef bits = type == gen->f32 ? sg_gen_const(gen, 32, 0x7fffffff)
                                         : sg_gen_const(gen, 64, UINT64_C(0x7fffffffffffffff));
    return LLVMConstBitCast(bits, type);
}

/* The smaller or larger; NaN loses against a number unless .NaN is given; -0 is smaller than +0. */
static LLVMValueRef extreme(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, bool min)
{
    LLVMTypeRef type = LLVMTypeOf(a), bits = type == gen->f32 ? gen->i32 : gen->i64;
    bool xorsign = SG_MOD(gen->insn, SG_GROUP_XORSIGN) != 0;
    LLVMValueRef sign = NULL;
    bool magnitudes = xorsign || SG_MOD(gen->insn, SG_GROUP_ABS) != 0;
    if (xorsign) {
        LLVMValueRef top = LLVMConstInt(bits, UINT64_C(1) << (type == gen->f32 ? 31 : 63), 0);
        sign = LLVMBuildAnd(B, LLVMBuildXor(B, sg_gen_cast(gen, a, bits), sg_gen_cast(gen, b, bits), ""), top,
                            "");
    }
    if (magnitudes) {
        a = absolute(gen, a);
        b = absolute(gen, b);
    }
    LLVMValueRef a_wins = LLVMBuildFCmp(B, min ? LLVMRealOLT : LLVMRealOGT, a, b, "");
    LLVMValueRef value = sg_gen_select(gen, a_wins, a, b);
    LLVMValueRef a_bits = sg_gen_cast(gen, a, bits), b_bits = sg_gen_cast(gen, b, bits);
    LLVMValueRef merged = min ? LLVMBuildOr(B, a_bits, b_bits, "") : LLVMBuildAnd(B, a_bits, b_bits, "");
    LLVMValueRef equal = LLVMBuildFCmp(B, LLVMRealOEQ, a, b, "");
    value = sg_gen_select(gen, equal, sg_gen_cast(gen, merged, type), value);
    LLVMValueRef a_nan = LLVMBuildFCmp(B, LLVMRealUNO, a, a, ""),
                 b_nan = LLVMBuildFCmp(B, LLVMRealUNO, b, b, "");
    LLVMValueRef nan = canonical_nan(gen, type);
    if (SG_MOD(gen->insn, SG_GROUP_NAN) != 0) {
        value = sg_gen_select(gen, LLVMBuildOr(B, a_nan, b_nan, ""), nan, value);
    } else {
        value = sg_gen_select(gen, b_nan, a, value); /* if a is NaN, b has won already */
        value = sg_gen_select(gen, LLVMBuildAnd(B, a_nan, b_nan, ""), nan, value);
    }
    if (xorsign)
        value = sg_gen_cast(gen, LLVMBuildOr(B, sg_gen_cast(gen, value, bits), sign, ""), type);
    return value;
}

static LLVMValueRef apply(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    switch (gen->insn->form->op) {
    case SG_OP_FADD:
        return sum(gen, a, b, false);
    case SG_OP_FSUB:
        return sum(gen, a, b, true);
    case SG_OP_FMUL:
        return product(gen, a, b);
    case SG_OP_FMA:
        return fused(gen, a, b, c);
    case SG_OP_FDIV:
        return quotient(gen, a, b);
    case SG_OP_RCP:
        return reciprocal(gen, a, false);
    case SG_OP_RSQRT:
        return reciprocal(gen, a, true);
    case SG_OP_SQRT:
        return root(gen, a);
    case SG_OP_SIN:
        return sg_gen_sine(gen, a, false);
    case SG_OP_COS:
        return sg_gen_sine(gen, a, true);
    case SG_OP_EX2:
        return sg_gen_ex2(gen, a);
    case SG_OP_LG2:
        return sg_gen_lg2(gen, a);
    case SG_OP_TANH:
        return sg_gen_tanh(gen, a);
    case SG_OP_FMIN:
        return c == NULL ? extreme(gen, a, b, true) : extreme(gen, extreme(gen, a, b, true), c, true);
    case SG_OP_FMAX:
        return c == NULL ? extreme(gen, a, b, false) : extreme(gen, extreme(gen, a, b, false), c, false);
    case SG_OP_FABS:
        return absolute(gen, a);
    case SG_OP_FNEG:
        return LLVMBuildFNeg(B, a, "");
    default:
        return NULL;
    }
}

/* --- half precision --- */

/* Flushing in half precision: the least normal number is 2^-14; bfloat16 has float's exponents. */
static LLVMValueRef flush_small(struct sg_codegen *gen, LLVMValueRef bits)
{
    bool half = sg_gen_type_of(gen) == SG_F16 || sg_gen_type_of(gen) == SG_F16X2;
    if (!sg_gen_flushes(gen))
        return bits;
    LLVMValueRef exponent = LLVMBuildAnd(B, bits, sg_gen_const(gen, 16, half ? 0x7c00 : 0x7f80), "");
    LLVMValueRef small = sg_gen_compare(gen, LLVMIntEQ, exponent, sg_gen_const(gen, 16, 0));
    return sg_gen_select(gen, small, LLVMBuildAnd(B, bits, sg_gen_const(gen, 16, 0x8000), ""), bits);
}

static LLVMValueRef apply_small(struct sg_codegen *gen, LLVMValueRef *bits, unsigned count)
{
    LLVMValueRef values[3] = {NULL, NULL, NULL}, value;
    enum sg_op op = gen->insn->form->op;
    for (unsigned i = 0; i < count; i++)
        bits[i] = flush_small(gen, bits[i]);
    if (op == SG_OP_FNEG)
        return LLVMBuildXor(B, bits[0], sg_gen_const(gen, 16, 0x8000), "");
    if (op == SG_OP_FABS)
        return LLVMBuildAnd(B, bits[0], sg_gen_const(gen, 16, 0x7fff), "");
    for (unsigned i = 0; i < count; i++)
        values[i] = sg_gen_small_to_f32(gen, sg_gen_type_of(gen), bits[i]);
    if (op == SG_OP_FMA) {
        LLVMValueRef exact = LLVMBuildFMul(B, widen(gen, values[0]), widen(gen, values[1]), "");
        value = sg_gen_f64_to_f32_odd(gen, sg_gen_sum_to_odd(gen, exact, widen(gen, values[2])));
    } else {
        value = apply(gen, values[0], values[1], values[2]);
    }
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        value = sg_gen_saturate(gen, value);
    if (SG_MOD(gen->insn, SG_GROUP_RELU) != 0)
        value = sg_gen_relu(gen, value);
    return flush_small(gen, sg_gen_f32_to_small(gen, sg_gen_type_of(gen), value, SG_RN));
}

static LLVMValueRef finish(struct sg_codegen *gen, LLVMValueRef value)
{
    value = flush_if(gen, value);
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        value = sg_gen_saturate(gen, value);
    return SG_MOD(gen->insn, SG_GROUP_RELU) != 0 ? sg_gen_relu(gen, value) : value;
}

static LLVMValueRef apply_single(struct sg_codegen *gen, LLVMValueRef *values, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        values[i] = flush_if(gen, values[i]);
    return finish(gen, apply(gen, values[0], values[1], values[2]));
}

/* An operand; in forms with two types the factors, or the first summand, are of the second: widened. */
static LLVMValueRef read_float(struct sg_codegen *gen, unsigned i)
{
    const struct sg_form *form = gen->insn->form;
    if (form->n_types < 2 || form->operand[i].type_place != 1)
        return sg_gen_operand(gen, i);
    enum sg_type type = (enum sg_type)gen->insn->types[1];
    return sg_gen_small_to_f32(gen, type, sg_gen_read(gen, &gen->insn->operands[i], type));
}

static void arithmetic(struct sg_codegen *gen)
{
    enum sg_type type = sg_gen_type_of(gen);
    unsigned count = gen->insn->n_operands - 1u;
    LLVMValueRef values[3] = {NULL, NULL, NULL}, lanes[2][3] = {{NULL}};
    for (unsigned i = 0; i < count; i++)
        values[i] = read_float(gen, i + 1);
    if (type == SG_F32 || type == SG_F64) {
        sg_gen_result(gen, apply_single(gen, values, count));
        return;
    }
    if (type == SG_F16 || type == SG_BF16) {
        sg_gen_result(gen, apply_small(gen, values, count));
        return;
    }
    LLVMValueRef results[2];
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned i = 0; i < count; i++) {
            lanes[half][i] = sg_gen_part(gen, values[i], half, type == SG_F32X2 ? 32 : 16);
            if (type == SG_F32X2)
                lanes[half][i] = sg_gen_cast(gen, lanes[half][i], gen->f32);
        }
        results[half] = type == SG_F32X2 ? sg_gen_cast(gen, apply_single(gen, lanes[half], count), gen->i32)
                                         : apply_small(gen, lanes[half], count);
    }
    sg_gen_result(gen, sg_gen_join(gen, results[0], results[1]));
}

static void copy_sign(struct sg_codegen *gen)
{
    /* copysign d, a, b: the sign of a, the magnitude of b */
    sg_gen_result(gen,
                  sg_gen_math(gen, "llvm.copysign", sg_gen_operand(gen, 2), sg_gen_operand(gen, 1), NULL));
}

static void test_property(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1), magnitude = absolute(gen, a), value;
    LLVMTypeRef type = LLVMTypeOf(a);
    bool single = type == gen->f32;
    LLVMValueRef infinity = LLVMConstBitCast(single ? sg_gen_const(gen, 32, 0x7f800000)
                                                    : sg_gen_const(gen, 64, UINT64_C(0x7ff0000000000000)),
                                             type);
    LLVMValueRef least = LLVMConstBitCast(single ? sg_gen_const(gen, 32, 0x00800000)
                                                 : sg_gen_const(gen, 64, UINT64_C(0x0010000000000000)),
                                          type);
    LLVMValueRef zero = LLVMConstReal(type, 0.0);
    switch (SG_MOD(gen->insn, SG_GROUP_TESTP)) {
    case SG_TESTP_FINITE:
        value = LLVMBuildFCmp(B, LLVMRealOLT, magnitude, infinity, "");
        break;
    case SG_TESTP_INFINITE:
        value = LLVMBuildFCmp(B, LLVMRealOEQ, magnitude, infinity, "");
        break;
    case SG_TESTP_NUMBER:
        value = LLVMBuildFCmp(B, LLVMRealORD, a, a, "");
        break;
    case SG_TESTP_NOTANUMBER:
        value = LLVMBuildFCmp(B, LLVMRealUNO, a, a, "");
        break;
    case SG_TESTP_NORMAL:
        value = LLVMBuildAnd(B, LLVMBuildFCmp(B, LLVMRealOGE, magnitude, least, ""),
                             LLVMBuildFCmp(B, LLVMRealOLT, magnitude, infinity, ""), "");
        value =
            LLVMBuildOr(B, value, LLVMBuildFCmp(B, LLVMRealOEQ, a, zero, ""), ""); /* zeros count as normal */
        break;
    default:
        value = LLVMBuildAnd(B, LLVMBuildFCmp(B, LLVMRealOLT, magnitude, least, ""),
                             LLVMBuildFCmp(B, LLVMRealONE, a, zero, ""), "");
        break;
    }
    sg_gen_write(gen, &gen->insn->operands[0], SG_PRED, value);
}

LLVMValueRef sg_emit_float(struct sg_codegen *gen)
{
    enum sg_op op = gen->insn->form->op;
    if (op >= SG_OP_FADD && op <= SG_OP_FNEG)
        arithmetic(gen);
    else if (op == SG_OP_COPYSIGN)
        copy_sign(gen);
    else if (op == SG_OP_TESTP)
        test_property(gen);
    else
        sg_gen_lacks(gen);
    return NULL;
}
