/*
 * float.c - floating point: rounding modes, denormals, NaN, infinities, signs of zero; conversions at
 * their limits; half precision. Values are bits.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define INF32  0x7f800000u
#define NAN32  0x7fc00000u
#define CANON  0x7fffffffu
#define MAX32  0x7f7fffffu
#define ONE32  0x3f800000u
#define MINUS0 0x80000000u
#define LEAST  0x00800000u

static const struct {
    const char *insn;
    uint32_t a, b, c, expected;
} cases[] = {
    {"add.f32 %f0, %f1, %f2;", ONE32, ONE32, 0, 0x40000000},
    {"add.ftz.f32 %f0, %f1, %f2;", 0x80000001, 0, 0, 0},
    {"add.f32 %f0, %f1, %f2;", 1, 1, 0, 2},
    {"mul.ftz.f32 %f0, %f1, %f2;", LEAST, 0x3f000000, 0, 0},
    {"mul.f32 %f0, %f1, %f2;", LEAST, 0x3f000000, 0, 0x00400000},
    {"add.sat.f32 %f0, %f1, %f2;", ONE32, ONE32, 0, ONE32},
    {"add.sat.f32 %f0, %f1, %f2;", NAN32, ONE32, 0, 0},
    {"add.sat.f32 %f0, %f1, %f2;", 0xbf800000, 0, 0, 0},
    {"add.rz.f32 %f0, %f1, %f2;", ONE32, 0x33800001, 0, ONE32},
    {"add.rp.f32 %f0, %f1, %f2;", ONE32, 1, 0, ONE32 + 1},
    {"add.rm.f32 %f0, %f1, %f2;", ONE32, 0x80000001, 0, ONE32 - 1},
    {"add.rz.f32 %f0, %f1, %f2;", MAX32, MAX32, 0, MAX32},
    {"add.rp.f32 %f0, %f1, %f2;", MAX32, MAX32, 0, INF32},
    {"add.rm.f32 %f0, %f1, %f2;", ONE32, 0xbf800000, 0, MINUS0},
    {"add.rp.f32 %f0, %f1, %f2;", ONE32, 0xbf800000, 0, 0},
    {"add.rz.f32 %f0, %f1, %f2;", INF32, ONE32, 0, INF32},
    {"sub.rm.f32 %f0, %f1, %f2;", 0, 0, 0, MINUS0},
    {"mul.rz.f32 %f0, %f1, %f2;", 1, 0x3f000000, 0, 0},
    {"mul.rp.f32 %f0, %f1, %f2;", 1, 0x3f000000, 0, 1},
    {"mul.rm.f32 %f0, %f1, %f2;", 1, 0xbf000000, 0, 0x80000001},
    {"fma.rn.f32 %f0, %f1, %f2, %f3;", ONE32 + 1, ONE32 + 1, 0xbf800002, 0x28800000},
    {"fma.rm.f32 %f0, %f1, %f2, %f3;", ONE32, ONE32, 0x80000001, ONE32 - 1},
    {"div.rn.f32 %f0, %f1, %f2;", ONE32, 0, 0, INF32},
    {"div.rz.f32 %f0, %f1, %f2;", ONE32, 0x40400000, 0, 0x3eaaaaaa},
    {"div.rp.f32 %f0, %f1, %f2;", ONE32, 0x40400000, 0, 0x3eaaaaab},
    {"rcp.rn.f32 %f0, %f1;", MINUS0, 0, 0, 0xff800000},
    {"sqrt.rn.f32 %f0, %f1;", 0x40800000, 0, 0, 0x40000000},
    {"sqrt.rp.f32 %f0, %f1;", 0x40000000, 0, 0, 0x3fb504f4},
    {"rsqrt.approx.f32 %f0, %f1;", 0x40800000, 0, 0, 0x3f000000},
    {"ex2.approx.ftz.f32 %f0, %f1;", 0x40400000, 0, 0, 0x41000000},
    {"lg2.approx.f32 %f0, %f1;", 0x41000000, 0, 0, 0x40400000},
    {"min.f32 %f0, %f1, %f2;", NAN32, ONE32, 0, ONE32},
    {"min.f32 %f0, %f1, %f2;", ONE32, NAN32, 0, ONE32},
    {"min.f32 %f0, %f1, %f2;", NAN32, NAN32, 0, CANON},
    {"min.NaN.f32 %f0, %f1, %f2;", ONE32, NAN32, 0, CANON},
    {"min.f32 %f0, %f1, %f2;", 0, MINUS0, 0, MINUS0},
    {"max.f32 %f0, %f1, %f2;", MINUS0, 0, 0, 0},
    {"max.xorsign.abs.f32 %f0, %f1, %f2;", 0xc0000000, ONE32, 0, 0xc0000000},
    {"max.ftz.f32 %f0, %f1, %f2;", 5, 0x80000000, 0, 0},
    {"max.f32 %f0, %f1, %f2, %f3;", ONE32, 0x40000000, NAN32, 0x40000000},
    {"min.abs.f32 %f0, %f1, %f2, %f3;", 0xc0000000, 0xbf800000, 0x40400000, ONE32},
    {"abs.f32 %f0, %f1;", 0xff800000, 0, 0, INF32},
    {"neg.f32 %f0, %f1;", 0, 0, 0, MINUS0},
    {"copysign.f32 %f0, %f1, %f2;", MINUS0, ONE32, 0, 0xbf800000},
    {"cvt.rn.f32.s32 %f0, %r1;", 0x01000001, 0, 0, 0x4b800000},
    {"cvt.rp.f32.s32 %f0, %r1;", 0x01000001, 0, 0, 0x4b800001},
    {"cvt.rz.f32.s32 %f0, %r1;", 0xfefffffd, 0, 0, 0xcb800001},
    {"cvt.rm.f32.u32 %f0, %r1;", 0xffffffff, 0, 0, 0x4f7fffff},
    {"cvt.rn.f32.u32 %f0, %r1;", 0xffffffff, 0, 0, 0x4f800000},
    {"cvt.sat.f32.f32 %f0, %f1;", 0x40000000, 0, 0, ONE32},
    {"cvt.sat.f32.f32 %f0, %f1;", NAN32, 0, 0, 0},
    {"cvt.rni.f32.f32 %f0, %f1;", 0x40200000, 0, 0, 0x40000000},
    {"cvt.rpi.f32.f32 %f0, %f1;", 0xbf000000, 0, 0, MINUS0},
    {"cvt.ftz.f32.f32 %f0, %f1;", 0x80000005, 0, 0, MINUS0},
    {"cvt.rna.tf32.f32 %f0, %f1;", 0x3f801000, 0, 0, 0x3f802000},
    {"set.eq.f32.f32 %f0, %f1, %f2;", ONE32, ONE32, 0, ONE32},
    {"set.neu.f32.f32 %f0, %f1, %f2;", NAN32, NAN32, 0, ONE32},
    {"slct.f32.f32 %f0, %f1, %f2, %f3;", ONE32, 0, NAN32, 0},
    {"slct.f32.f32 %f0, %f1, %f2, %f3;", ONE32, 0, MINUS0, ONE32},
    {"cvt.f32.f16 %f0, %h1;", 0x0001, 0, 0, 0x33800000},
    {"cvt.f32.bf16 %f0, %h1;", 0x3f80, 0, 0, ONE32},
    {"mov.f32 %f0, 0f3F800000;", 0, 0, 0, ONE32},
    {"mov.f32 %f0, 0d3FF0000000000000;", 0, 0, 0, ONE32},
};

Test(floats, single)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t value = run_f32(cases[i].insn, IN(cases[i].a, cases[i].b, cases[i].c));
        cr_expect_eq(value, cases[i].expected, "%s with %#x %#x %#x: %#x instead of %#x", cases[i].insn,
                     cases[i].a, cases[i].b, cases[i].c, value, cases[i].expected);
    }
}

static const struct {
    const char *insn;
    uint64_t a, expected;
} to_integer[] = {
    {"cvt.rzi.s32.f32 %rd0, %f1;", 0xc0200000, UINT64_C(0xfffffffffffffffe)},
    {"cvt.rni.s32.f32 %rd0, %f1;", 0x40200000, 2},
    {"cvt.rmi.s32.f32 %rd0, %f1;", 0xc0200000, UINT64_C(0xfffffffffffffffd)},
    {"cvt.rpi.u32.f32 %rd0, %f1;", 0x40200000, 3},
    {"cvt.rzi.s32.f32 %rd0, %f1;", 0x7f800000, 0x7fffffff},
    {"cvt.rzi.u32.f32 %rd0, %f1;", 0xbf800000, 0},
    {"cvt.rzi.s32.f32 %rd0, %f1;", 0x7fc00000, 0},
    {"cvt.rzi.s64.f32 %rd0, %f1;", 0x7fc00000, UINT64_C(1) << 63},
    {"cvt.rzi.u8.f32 %rd0, %f1;", 0x44000000, 255},
    {"cvt.rzi.s8.f32 %rd0, %f1;", 0xc4000000, UINT64_C(0xffffffffffffff80)},
    {"cvt.rzi.s64.f64 %rd0, %fd1;", UINT64_C(0x43e0000000000000), INT64_MAX},
    {"cvt.rzi.u64.f64 %rd0, %fd1;", UINT64_C(0x43efffffffffffff), UINT64_C(0xfffffffffffff800)},
    {"cvt.rzi.s32.f64 %rd0, %fd1;", UINT64_C(0x7ff8000000000000), UINT64_C(0xffffffff80000000)},
    {"cvt.rni.s32.f16 %rd0, %h1;", 0x4100, 2},
};

Test(floats, to_integer)
{
    for (size_t i = 0; i < sizeof(to_integer) / sizeof(to_integer[0]); i++) {
        uint64_t value = run_b64(to_integer[i].insn, IN(to_integer[i].a));
        cr_expect_eq(value, to_integer[i].expected, "%s: %#lx instead of %#lx", to_integer[i].insn, value,
                     to_integer[i].expected);
    }
}

static const struct {
    const char *insn;
    uint64_t a, b, c, expected;
} doubles[] = {
    {"add.rn.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000000, 1, 0, 0x3ff0000000000000},
    {"add.rp.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000000, 1, 0, 0x3ff0000000000001},
    {"mul.rm.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000001, 0x3ff0000000000001, 0, 0x3ff0000000000002},
    {"mul.rp.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000001, 0x3ff0000000000001, 0, 0x3ff0000000000003},
    {"div.rp.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000000, 0x4008000000000000, 0, 0x3fd5555555555556},
    {"div.rn.f64 %fd0, %fd1, %fd2;", 0x3ff0000000000000, 0x4008000000000000, 0, 0x3fd5555555555555},
    {"sqrt.rz.f64 %fd0, %fd1;", 0x4000000000000000, 0, 0, 0x3ff6a09e667f3bcc},
    {"fma.rz.f64 %fd0, %fd1, %fd2, %fd3;", 0x3ff0000000000000, 0x3ff0000000000000, 1, 0x3ff0000000000000},
    {"rcp.approx.ftz.f64 %fd0, %fd1;", 0x4000000000000000, 0, 0, 0x3fe0000000000000},
    {"min.f64 %fd0, %fd1, %fd2;", 0x7ff8000000000000, 0x3ff0000000000000, 0, 0x3ff0000000000000},
    {"cvt.f64.f32 %fd0, %f1;", 1, 0, 0, 0x36a0000000000000},
    {"cvt.ftz.f64.f32 %fd0, %f1;", 1, 0, 0, 0},
    {"cvt.rn.f64.s64 %fd0, %rd1;", 0x7fffffffffffffff, 0, 0, 0x43e0000000000000},
    {"cvt.rz.f64.u64 %fd0, %rd1;", 0xffffffffffffffff, 0, 0, 0x43efffffffffffff},
    {"mov.f64 %fd0, 0d4000000000000000;", 0, 0, 0, 0x4000000000000000},
    {"add.f64 %fd0, %fd1, 1.5;", 0x3ff0000000000000, 0, 0, 0x4004000000000000},
};

Test(floats, doubles)
{
    for (size_t i = 0; i < sizeof(doubles) / sizeof(doubles[0]); i++) {
        uint64_t value = run_f64(doubles[i].insn, IN(doubles[i].a, doubles[i].b, doubles[i].c));
        cr_expect_eq(value, doubles[i].expected, "%s: %#lx instead of %#lx", doubles[i].insn, value,
                     doubles[i].expected);
    }
}

static const struct {
    const char *insn;
    uint64_t a, b, c;
    uint16_t expected;
} halves[] = {
    {"add.f16 %h0, %h1, %h2;", 0x3c00, 0x3c00, 0, 0x4000},
    {"add.f16 %h0, %h1, %h2;", 0x7bff, 0x7bff, 0, 0x7c00},
    {"add.ftz.f16 %h0, %h1, %h2;", 1, 0, 0, 0},
    {"mul.bf16 %h0, %h1, %h2;", 0x4000, 0x4000, 0, 0x4080},
    {"fma.rn.f16 %h0, %h1, %h2, %h3;", 0x3c01, 0x3c01, 0xbc02, 0x0010},
    /* 1 + 2^-11 + 2^-48: a tie but for the last addend, which is lost if the sum is rounded twice */
    {"fma.rn.f16 %h0, %h1, %h2, %h3;", 0x3c01, 0x3bff, 0x0001, 0x3c00},
    {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;", 0xbc00, 0x3c00, 0, 0},
    {"fma.rn.bf16 %h0, %h1, %h2, %h3;", 0x3f80, 0x3f80, 0x3f80, 0x4000},
    {"neg.f16 %h0, %h1;", 0x3c00, 0, 0, 0xbc00},
    {"abs.bf16 %h0, %h1;", 0xbf80, 0, 0, 0x3f80},
    {"max.f16 %h0, %h1, %h2;", 0x7e00, 0x3c00, 0, 0x3c00},
    {"max.NaN.f16 %h0, %h1, %h2;", 0x7e00, 0x3c00, 0, 0x7fff},
    {"cvt.rn.f16.f32 %h0, %f1;", 0x477ff000, 0, 0, 0x7c00},
    {"cvt.rz.f16.f32 %h0, %f1;", 0x477ff000, 0, 0, 0x7bff},
    {"cvt.rn.satfinite.f16.f32 %h0, %f1;", 0x7f800000, 0, 0, 0x7bff},
    {"cvt.rn.f16.f32 %h0, %f1;", 0x33000000, 0, 0, 0},
    {"cvt.rp.f16.f32 %h0, %f1;", 0x33000000, 0, 0, 1},
    {"cvt.rm.f16.f32 %h0, %f1;", 0xb3000000, 0, 0, 0x8001},
    {"cvt.rn.f16.f32 %h0, %f1;", 0x7fc00000, 0, 0, 0x7fff},
    {"cvt.rn.f16.f64 %h0, %fd1;", 0x3ff0020000000001, 0, 0, 0x3c01}, /* double rounding would give 0x3c00 */
    {"cvt.rn.bf16.f32 %h0, %f1;", 0x3f808000, 0, 0, 0x3f80},
    {"cvt.rn.bf16.f32 %h0, %f1;", 0x3f818000, 0, 0, 0x3f82},
    {"cvt.rn.bf16.f32 %h0, %f1;", 0xff800001, 0, 0, 0x7fff},
    {"cvt.rn.f16.s32 %h0, %r1;", 2049, 0, 0, 0x6800},
    {"cvt.rn.f16.u64 %h0, %rd1;", 100000, 0, 0, 0x7c00},
    {"set.gt.f16.f16 %h0, %h1, %h2;", 0x4000, 0x3c00, 0, 0x3c00},
    {"cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2;", 0x43e00000, 0x3f800000, 0, 0x7e38},
    {"cvt.rn.satfinite.e5m2x2.f32 %h0, %f1, %f2;", 0xc0000000, 0x7f800000, 0, 0xc07b},
};

Test(floats, halves)
{
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        uint16_t value = run_b16(halves[i].insn, IN(halves[i].a, halves[i].b, halves[i].c));
        cr_expect_eq(value, halves[i].expected, "%s: %#x instead of %#x", halves[i].insn, value,
                     halves[i].expected);
    }
}

static const struct {
    const char *insn;
    uint32_t a, b, expected;
} pairs[] = {
    {"add.f16x2 %r0, %r1, %r2;", 0x3c004000, 0x3c003c00, 0x40004200},
    {"mul.bf16x2 %r0, %r1, %r2;", 0x40003f80, 0x40004000, 0x40804000},
    {"cvt.rn.f16x2.f32 %r0, %f1, %f2;", 0x3f800000, 0x40000000, 0x3c004000},
    {"cvt.rn.relu.bf16x2.f32 %r0, %f1, %f2;", 0xbf800000, 0x40000000, 0x00004000},
    {"cvt.rn.f16x2.e4m3x2 %r0, %h1;", 0x387f, 0, 0x3c007fff},
    {"set.eq.u32.f16x2 %r0, %r1, %r2;", 0x3c004000, 0x3c003c00, 0xffff0000},
    {"set.gt.f16x2.f16x2 %r0, %r1, %r2;", 0x3c004000, 0x3c003c00, 0x00003c00},
    {"fma.rn.f16x2 %r0, %r1, %r2, %r2;", 0x40004000, 0x3c003c00, 0x42004200},
};

Test(floats, pairs)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint32_t value = run_b32(pairs[i].insn, IN(pairs[i].a, pairs[i].b));
        cr_expect_eq(value, pairs[i].expected, "%s: %#x instead of %#x", pairs[i].insn, value,
                     pairs[i].expected);
    }
}

/* The host's own directed rounding is the oracle for the one that is made out of double arithmetic. */
static float host_fma(float a, float b, float c, int mode)
{
    volatile float x = a, y = b, z = c;
    fesetround(mode);
    volatile float result = fmaf(x, y, z);
    fesetround(FE_TONEAREST);
    return result;
}

static uint32_t any_float(unsigned *seed)
{
    uint32_t bits = (uint32_t)rand_r(seed) << 16 ^ (uint32_t)rand_r(seed);
    if (rand_r(seed) % 4 == 0) /* near 1, so that sums cancel */
        bits = (bits & 0x807fffff) | 0x3f800000;
    return (bits & INF32) == INF32 ? bits & 0x80ffffff : bits;
}

Test(floats, directed_rounding)
{
    static const struct {
        const char *name;
        int mode;
    } modes[] = {{"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
    enum { COUNT = 4096 };
    static float in[COUNT * 3], out[COUNT];
    unsigned seed = 12345;
    for (int i = 0; i < COUNT * 3; i++) {
        uint32_t bits = any_float(&seed);
        memcpy(&in[i], &bits, sizeof(bits));
    }
    for (int m = 0; m < 3; m++) {
        char text[2048];
        snprintf(text, sizeof(text),
                 ".entry k(.param .u64 in, .param .u64 out) { .reg .b64 %%a<9>; .reg .b32 %%r<3>; .reg .f32 "
                 "%%f<5>;\n"
                 "ld.param.u64 %%a1, [in]; ld.param.u64 %%a2, [out]; mov.u32 %%r1, %%tid.x;\n"
                 "mul.wide.u32 %%a3, %%r1, 12; add.s64 %%a4, %%a1, %%a3; mul.wide.u32 %%a5, %%r1, 4;\n"
                 "add.s64 %%a6, %%a2, %%a5; ld.global.f32 %%f1, [%%a4]; ld.global.f32 %%f2, [%%a4+4];\n"
                 "ld.global.f32 %%f3, [%%a4+8]; fma.%s.f32 %%f4, %%f1, %%f2, %%f3; st.global.f32 [%%a6], "
                 "%%f4; ret; }",
                 modes[m].name);
        run_block_of(text, COUNT, PARAMS(in, out));
        for (int i = 0; i < COUNT; i++) {
            uint32_t expected = f32_bits(host_fma(in[i * 3], in[i * 3 + 1], in[i * 3 + 2], modes[m].mode));
            cr_assert_eq(f32_bits(out[i]), expected, "fma.%s of %a %a %a: %#x instead of %#x", modes[m].name,
                         (double)in[i * 3], (double)in[i * 3 + 1], (double)in[i * 3 + 2], f32_bits(out[i]),
                         expected);
        }
    }
}

/* Doubles that meet every way of rounding: near 1, of any size, at both ends of the range, and special. */
static double any_double(unsigned *seed)
{
    static const double special[] = {0.0,      -0.0,
                                     INFINITY, -INFINITY,
                                     NAN,      DBL_MIN,
                                     -DBL_MIN, DBL_MAX,
                                     -DBL_MAX, 1.0,
                                     -1.0,     4.9406565e-324,
                                     0x1p-900, 0x1.fffffffffffffp999};
    uint64_t bits = (uint64_t)rand_r(seed) << 42 ^ (uint64_t)rand_r(seed) << 21 ^ (uint64_t)rand_r(seed);
    double value;
    switch (rand_r(seed) % 8) {
    case 0:
        return special[(unsigned)rand_r(seed) % (sizeof(special) / sizeof(special[0]))];
    case 1:
        bits &= UINT64_C(0x800fffffffffffff); /* denormal */
        break;
    case 2:
        bits |= UINT64_C(0x7fe0000000000000); /* huge; NaN where the last bit of the exponent is set */
        break;
    case 3:
        break;
    default:
        bits = (bits & UINT64_C(0x807fffffffffffff)) | UINT64_C(0x3f80000000000000);
        break;
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double host_f64(const char *operation, double a, double b, double c, int mode)
{
    volatile double x = a, y = b, z = c, result;
    fesetround(mode);
    switch (operation[0]) {
    case 'a':
        result = x + y;
        break;
    case 'm':
        result = x * y;
        break;
    case 'd':
        result = x / y;
        break;
    case 's':
        result = sqrt(x);
        break;
    default:
        result = fma(x, y, z);
        break;
    }
    fesetround(FE_TONEAREST);
    return result;
}

Test(floats, directed_rounding_f64)
{
    static const struct {
        const char *name;
        int mode;
    } modes[] = {{"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
    static const struct {
        const char *name, *operands;
    } operations[] = {{"add", "%fd1, %fd2"},
                      {"mul", "%fd1, %fd2"},
                      {"div", "%fd1, %fd2"},
                      {"sqrt", "%fd1"},
                      {"fma", "%fd1, %fd2, %fd3"}};
    enum { COUNT = 20000 };
    static double in[COUNT * 3], out[COUNT];
    unsigned seed = 54321;
    for (int i = 0; i < COUNT * 3; i++)
        in[i] = any_double(&seed);
    for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
        for (int m = 0; m < 3; m++) {
            char text[2048];
            snprintf(
                text, sizeof(text),
                ".entry k(.param .u64 in, .param .u64 out) { .reg .b64 %%a<9>; .reg .b32 %%r<3>; .reg .f64 "
                "%%fd<5>;\n"
                "ld.param.u64 %%a1, [in]; ld.param.u64 %%a2, [out]; mov.u32 %%r1, %%tid.x;\n"
                "mul.wide.u32 %%a3, %%r1, 24; add.s64 %%a4, %%a1, %%a3; mul.wide.u32 %%a5, %%r1, 8;\n"
                "add.s64 %%a6, %%a2, %%a5; ld.global.f64 %%fd1, [%%a4]; ld.global.f64 %%fd2, [%%a4+8];\n"
                "ld.global.f64 %%fd3, [%%a4+16]; %s.%s.f64 %%fd4, %s; st.global.f64 [%%a6], "
                "%%fd4; ret; }",
                operations[o].name, modes[m].name, operations[o].operands);
            run_block_of(text, COUNT, PARAMS(in, out));
            for (int i = 0; i < COUNT; i++) {
                double a = in[i * 3], b = in[i * 3 + 1], c = in[i * 3 + 2];
                double expected = host_f64(operations[o].name, a, b, c, modes[m].mode);
                cr_assert((isnan(expected) && isnan(out[i])) || memcmp(&expected, &out[i], 8) == 0,
                          "%s.%s of %a %a %a: %a instead of %a", operations[o].name, modes[m].name, a, b, c,
                          out[i], expected);
            }
        }
    }
}

/* --- approximations --- */

enum { SAMPLES = 20000 };
static float approx_in[SAMPLES], approx_out[SAMPLES];

static void run_approximation(const char *insn)
{
    char text[1024];
    snprintf(
        text, sizeof(text),
        ".entry k(.param .u64 in, .param .u64 out) { .reg .b64 %%a<9>; .reg .b32 %%r<3>; .reg .f32 %%f<5>;\n"
        "ld.param.u64 %%a1, [in]; ld.param.u64 %%a2, [out]; mov.u32 %%r1, %%tid.x;\n"
        "mul.wide.u32 %%a3, %%r1, 4; add.s64 %%a4, %%a1, %%a3; add.s64 %%a5, %%a2, %%a3;\n"
        "ld.global.f32 %%f1, [%%a4]; %s %%f2, %%f1; st.global.f32 [%%a5], %%f2; ret; }",
        insn);
    run_block_of(text, SAMPLES, PARAMS(approx_in, approx_out));
}

static const struct {
    const char *insn;
    double (*exact)(double);
    double low, high;
    double relative, absolute; /* either is enough */
} approximations[] = {
    {"ex2.approx.f32", exp2, -160, 140, 2.5e-7, 1.5e-45},
    {"lg2.approx.f32", log2, 1e-42, 4, 2.5e-7, 3e-7},
    {"lg2.approx.f32", log2, 0, 1e38, 2.5e-7, 0},
    {"sin.approx.f32", sin, -7, 7, 0, 2e-7},
    {"cos.approx.f32", cos, -7, 7, 0, 2e-7},
    {"sin.approx.f32", sin, -1e5, 1e5, 0, 2e-7},
    {"tanh.approx.f32", tanh, -10, 10, 6e-5, 0},
};

Test(floats, approximations)
{
    for (size_t a = 0; a < sizeof(approximations) / sizeof(approximations[0]); a++) {
        for (int i = 0; i < SAMPLES; i++)
            approx_in[i] = (float)(approximations[a].low +
                                   (approximations[a].high - approximations[a].low) * i / (SAMPLES - 1.0));
        run_approximation(approximations[a].insn);
        for (int i = 0; i < SAMPLES; i++) {
            double exact = approximations[a].exact((double)approx_in[i]), value = (double)approx_out[i];
            bool same = value == exact || (isinf(value) && fabs(exact) > 3.4028235e38);
            cr_assert(same || fabs(value - exact) <=
                                  fmax(approximations[a].relative * fabs(exact), approximations[a].absolute),
                      "%s of %a: %a instead of %a", approximations[a].insn, (double)approx_in[i], value,
                      exact);
        }
    }
}

static const struct {
    const char *insn;
    uint32_t a, expected;
} special_approximations[] = {
    {"ex2.approx.f32", INF32, INF32},      {"ex2.approx.f32", 0xff800000, 0},
    {"ex2.approx.f32", 0, ONE32},          {"ex2.approx.f32", 0xc3150000, 1},
    {"ex2.approx.ftz.f32", 0xc3150000, 0}, {"ex2.approx.f32", 0x43000000, INF32},
    {"lg2.approx.f32", 0, 0xff800000},     {"lg2.approx.f32", MINUS0, 0xff800000},
    {"lg2.approx.f32", INF32, INF32},      {"lg2.approx.f32", 0xbf800000, CANON},
    {"lg2.approx.f32", 1, 0xc3150000},     {"lg2.approx.ftz.f32", 1, 0xff800000},
    {"sin.approx.f32", MINUS0, MINUS0},    {"cos.approx.f32", 0, ONE32},
    {"tanh.approx.f32", INF32, ONE32},     {"tanh.approx.f32", 0xff800000, 0xbf800000},
};

Test(floats, special_approximations)
{
    for (size_t i = 0; i < sizeof(special_approximations) / sizeof(special_approximations[0]); i++) {
        uint32_t bits = special_approximations[i].a;
        memcpy(&approx_in[0], &bits, sizeof(bits));
        run_approximation(special_approximations[i].insn);
        cr_expect_eq(f32_bits(approx_out[0]), special_approximations[i].expected,
                     "%s of %#x: %#x instead of %#x", special_approximations[i].insn, bits,
                     f32_bits(approx_out[0]), special_approximations[i].expected);
    }
    static const char *const insns[] = {"ex2.approx.f32", "lg2.approx.f32", "sin.approx.f32",
                                        "cos.approx.f32", "tanh.approx.f32"};
    for (int i = 0; i < 5; i++) {
        approx_in[0] = NAN;
        approx_in[1] = i == 2 || i == 3 ? INFINITY : NAN;
        run_approximation(insns[i]);
        cr_expect(isnan(approx_out[0]) && isnan(approx_out[1]), "%s of NaN: %a", insns[i],
                  (double)approx_out[0]);
    }
}
