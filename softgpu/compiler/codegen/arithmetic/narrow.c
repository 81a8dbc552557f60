/*
 * narrow.c - conversions of pairs: halves, numbers of 8, 6 and 4 bits, and scales (.ue8m0), which are powers
 * of two. All of it is arithmetic on words without branches, so that LLVM can do it for several threads at
 * once.
 *
 * To a narrow format: of a number that is normal there, the digits that are dropped decide about the rounding
 * of the rest; a smaller one is added to a number whose last digit is the format's least, so that the
 * addition rounds it. What is too large becomes the greatest number, and so does NaN, without its sign, where
 * the format has none.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

struct narrow_format {
    uint8_t exponent, mantissa;
    uint8_t greatest, nan; /* magnitudes; nan: what becomes of it */
};

static struct narrow_format narrow_format(enum sg_type type)
{
    switch (type) {
    case SG_E4M3X2:
        return (struct narrow_format){4, 3, 0x7e, 0x7f};
    case SG_E5M2X2:
        return (struct narrow_format){5, 2, 0x7b, 0x7f};
    case SG_E2M3X2:
        return (struct narrow_format){2, 3, 0x1f, 0x1f};
    case SG_E3M2X2:
        return (struct narrow_format){3, 2, 0x1f, 0x1f};
    case SG_E2M1X2:
        return (struct narrow_format){2, 1, 0x07, 0x07};
    default:
        return (struct narrow_format){0};
    }
}

static LLVMValueRef word(struct sg_codegen *gen, uint32_t value)
{
    return sg_gen_const(gen, 32, value);
}

static LLVMValueRef float_of_bits(struct sg_codegen *gen, uint32_t bits)
{
    return LLVMConstBitCast(word(gen, bits), gen->f32);
}

/* The bits of 2^power, a normal float. */
static uint32_t power_of_two(int power)
{
    return (uint32_t)(power + 127) << 23;
}

static int bias_of(struct narrow_format format)
{
    return (1 << (format.exponent - 1)) - 1;
}

static LLVMValueRef to_narrow(struct sg_codegen *gen, LLVMValueRef value, struct narrow_format format)
{
    int bias = bias_of(format), dropped = 23 - format.mantissa;
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32);
    LLVMValueRef magnitude = LLVMBuildAnd(B, bits, word(gen, 0x7fffffff), "");
    LLVMValueRef last =
        LLVMBuildAnd(B, LLVMBuildLShr(B, magnitude, word(gen, (uint32_t)dropped), ""), word(gen, 1), "");
    LLVMValueRef normal = LLVMBuildAdd(B, magnitude, word(gen, (1u << (dropped - 1)) - 1), "");
    normal = LLVMBuildLShr(B, LLVMBuildAdd(B, normal, last, ""), word(gen, (uint32_t)dropped), "");
    normal = LLVMBuildSub(B, normal, word(gen, (uint32_t)(127 - bias) << format.mantissa), "");
    uint32_t unit = power_of_two(1 - bias - format.mantissa + 23);
    LLVMValueRef small =
        LLVMBuildFAdd(B, sg_gen_cast(gen, magnitude, gen->f32), float_of_bits(gen, unit), "");
    small = LLVMBuildSub(B, sg_gen_cast(gen, small, gen->i32), word(gen, unit), "");
    LLVMValueRef is_small = sg_gen_compare(gen, LLVMIntULT, magnitude, word(gen, power_of_two(1 - bias)));
    LLVMValueRef code = sg_gen_select(gen, is_small, small, normal);
    code = sg_gen_math(gen, "llvm.umin", code, word(gen, format.greatest), NULL);
    LLVMValueRef sign = LLVMBuildLShr(B, bits, word(gen, 31), "");
    sign = LLVMBuildShl(B, sign, word(gen, (uint32_t)format.exponent + format.mantissa), "");
    LLVMValueRef nan = sg_gen_compare(gen, LLVMIntUGT, magnitude, word(gen, 0x7f800000));
    return sg_gen_select(gen, nan, word(gen, format.nan), LLVMBuildOr(B, code, sign, ""));
}

static LLVMValueRef from_narrow(struct sg_codegen *gen, LLVMValueRef code, struct narrow_format format)
{
    uint32_t digits = (uint32_t)format.exponent + format.mantissa, top = 1u << digits;
    LLVMValueRef magnitude = LLVMBuildAnd(B, code, word(gen, top - 1), "");
    /* with a float's exponent in place of the format's; a multiplication puts it right */
    LLVMValueRef value = LLVMBuildShl(B, magnitude, word(gen, 23u - format.mantissa), "");
    value = LLVMBuildFMul(B, sg_gen_cast(gen, value, gen->f32),
                          float_of_bits(gen, power_of_two(127 - bias_of(format))), "");
    value = sg_gen_cast(gen, value, gen->i32);
    if (format.nan > format.greatest) {
        uint32_t infinity = format.exponent == 5 ? 0x7f800000 : 0x7fffffff;
        LLVMValueRef first = sg_gen_compare(gen, LLVMIntEQ, magnitude, word(gen, format.greatest + 1u));
        LLVMValueRef beyond = sg_gen_compare(gen, LLVMIntUGT, magnitude, word(gen, format.greatest));
        value = sg_gen_select(gen, beyond,
                              sg_gen_select(gen, first, word(gen, infinity), word(gen, 0x7fffffff)), value);
    }
    LLVMValueRef sign =
        LLVMBuildShl(B, LLVMBuildAnd(B, code, word(gen, top), ""), word(gen, 31 - digits), "");
    return sg_gen_cast(gen, LLVMBuildOr(B, value, sign, ""), gen->f32);
}

/* --- scales --- */

/*
 * The magnitude as a power of two: its exponent's field, one more if it is rounded up; the least is 2^-127.
 */
static LLVMValueRef to_scale(struct sg_codegen *gen, LLVMValueRef value)
{
    LLVMValueRef bits = LLVMBuildAnd(B, sg_gen_cast(gen, value, gen->i32), word(gen, 0x7fffffff), "");
    LLVMValueRef scale = LLVMBuildLShr(B, bits, word(gen, 23), "");
    if (SG_MOD(gen->insn, SG_GROUP_ROUND) == SG_RP) {
        LLVMValueRef rest = LLVMBuildAnd(B, bits, word(gen, 0x7fffff), "");
        LLVMValueRef up = sg_gen_compare(gen, LLVMIntNE, rest, word(gen, 0));
        up = LLVMBuildAnd(B, up, sg_gen_compare(gen, LLVMIntUGT, bits, word(gen, 0x400000)), "");
        scale = LLVMBuildAdd(B, scale, LLVMBuildZExt(B, up, gen->i32, ""), "");
    }
    uint32_t greatest = SG_MOD(gen->insn, SG_GROUP_SATFINITE) != 0 ? 0xfe : 0xff;
    scale = sg_gen_math(gen, "llvm.umin", scale, word(gen, greatest), NULL);
    LLVMValueRef nan = sg_gen_compare(gen, LLVMIntUGT, bits, word(gen, 0x7f800000));
    return sg_gen_select(gen, nan, word(gen, 0xff), scale);
}

/* 2^(scale - 127): a float's exponent, but for the least one and NaN. */
static LLVMValueRef from_scale(struct sg_codegen *gen, LLVMValueRef scale)
{
    LLVMValueRef bits = LLVMBuildShl(B, scale, word(gen, 23), "");
    bits =
        sg_gen_select(gen, sg_gen_compare(gen, LLVMIntEQ, scale, word(gen, 0)), word(gen, 0x00400000), bits);
    bits = sg_gen_select(gen, sg_gen_compare(gen, LLVMIntEQ, scale, word(gen, 0xff)), word(gen, 0x7fffffff),
                         bits);
    return sg_gen_cast(gen, bits, gen->f32);
}

/* --- pairs --- */

static unsigned bits_of_part(enum sg_type type)
{
    return sg_types[type].bits / 2u;
}

/* Number i of a pair, as a float. */
static LLVMValueRef widen_part(struct sg_codegen *gen, LLVMValueRef packed, unsigned i, enum sg_type from)
{
    LLVMValueRef bits = sg_gen_part(gen, packed, i, bits_of_part(from));
    if (from == SG_F16X2 || from == SG_BF16X2)
        return sg_gen_small_to_f32(gen, from == SG_F16X2 ? SG_F16 : SG_BF16, bits);
    bits = LLVMBuildZExt(B, bits, gen->i32, "");
    return from == SG_UE8M0X2 ? from_scale(gen, bits) : from_narrow(gen, bits, narrow_format(from));
}

static LLVMValueRef narrow_part(struct sg_codegen *gen, LLVMValueRef value, enum sg_type to)
{
    if (SG_MOD(gen->insn, SG_GROUP_RELU) != 0)
        value = sg_gen_relu(gen, value);
    if (to == SG_F16X2 || to == SG_BF16X2) {
        enum sg_type half = to == SG_F16X2 ? SG_F16 : SG_BF16;
        if (SG_MOD(gen->insn, SG_GROUP_SATFINITE) != 0)
            value = sg_gen_clamp_finite(gen, value, half);
        return sg_gen_f32_to_small(gen, half, value, SG_MOD(gen->insn, SG_GROUP_ROUND));
    }
    LLVMValueRef code = to == SG_UE8M0X2 ? to_scale(gen, value) : to_narrow(gen, value, narrow_format(to));
    return LLVMBuildTrunc(B, code, sg_gen_int(gen, bits_of_part(to)), "");
}

/* d = {a, b}, a in the upper half; or a pair of one format to a pair of another. */
void sg_gen_convert_pair(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type to = (enum sg_type)insn->types[0], from = (enum sg_type)insn->types[1];
    LLVMValueRef high, low;
    if (from == SG_F32) {
        high = sg_gen_read(gen, &insn->operands[1], SG_F32);
        low = sg_gen_read(gen, &insn->operands[2], SG_F32);
    } else {
        LLVMValueRef packed = sg_gen_read(gen, &insn->operands[1], from);
        low = widen_part(gen, packed, 0, from);
        high = widen_part(gen, packed, 1, from);
    }
    sg_gen_write(gen, &insn->operands[0], to,
                 sg_gen_join(gen, narrow_part(gen, low, to), narrow_part(gen, high, to)));
}
