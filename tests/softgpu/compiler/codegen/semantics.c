/*
 * semantics.c - instruction by instruction: all combinations of values at the edges, against what the PTX
 * manual says, written down in C for one value at a time. Float and double are compared with the host's own
 * arithmetic in the same rounding mode, half precision with arithmetic in 113 bits, rounded once.
 */
#include "softgpu/exec/exec.h"
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t (*reference)(uint64_t a, uint64_t b, uint64_t c);

/* `kinds`: of the result and the operands: r (32 bits), d (64), h (16), f, g (double), p. */
struct row {
    const char *text, *kinds;
    reference reference;
};

static const uint64_t words[] = {0,          1,          2,          3,          7,          31,
                                 32,         33,         0x7f,       0x80,       0xff,       0x7fff,
                                 0x8000,     0xffff,     0x10000,    0x55555555, 0x7fffffff, 0x80000000,
                                 0x80000001, 0xfffffffe, 0xffffffff, 0x12345678, 0xfedcba98};
static const uint64_t doubles_words[] = {0,
                                         1,
                                         2,
                                         63,
                                         64,
                                         65,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x100000000,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         0xffffffffffffffff,
                                         0xfffffffffffffffe,
                                         0x123456789abcdef0,
                                         0xfedcba9876543210,
                                         0x001fffffffffffff,
                                         0x0020000000000001};
/*
 * zeros, denormals, least and greatest, ones, neighbours, halves, infinities, NaN, int's limits
 */
static const uint64_t floats[] = {
    0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x3f7fffff, 0x3f800000,
    0x3f800001, 0xbf800000, 0x3f000000, 0xbf000000, 0x40200000, 0xc0200000, 0x40490fdb, 0x3eaaaaab,
    0x4effffff, 0x4f000000, 0xcf000000, 0xcf000001, 0x4f7fffff, 0x4f800000, 0x5f000000, 0x7f7fffff,
    0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x33800000, 0x477fe000, 0x477ff000, 0x38800000};
static const uint64_t doubles[] = {0,
                                   0x8000000000000000,
                                   1,
                                   0x000fffffffffffff,
                                   0x0010000000000000,
                                   0x3ff0000000000000,
                                   0x3ff0000000000001,
                                   0xbff0000000000000,
                                   0x3fd5555555555555,
                                   0x4004000000000000,
                                   0xc004000000000000,
                                   0x41dfffffffc00000,
                                   0x41e0000000000000,
                                   0xc1e0000000200000,
                                   0x43e0000000000000,
                                   0x43efffffffffffff,
                                   0x47efffffe0000000,
                                   0x47effffff0000000,
                                   0x3690000000000000,
                                   0x36a0000000000000,
                                   0x7fefffffffffffff,
                                   0x7ff0000000000000,
                                   0xfff0000000000000,
                                   0x7ff8000000000000};
static const uint64_t halves[] = {0,      0x8000, 1,      0x8001, 0x03ff, 0x0400, 0x3bff, 0x3c00,
                                  0x3c01, 0xbc00, 0x3800, 0x4248, 0x3555, 0x6400, 0x6401, 0x7bff,
                                  0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x1400, 0x8400};

/* --- references: integers --- */

#define I32(name, expression)                                                                                \
    static uint64_t name(uint64_t x, uint64_t y, uint64_t z)                                                 \
    {                                                                                                        \
        uint32_t a = (uint32_t)x, b = (uint32_t)y, c = (uint32_t)z;                                          \
        int32_t sa = (int32_t)a, sb = (int32_t)b, sc = (int32_t)c;                                           \
        (void)b, (void)c, (void)sa, (void)sb, (void)sc;                                                      \
        return (uint32_t)(expression);                                                                       \
    }
#define I64(name, expression)                                                                                \
    static uint64_t name(uint64_t a, uint64_t b, uint64_t c)                                                 \
    {                                                                                                        \
        int64_t sa = (int64_t)a, sb = (int64_t)b, sc = (int64_t)c;                                           \
        (void)b, (void)c, (void)sa, (void)sb, (void)sc;                                                      \
        return (uint64_t)(expression);                                                                       \
    }

static int64_t clamp(int64_t value, int64_t least, int64_t greatest)
{
    return value < least ? least : value > greatest ? greatest : value;
}

static uint32_t bit_field(uint32_t a, uint32_t place, uint32_t length, bool is_signed)
{
    place &= 0xff;
    length &= 0xff;
    uint32_t msb = 31, sign = 0, result = 0;
    if (is_signed && length > 0)
        sign = a >> (place + length - 1 < msb ? place + length - 1 : msb) & 1;
    for (uint32_t i = 0; i <= msb; i++)
        result |= (i < length && place + i <= msb ? a >> (place + i) & 1 : sign) << i;
    return result;
}

static uint32_t insert_field(uint32_t a, uint32_t b, uint32_t place, uint32_t length)
{
    place &= 0xff;
    length &= 0xff;
    for (uint32_t i = 0; i < length && place + i <= 31; i++)
        b = (b & ~(1u << (place + i))) | (a >> i & 1) << (place + i);
    return b;
}

static uint32_t find_bit(uint32_t a, bool is_signed)
{
    if (is_signed && a >> 31)
        a = ~a;
    for (int i = 31; i >= 0; i--)
        if (a >> i & 1)
            return (uint32_t)i;
    return UINT32_MAX;
}

static uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t both = a | (uint64_t)b << 32;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = selector >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (nibble & 7)) & 0xff;
        if (nibble & 8)
            byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

static uint32_t dot4(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (uint32_t)((int8_t)(a >> 8 * i) * (int32_t)(uint8_t)(b >> 8 * i));
    return c;
}

static uint32_t dot2_hi(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 2; i++)
        c += (uint32_t)((int16_t)(a >> 16 * i) * (int32_t)(int8_t)(b >> (16 + 8 * i)));
    return c;
}

static uint32_t absolute_differences(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (uint32_t)abs((int)(a >> 8 * i & 0xff) - (int)(b >> 8 * i & 0xff));
    return c;
}

static uint32_t pack8(int32_t a, int32_t b, uint32_t c)
{
    return c << 16 | ((uint32_t)clamp(a, -128, 127) & 0xff) << 8 | ((uint32_t)clamp(b, -128, 127) & 0xff);
}

I32(add_sat, clamp((int64_t)sa + sb, INT32_MIN, INT32_MAX))
I32(sub_sat, clamp((int64_t)sa - sb, INT32_MIN, INT32_MAX))
I32(mul_hi_s, (int64_t)sa *sb >> 32)
I32(mul_hi_u, (uint64_t)a *b >> 32)
I32(mad_hi_sat, clamp(((int64_t)sa * sb >> 32) + sc, INT32_MIN, INT32_MAX))
I32(mul24_hi_s, ((int64_t)((int32_t)(a << 8) >> 8) * ((int32_t)(b << 8) >> 8)) >> 16)
I32(mul24_lo_u, (uint64_t)(a & 0xffffff) * (b & 0xffffff))
I32(sad_s, c + (uint32_t)(sa > sb ? (int64_t)sa - sb : (int64_t)sb - sa))
I32(div_s, b == 0 ? UINT32_MAX : (uint32_t)((int64_t)sa / sb))
I32(rem_s, b == 0 ? UINT32_MAX : (uint32_t)((int64_t)sa % sb))
I32(div_u, b == 0 ? UINT32_MAX : a / b)
I32(bfe_u, bit_field(a, b, c, false))
I32(bfe_s, bit_field(a, b, c, true))
I32(bfi, insert_field(a, 0x5a5a5a5a, b, c))
I32(bfind_u, find_bit(a, false))
I32(bfind_s, find_bit(a, true))
I32(bfind_shift, find_bit(a, true) == UINT32_MAX ? UINT32_MAX : 31 - find_bit(a, true))
I32(shl, b > 31 ? 0 : a << b)
I32(shr_s, sa >> (b > 31 ? 31 : b))
I32(shr_u, b > 31 ? 0 : a >> b)
I32(shf_l_wrap, (c & 31) == 0 ? b : b << (c & 31) | a >> (32 - (c & 31)))
I32(shf_l_clamp, c > 31 ? a : c == 0 ? b : b << c | a >> (32 - c))
I32(shf_r_clamp, c > 31 ? b : c == 0 ? a : b << (32 - c) | a >> c)
I32(prmt, permute(a, b, c))
I32(lop3, (a & b) | (~a & c))
I32(dp4a, dot4(a, b, c))
I32(dp2a, dot2_hi(a, b, c))
I32(vabsdiff4, absolute_differences(a, b, c))
I32(bmsk_clamp, a > 31 || b == 0 ? 0 : (b > 31 ? UINT32_MAX : (1u << b) - 1) << a)
I32(szext_clamp, b > 31 ? a : b == 0 ? 0 : (uint32_t)((int32_t)(a << (32 - b)) >> (32 - b)))
I32(cvt_pack, pack8(sa, sb, c))
I32(cvt_pack16, ((uint32_t)clamp(sa, 0, 65535) << 16 | (uint32_t)clamp(sb, 0, 65535)))
I32(cvt_sat_u8, clamp(sa, 0, 255))
I32(cvt_sat_s8_u32, a > 127 ? 127 : a)
I32(set_lt, sa < sb ? UINT32_MAX : 0)
I32(slct, sc >= 0 ? a : b)
I64(mul_hi_64, (unsigned __int128)a *b >> 64)
I64(mul_hi_s64, (__int128)sa *sb >> 64)
I64(div_s64, b == 0 ? UINT64_MAX : sb == -1 ? -a : (uint64_t)(sa / sb))
I64(rem_s64, b == 0 ? UINT64_MAX : sb == -1 ? 0 : (uint64_t)(sa % sb))
I64(shr_s64, sa >> (b > 63 ? 63 : b))
I64(cvt_sat_s32_s64, (uint32_t)clamp(sa, INT32_MIN, INT32_MAX))
I64(min_s64, sa < sb ? a : b)
I64(mad_wide, (uint64_t)((int64_t)(int32_t)a *(int32_t)b) + c)

/* --- references: float and double, by the host --- */

static float to_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return value;
}

static double to_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float flushed(float value)
{
    return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

static float saturated(float value)
{
    return !(value > 0) ? 0 : value > 1 ? 1 : value;
}

#define F32(name, mode, expression)                                                                          \
    static uint64_t name(uint64_t x, uint64_t y, uint64_t z)                                                 \
    {                                                                                                        \
        volatile float a = to_float(x), b = to_float(y), c = to_float(z);                                    \
        (void)b, (void)c;                                                                                    \
        fesetround(mode);                                                                                    \
        volatile float value = (expression);                                                                 \
        fesetround(FE_TONEAREST);                                                                            \
        return f32_bits(value);                                                                              \
    }
#define F64(name, mode, expression)                                                                          \
    static uint64_t name(uint64_t x, uint64_t y, uint64_t z)                                                 \
    {                                                                                                        \
        volatile double a = to_double(x), b = to_double(y), c = to_double(z);                                \
        (void)b, (void)c;                                                                                    \
        fesetround(mode);                                                                                    \
        volatile double value = (expression);                                                                \
        fesetround(FE_TONEAREST);                                                                            \
        return f64_bits(value);                                                                              \
    }

F32(add_rn, FE_TONEAREST, a + b)
F32(add_rz, FE_TOWARDZERO, a + b)
F32(sub_rm, FE_DOWNWARD, a - b)
F32(mul_rp, FE_UPWARD, a *b)
F32(mul_rz, FE_TOWARDZERO, a *b)
F32(mul_ftz, FE_TONEAREST, flushed(flushed(a) * flushed(b)))
F32(add_ftz_sat, FE_TONEAREST, saturated(flushed(flushed(a) + flushed(b))))
F32(fma_rn, FE_TONEAREST, fmaf(a, b, c))
F32(fma_rm, FE_DOWNWARD, fmaf(a, b, c))
F32(div_rn, FE_TONEAREST, a / b)
F32(div_rp, FE_UPWARD, a / b)
F32(sqrt_rz, FE_TOWARDZERO, sqrtf(a))
F32(rcp_rm, FE_DOWNWARD, 1.0f / a)
F32(rni, FE_TONEAREST, nearbyintf(a))
F32(max_nan, FE_TONEAREST, isnan(a) || isnan(b) ? NAN : a > b || (a == b && !signbit(a)) ? a : b)
F32(min_num, FE_TONEAREST, isnan(a) ? b : isnan(b) ? a : a < b || (a == b && signbit(a)) ? a : b)
F32(set_gtu, FE_TONEAREST, !(a <= b) ? 1.0f : 0.0f)
F64(add_rm64, FE_DOWNWARD, a + b)
F64(mul_rn64, FE_TONEAREST, a *b)
F64(fma_rp64, FE_UPWARD, fma(a, b, c))
F64(div_rz64, FE_TOWARDZERO, a / b)
F64(sqrt_rp64, FE_UPWARD, sqrt(a))

/* A number to an integer: NaN is 0, what does not fit is the nearest that does. */
static uint64_t whole(double value, int mode, double least, double greatest_plus_one, uint64_t bits_of_least,
                      uint64_t bits_of_greatest, uint64_t nan)
{
    if (isnan(value))
        return nan;
    fesetround(mode);
    volatile double rounded = nearbyint(value);
    fesetround(FE_TONEAREST);
    if (rounded < least)
        return bits_of_least;
    if (rounded >= greatest_plus_one)
        return bits_of_greatest;
    return rounded < 0 ? (uint64_t)(int64_t)rounded : (uint64_t)rounded;
}

#define UNARY(name, expression)                                                                              \
    static uint64_t name(uint64_t a, uint64_t b, uint64_t c)                                                 \
    {                                                                                                        \
        (void)b, (void)c;                                                                                    \
        return (expression);                                                                                 \
    }
#define S32_LIMITS -0x1p31, 0x1p31, 0x80000000u, 0x7fffffffu
UNARY(f32_s32_rni, (uint32_t)whole((double)to_float(a), FE_TONEAREST, S32_LIMITS, 0))
UNARY(f32_s32_rmi, (uint32_t)whole((double)to_float(a), FE_DOWNWARD, S32_LIMITS, 0))
UNARY(f32_u32_rzi, (uint32_t)whole((double)to_float(a), FE_TOWARDZERO, 0, 0x1p32, 0, UINT32_MAX, 0))
UNARY(f32_s64_rpi,
      whole((double)to_float(a), FE_UPWARD, -0x1p63, 0x1p63, UINT64_C(1) << 63, INT64_MAX, UINT64_C(1) << 63))
UNARY(f64_s32_rzi, (uint32_t)whole(to_double(a), FE_TOWARDZERO, S32_LIMITS, 0x80000000u))
UNARY(f64_u64_rni, whole(to_double(a), FE_TONEAREST, 0, 0x1p64, 0, UINT64_MAX, UINT64_C(1) << 63))

static uint64_t integer_to_float(uint64_t a, bool is_signed, int mode)
{
    fesetround(mode);
    volatile uint64_t u = a;
    volatile int64_t s = (int64_t)a;
    volatile float value = is_signed ? (float)s : (float)u;
    fesetround(FE_TONEAREST);
    return f32_bits(value);
}

static uint64_t double_to_float(uint64_t a, int mode)
{
    fesetround(mode);
    volatile double wide = to_double(a);
    volatile float value = (float)wide;
    fesetround(FE_TONEAREST);
    return f32_bits(value);
}
UNARY(s32_f32_rp, integer_to_float((uint64_t)(int64_t)(int32_t)a, true, FE_UPWARD))
UNARY(u32_f32_rn, integer_to_float((uint32_t)a, false, FE_TONEAREST))
UNARY(s64_f32_rz, integer_to_float(a, true, FE_TOWARDZERO))
UNARY(u64_f32_rm, integer_to_float(a, false, FE_DOWNWARD))
UNARY(f64_f32_rn, double_to_float(a, FE_TONEAREST))
UNARY(f64_f32_rp, double_to_float(a, FE_UPWARD))
UNARY(f64_f32_rz, double_to_float(a, FE_TOWARDZERO))

/* --- references: half precision, exact and then rounded once --- */

static __float128 half_value(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double mantissa = (double)(bits & 0x3ff) / 1024, value;
    if (exponent == 31)
        value = (bits & 0x3ff) != 0 ? NAN : INFINITY;
    else
        value = exponent == 0 ? ldexp(mantissa, -14) : ldexp(1 + mantissa, exponent - 15);
    return bits & 0x8000 ? -value : value;
}

/* To the nearest, ties to even; or towards zero. */
static uint64_t round_to_half(__float128 value, bool to_zero)
{
    if (value != value)
        return 0x7fff;
    uint64_t sign = signbit((double)value) ? 0x8000 : 0; /* a zero that is negative, too */
    __float128 magnitude = value < 0 ? -value : value, step = 0x1p-24;
    if (magnitude >= (__float128)0x1p17)
        return sign | (to_zero && !isinf((double)magnitude) ? 0x7bff : 0x7c00);
    uint64_t exponent = 0;
    for (__float128 limit = 0x1p-13; magnitude >= limit; limit *= 2) {
        step *= 2;
        exponent++;
    }
    __float128 quotient = magnitude / step; /* exact: a power of two */
    uint64_t whole = (uint64_t)quotient;
    __float128 rest = quotient - whole;
    if (!to_zero && (rest > 0.5 || (rest == 0.5 && (whole & 1) != 0)))
        whole++;
    uint64_t bits = (exponent << 10) + whole;
    if (bits >= 0x7c00)
        bits = to_zero ? 0x7bff : 0x7c00;
    return sign | bits;
}

#define F16(name, expression)                                                                                \
    static uint64_t name(uint64_t x, uint64_t y, uint64_t z)                                                 \
    {                                                                                                        \
        __float128 a = half_value(x), b = half_value(y), c = half_value(z);                                  \
        (void)b, (void)c;                                                                                    \
        return round_to_half((expression), false);                                                           \
    }
F16(add_f16, a + b)
F16(sub_f16, a - b)
F16(mul_f16, a *b)
F16(fma_f16, a *b + c)
F16(fma_relu_f16, a *b + c != a * b + c ? a * b + c : a * b + c > 0 ? a * b + c : 0)
UNARY(f32_f16_rn, round_to_half((__float128)to_float(a), false))
UNARY(f32_f16_rz, round_to_half((__float128)to_float(a), true))
UNARY(f64_f16_rn, round_to_half((__float128)to_double(a), false))
UNARY(s32_f16_rn, round_to_half((__float128)(int32_t)a, false))
UNARY(f16_f32, f32_bits((float)half_value(a)))

static const struct row rows[] = {
    {"add.sat.s32 %r0, %r1, %r2;", "rrr", add_sat},
    {"sub.sat.s32 %r0, %r1, %r2;", "rrr", sub_sat},
    {"mul.hi.s32 %r0, %r1, %r2;", "rrr", mul_hi_s},
    {"mul.hi.u32 %r0, %r1, %r2;", "rrr", mul_hi_u},
    {"mad.hi.sat.s32 %r0, %r1, %r2, %r3;", "rrrr", mad_hi_sat},
    {"mul24.hi.s32 %r0, %r1, %r2;", "rrr", mul24_hi_s},
    {"mul24.lo.u32 %r0, %r1, %r2;", "rrr", mul24_lo_u},
    {"sad.s32 %r0, %r1, %r2, %r3;", "rrrr", sad_s},
    {"div.s32 %r0, %r1, %r2;", "rrr", div_s},
    {"rem.s32 %r0, %r1, %r2;", "rrr", rem_s},
    {"div.u32 %r0, %r1, %r2;", "rrr", div_u},
    {"bfe.u32 %r0, %r1, %r2, %r3;", "rrrr", bfe_u},
    {"bfe.s32 %r0, %r1, %r2, %r3;", "rrrr", bfe_s},
    {"bfi.b32 %r0, %r1, 0x5a5a5a5a, %r2, %r3;", "rrrr", bfi},
    {"bfind.u32 %r0, %r1;", "rr", bfind_u},
    {"bfind.s32 %r0, %r1;", "rr", bfind_s},
    {"bfind.shiftamt.s32 %r0, %r1;", "rr", bfind_shift},
    {"shl.b32 %r0, %r1, %r2;", "rrr", shl},
    {"shr.s32 %r0, %r1, %r2;", "rrr", shr_s},
    {"shr.u32 %r0, %r1, %r2;", "rrr", shr_u},
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", "rrrr", shf_l_wrap},
    {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", "rrrr", shf_l_clamp},
    {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", "rrrr", shf_r_clamp},
    {"prmt.b32 %r0, %r1, %r2, %r3;", "rrrr", prmt},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0xca;", "rrrr", lop3},
    {"dp4a.s32.u32 %r0, %r1, %r2, %r3;", "rrrr", dp4a},
    {"dp2a.hi.s32.s32 %r0, %r1, %r2, %r3;", "rrrr", dp2a},
    {"vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;", "rrrr", vabsdiff4},
    {"bmsk.clamp.b32 %r0, %r1, %r2;", "rrr", bmsk_clamp},
    {"szext.clamp.s32 %r0, %r1, %r2;", "rrr", szext_clamp},
    {"cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;", "rrrr", cvt_pack},
    {"cvt.pack.sat.u16.s32 %r0, %r1, %r2;", "rrr", cvt_pack16},
    {"cvt.sat.u8.s32 %r0, %r1;", "rr", cvt_sat_u8},
    {"cvt.sat.s8.u32 %r0, %r1;", "rr", cvt_sat_s8_u32},
    {"set.lt.u32.s32 %r0, %r1, %r2;", "rrr", set_lt},
    {"slct.b32.s32 %r0, %r1, %r2, %r3;", "rrrr", slct},
    {"mul.hi.u64 %rd0, %rd1, %rd2;", "ddd", mul_hi_64},
    {"mul.hi.s64 %rd0, %rd1, %rd2;", "ddd", mul_hi_s64},
    {"div.s64 %rd0, %rd1, %rd2;", "ddd", div_s64},
    {"rem.s64 %rd0, %rd1, %rd2;", "ddd", rem_s64},
    {"shr.s64 %rd0, %rd1, %r2;", "ddr", shr_s64},
    {"cvt.sat.s32.s64 %r0, %rd1;", "rd", cvt_sat_s32_s64},
    {"min.s64 %rd0, %rd1, %rd2;", "ddd", min_s64},
    {"mad.wide.s32 %rd0, %r1, %r2, %rd3;", "drrd", mad_wide},
    {"add.rn.f32 %f0, %f1, %f2;", "fff", add_rn},
    {"add.rz.f32 %f0, %f1, %f2;", "fff", add_rz},
    {"sub.rm.f32 %f0, %f1, %f2;", "fff", sub_rm},
    {"mul.rp.f32 %f0, %f1, %f2;", "fff", mul_rp},
    {"mul.rz.f32 %f0, %f1, %f2;", "fff", mul_rz},
    {"mul.ftz.f32 %f0, %f1, %f2;", "fff", mul_ftz},
    {"add.ftz.sat.f32 %f0, %f1, %f2;", "fff", add_ftz_sat},
    {"fma.rn.f32 %f0, %f1, %f2, %f3;", "ffff", fma_rn},
    {"fma.rm.f32 %f0, %f1, %f2, %f3;", "ffff", fma_rm},
    {"div.rn.f32 %f0, %f1, %f2;", "fff", div_rn},
    {"div.rp.f32 %f0, %f1, %f2;", "fff", div_rp},
    {"sqrt.rz.f32 %f0, %f1;", "ff", sqrt_rz},
    {"rcp.rm.f32 %f0, %f1;", "ff", rcp_rm},
    {"cvt.rni.f32.f32 %f0, %f1;", "ff", rni},
    {"max.NaN.f32 %f0, %f1, %f2;", "fff", max_nan},
    {"min.f32 %f0, %f1, %f2;", "fff", min_num},
    {"set.gtu.f32.f32 %f0, %f1, %f2;", "fff", set_gtu},
    {"add.rm.f64 %fd0, %fd1, %fd2;", "ggg", add_rm64},
    {"mul.rn.f64 %fd0, %fd1, %fd2;", "ggg", mul_rn64},
    {"fma.rp.f64 %fd0, %fd1, %fd2, %fd3;", "gggg", fma_rp64},
    {"div.rz.f64 %fd0, %fd1, %fd2;", "ggg", div_rz64},
    {"sqrt.rp.f64 %fd0, %fd1;", "gg", sqrt_rp64},
    {"cvt.rni.s32.f32 %r0, %f1;", "rf", f32_s32_rni},
    {"cvt.rmi.s32.f32 %r0, %f1;", "rf", f32_s32_rmi},
    {"cvt.rzi.u32.f32 %r0, %f1;", "rf", f32_u32_rzi},
    {"cvt.rpi.s64.f32 %rd0, %f1;", "df", f32_s64_rpi},
    {"cvt.rzi.s32.f64 %r0, %fd1;", "rg", f64_s32_rzi},
    {"cvt.rni.u64.f64 %rd0, %fd1;", "dg", f64_u64_rni},
    {"cvt.rp.f32.s32 %f0, %r1;", "fr", s32_f32_rp},
    {"cvt.rn.f32.u32 %f0, %r1;", "fr", u32_f32_rn},
    {"cvt.rz.f32.s64 %f0, %rd1;", "fd", s64_f32_rz},
    {"cvt.rm.f32.u64 %f0, %rd1;", "fd", u64_f32_rm},
    {"cvt.rn.f32.f64 %f0, %fd1;", "fg", f64_f32_rn},
    {"cvt.rp.f32.f64 %f0, %fd1;", "fg", f64_f32_rp},
    {"cvt.rz.f32.f64 %f0, %fd1;", "fg", f64_f32_rz},
    {"add.f16 %h0, %h1, %h2;", "hhh", add_f16},
    {"sub.f16 %h0, %h1, %h2;", "hhh", sub_f16},
    {"mul.f16 %h0, %h1, %h2;", "hhh", mul_f16},
    {"fma.rn.f16 %h0, %h1, %h2, %h3;", "hhhh", fma_f16},
    {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;", "hhhh", fma_relu_f16},
    {"cvt.rn.f16.f32 %h0, %f1;", "hf", f32_f16_rn},
    {"cvt.rz.f16.f32 %h0, %f1;", "hf", f32_f16_rz},
    {"cvt.rn.f16.f64 %h0, %fd1;", "hg", f64_f16_rn},
    {"cvt.rn.f16.s32 %h0, %r1;", "hr", s32_f16_rn},
    {"cvt.f32.f16 %f0, %h1;", "fh", f16_f32},
};

static void values_of(char kind, const uint64_t **values, uint32_t *count)
{
#define VALUES(array)                                                                                        \
    do {                                                                                                     \
        *values = (array);                                                                                   \
        *count = sizeof(array) / sizeof((array)[0]);                                                         \
    } while (0)
    switch (kind) {
    case 'd':
        VALUES(doubles_words);
        break;
    case 'f':
        VALUES(floats);
        break;
    case 'g':
        VALUES(doubles);
        break;
    case 'h':
        VALUES(halves);
        break;
    default:
        VALUES(words);
        break;
    }
}

static char *kernel_of(const struct row *row)
{
    static const char *const loads[] = {
        ['r'] = "b32 %r", ['d'] = "b64 %rd", ['h'] = "b16 %h", ['f'] = "f32 %f", ['g'] = "f64 %fd"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(
        file,
        ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 count)\n{\n.reg .b64 %%rd<4>, %%i, "
        "%%o, %%a;\n"
        ".reg .b32 %%r<4>, %%t, %%n; .reg .f32 %%f<4>; .reg .f64 %%fd<4>; .reg .b16 %%h<4>; .reg .pred "
        "%%end;\n"
        "ld.param.u64 %%i, [in]; ld.param.u64 %%o, [out]; ld.param.u32 %%n, [count];\n"
        "mov.u32 %%t, %%ctaid.x; mov.u32 %%r1, %%ntid.x; mul.lo.u32 %%t, %%t, %%r1; mov.u32 %%r1, %%tid.x;\n"
        "add.u32 %%t, %%t, %%r1; setp.ge.u32 %%end, %%t, %%n; @%%end ret;\n"
        "mul.wide.u32 %%a, %%t, 24; add.u64 %%i, %%i, %%a; mul.wide.u32 %%a, %%t, 8; add.u64 %%o, %%o, "
        "%%a;\n");
    for (int i = 1; row->kinds[i] != '\0'; i++)
        fprintf(file, "ld.global.%s%d, [%%i+%d];\n", loads[(unsigned char)row->kinds[i]], i, i * 8 - 8);
    fprintf(file, "%s\nmov.b64 %%a, 0; st.global.b64 [%%o], %%a; st.global.%s0;\nret;\n}\n", row->text,
            row->kinds[0] == 'r'   ? "b32 [%o], %r"
            : row->kinds[0] == 'd' ? "b64 [%o], %rd"
            : row->kinds[0] == 'h' ? "b16 [%o], %h"
            : row->kinds[0] == 'f' ? "f32 [%o], %f"
                                   : "f64 [%o], %fd");
    fclose(file);
    return text;
}

static uint64_t without_nan_bits(char kind, uint64_t bits)
{
    bool nan = kind == 'f'   ? isnan(to_float(bits))
               : kind == 'g' ? isnan(to_double(bits))
               : kind == 'h' ? (bits & 0x7fff) > 0x7c00
                             : false;
    return nan ? UINT64_MAX : bits;
}

static void try(const struct row *row)
{
    static const uint64_t none[1] = {0};
    const uint64_t *values[3] = {none, none, none};
    uint32_t counts[3] = {1, 1, 1}, total = 1;
    for (int i = 0; row->kinds[i + 1] != '\0'; i++)
        values_of(row->kinds[i + 1], &values[i], &counts[i]);
    for (int i = 0; i < 3; i++)
        total *= counts[i];
    uint64_t(*in)[3] = malloc(total * sizeof(*in)), *out = calloc(total, sizeof(*out));
    for (uint32_t i = 0; i < total; i++) {
        in[i][0] = values[0][i % counts[0]];
        in[i][1] = values[1][i / counts[0] % counts[1]];
        in[i][2] = values[2][i / counts[0] / counts[1]];
    }
    char *text = kernel_of(row);
    struct sg_program *program = program_of(text);
    struct {
        const void *in, *out;
        uint32_t count;
    } params = {in, out, total};
    cr_assert_eq(run_grid(program, (total + 127) / 128, 128, &params), 0);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < total; i++) {
        uint64_t expected = without_nan_bits(row->kinds[0], row->reference(in[i][0], in[i][1], in[i][2]));
        uint64_t got = without_nan_bits(row->kinds[0], out[i]);
        if (got == expected || wrong++ > 2)
            continue;
        cr_expect_fail("%s with %#llx, %#llx, %#llx: %#llx, not %#llx", row->text,
                       (unsigned long long)in[i][0], (unsigned long long)in[i][1],
                       (unsigned long long)in[i][2], (unsigned long long)out[i],
                       (unsigned long long)expected);
    }
    free_program(program);
    free(text);
    free(in);
    free(out);
}

Test(semantics, every_combination)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        try(&rows[i]);
}
