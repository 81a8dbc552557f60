/*
 * approx.c - the approximate functions (ex2, lg2, sin, cos, tanh) of float, as arithmetic that LLVM
 * can compute for many threads at once. They are within two units of the last place (sin and cos: of 1; tanh:
 * 2^-14), which is more than PTX asks for. Polynomials are least-squares fits over the reduced arguments.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static LLVMValueRef real(struct sg_codegen *gen, double value)
{
    return LLVMConstReal(gen->f32, value);
}

static LLVMValueRef real64(struct sg_codegen *gen, double value)
{
    return LLVMConstReal(gen->f64, value);
}

static LLVMValueRef polynomial(struct sg_codegen *gen, LLVMValueRef x, const double *coefficients, int count)
{
    LLVMValueRef value = real(gen, coefficients[count - 1]);
    for (int i = count - 2; i >= 0; i--)
        value = sg_gen_math(gen, "llvm.fmuladd", value, x, real(gen, coefficients[i]));
    return value;
}

/* 2 to the power of a small integer. */
static LLVMValueRef power_of_two(struct sg_codegen *gen, LLVMValueRef n)
{
    LLVMValueRef biased = LLVMBuildAdd(B, n, sg_gen_const(gen, 32, 127), "");
    return sg_gen_cast(gen, LLVMBuildShl(B, biased, sg_gen_const(gen, 32, 23), ""), gen->f32);
}

LLVMValueRef sg_gen_ex2(struct sg_codegen *gen, LLVMValueRef x)
{
    /* 2^f - 1 = f * p(f) for f from -1/2 to 1/2 */
    static const double p[] = {0.693147188029,   0.240226509223,   0.0555035710425,
                               0.00961805666989, 0.00133908673514, 0.000154614474613};
    const double magic = 12582912.0; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    LLVMValueRef low = real(gen, -151.0), high = real(gen, 129.0);
    x = sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOLT, x, low, ""), low, x);
    x = sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOGT, x, high, ""), high, x);
    LLVMValueRef shifted = LLVMBuildFAdd(B, x, real(gen, magic), "");
    LLVMValueRef n =
        LLVMBuildSub(B, sg_gen_cast(gen, shifted, gen->i32), sg_gen_const(gen, 32, 0x4b400000), "");
    LLVMValueRef f = LLVMBuildFSub(B, x, LLVMBuildFSub(B, shifted, real(gen, magic), ""), "");
    LLVMValueRef value = sg_gen_math(gen, "llvm.fmuladd", f, polynomial(gen, f, p, 6), real(gen, 1.0));
    /* in two steps, so that neither overflows before its time; the second rounds denormal results once */
    LLVMValueRef half = LLVMBuildAShr(B, n, sg_gen_const(gen, 32, 1), "");
    value = LLVMBuildFMul(B, value, power_of_two(gen, half), "");
    return LLVMBuildFMul(B, value, power_of_two(gen, LLVMBuildSub(B, n, half, "")), "");
}

LLVMValueRef sg_gen_lg2(struct sg_codegen *gen, LLVMValueRef x)
{
    /* log2(1 + t) = t * q(t) for 1 + t from sqrt(1/2) to sqrt(2) */
    static const double q[] = {1.44269504092,  -0.721347351565, 0.480898212652, -0.360696628714,
                               0.288568896128, -0.239619044422, 0.204575292461, -0.191024980901,
                               0.186312094884, -0.110201594569};
    LLVMValueRef zero = real(gen, 0.0),
                 infinity = LLVMConstBitCast(sg_gen_const(gen, 32, 0x7f800000), gen->f32);
    LLVMValueRef small =
        LLVMBuildFCmp(B, LLVMRealOLT, x, LLVMConstBitCast(sg_gen_const(gen, 32, 0x00800000), gen->f32), "");
    LLVMValueRef scaled = sg_gen_select(gen, small, LLVMBuildFMul(B, x, real(gen, 8388608.0), ""), x);
    LLVMValueRef bits = sg_gen_cast(gen, scaled, gen->i32);
    LLVMValueRef exponent = LLVMBuildSub(B, bits, sg_gen_const(gen, 32, 0x3f3504f3), "");
    exponent = LLVMBuildAShr(B, exponent, sg_gen_const(gen, 32, 23), "");
    bits = LLVMBuildSub(B, bits, LLVMBuildShl(B, exponent, sg_gen_const(gen, 32, 23), ""), "");
    LLVMValueRef t = LLVMBuildFSub(B, sg_gen_cast(gen, bits, gen->f32), real(gen, 1.0), "");
    LLVMValueRef whole = LLVMBuildSIToFP(B, exponent, gen->f32, "");
    whole = sg_gen_select(gen, small, LLVMBuildFSub(B, whole, real(gen, 23.0), ""), whole);
    LLVMValueRef value = sg_gen_math(gen, "llvm.fmuladd", t, polynomial(gen, t, q, 10), whole);
    value =
        sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOLT, x, infinity, ""), value, x); /* infinity and NaN */
    LLVMValueRef nan = LLVMConstBitCast(sg_gen_const(gen, 32, 0x7fffffff), gen->f32);
    value = sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOLT, x, zero, ""), nan, value);
    LLVMValueRef minus = LLVMConstBitCast(sg_gen_const(gen, 32, 0xff800000u), gen->f32);
    return sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOEQ, x, zero, ""), minus, value);
}

LLVMValueRef sg_gen_sine(struct sg_codegen *gen, LLVMValueRef x, bool cosine)
{
    static const double s[] = {-0.166666646651, 0.00833274863461, -0.00019587949872};
    static const double c[] = {0.0416666646618, -0.00138883033396, 2.45479913143e-5};
    /* quarters of a turn, less whole turns, in double: -2 to 2 */
    LLVMValueRef turns =
        LLVMBuildFMul(B, LLVMBuildFPExt(B, x, gen->f64, ""), real64(gen, 0.63661977236758134308), "");
    LLVMValueRef whole =
        sg_gen_math(gen, "llvm.roundeven", LLVMBuildFMul(B, turns, real64(gen, 0.25), ""), NULL, NULL);
    turns = LLVMBuildFSub(B, turns, LLVMBuildFMul(B, whole, real64(gen, 4.0), ""), "");
    LLVMValueRef quarter = sg_gen_math(gen, "llvm.roundeven", turns, NULL, NULL);
    LLVMValueRef angle =
        LLVMBuildFMul(B, LLVMBuildFSub(B, turns, quarter, ""), real64(gen, 1.57079632679489661923), "");
    LLVMValueRef f = LLVMBuildFPTrunc(B, angle, gen->f32, ""), square = LLVMBuildFMul(B, f, f, "");
    LLVMValueRef cube = LLVMBuildFMul(B, square, f, "");
    LLVMValueRef sine = sg_gen_math(gen, "llvm.fmuladd", cube, polynomial(gen, square, s, 3), f);
    LLVMValueRef other = sg_gen_math(gen, "llvm.fmuladd", square, real(gen, -0.5), real(gen, 1.0));
    LLVMValueRef fourth = LLVMBuildFMul(B, square, square, "");
    other = sg_gen_math(gen, "llvm.fmuladd", fourth, polynomial(gen, square, c, 3), other);
    /* which of the two, and with which sign */
    LLVMValueRef place = sg_gen_math(gen, "llvm.fabs", quarter, NULL, NULL);
    LLVMValueRef odd = LLVMBuildFCmp(B, LLVMRealOEQ, place, real64(gen, 1.0), "");
    LLVMValueRef opposite = LLVMBuildFCmp(B, LLVMRealOEQ, place, real64(gen, 2.0), "");
    LLVMValueRef side = LLVMBuildFCmp(B, LLVMRealOEQ, quarter, real64(gen, cosine ? 1.0 : -1.0), "");
    LLVMValueRef value = cosine ? sg_gen_select(gen, odd, sine, other) : sg_gen_select(gen, odd, other, sine);
    value = sg_gen_select(gen, LLVMBuildOr(B, opposite, side, ""), LLVMBuildFNeg(B, value, ""), value);
    if (cosine)
        return value;
    return sg_gen_select(gen, LLVMBuildFCmp(B, LLVMRealOEQ, x, real(gen, 0.0), ""), x, value); /* keeps -0 */
}

LLVMValueRef sg_gen_tanh(struct sg_codegen *gen, LLVMValueRef x)
{
    static const double near_zero[] = {1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835};
    LLVMValueRef one = real(gen, 1.0), magnitude = sg_gen_math(gen, "llvm.fabs", x, NULL, NULL);
    LLVMValueRef power = sg_gen_ex2(gen, LLVMBuildFMul(B, magnitude, real(gen, 2.8853900817779268), ""));
    LLVMValueRef far = LLVMBuildFDiv(B, real(gen, 2.0), LLVMBuildFAdd(B, power, one, ""), "");
    far = LLVMBuildFSub(B, one, far, "");
    LLVMValueRef near = polynomial(gen, LLVMBuildFMul(B, magnitude, magnitude, ""), near_zero, 5);
    near = LLVMBuildFMul(B, near, magnitude, "");
    LLVMValueRef is_near = LLVMBuildFCmp(B, LLVMRealOLT, magnitude, real(gen, 0.55), "");
    return sg_gen_math(gen, "llvm.copysign", sg_gen_select(gen, is_near, near, far), x, NULL);
}
