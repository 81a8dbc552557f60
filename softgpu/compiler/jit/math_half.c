/*
 * math_half.c - half precision by integers: for hosts without it, and for directed rounding. Any thread.
 */
#include "softgpu/compiler/ir/instruction.h"
#include "softgpu/compiler/jit/math.h"

#include <math.h>
#include <string.h>

/*
 * A float to a format of `exponent` and `mantissa` bits, by integer arithmetic. Returns the magnitude's bits,
 * not limited: what is too large has an exponent beyond the format's, and the caller decides what becomes of
 * it.
 */
static uint32_t narrow(float value, uint32_t exponent, uint32_t mantissa, uint32_t round)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bool negative = bits >> 31;
    bits &= 0x7fffffff;
    if (bits == 0)
        return 0;
    int bias = (1 << (exponent - 1)) - 1;
    int power = (int)(bits >> 23) - 127;
    uint64_t digits = bits >> 23 == 0 ? bits : (bits & 0x7fffff) | 0x800000;
    if (bits >> 23 == 0)
        power = -126;
    /* digits * 2^(power - 23); the format's last place is 2^(least - mantissa) */
    int least = power < 1 - bias ? 1 - bias : power;
    int drop = 23 - (int)mantissa + (least - power);
    if (drop > 40)
        drop = 40;
    uint64_t kept = digits >> drop, rest = digits & ((UINT64_C(1) << drop) - 1),
             half = UINT64_C(1) << (drop - 1);
    bool up = round == SG_RN   ? rest > half || (rest == half && (kept & 1))
              : round == SG_RP ? !negative && rest != 0
              : round == SG_RM ? negative && rest != 0
                               : false;
    kept += up;
    /* the hidden digit adds one to the exponent by itself, and so does a carry */
    return (uint32_t)(((uint64_t)(least + bias - 1) << mantissa) + kept);
}

static float widen(uint32_t bits, uint32_t exponent, uint32_t mantissa)
{
    int bias = (1 << (exponent - 1)) - 1;
    int power = (int)(bits >> mantissa);
    uint32_t digits = bits & ((1u << mantissa) - 1);
    if (power == 0)
        return ldexpf((float)digits, 1 - bias - (int)mantissa);
    return ldexpf((float)(digits | 1u << mantissa), power - bias - (int)mantissa);
}

float sg_math_half_to_float(uint32_t bits)
{
    float magnitude = (bits & 0x7c00) != 0x7c00 ? widen(bits & 0x7fff, 5, 10)
                      : (bits & 0x3ff) != 0     ? NAN
                                                : INFINITY;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint32_t sg_math_float_to_half(float value, uint32_t round)
{
    if (isnan(value))
        return 0x7fff;
    uint32_t sign = signbit(value) ? 0x8000 : 0;
    if (isinf(value))
        return sign | 0x7c00;
    uint32_t magnitude = narrow(value, 5, 10, round);
    bool to_greatest = round == SG_RZ || (round == SG_RM && sign == 0) || (round == SG_RP && sign != 0);
    if (magnitude >= 0x7c00)
        magnitude = to_greatest ? 0x7bff : 0x7c00;
    return sign | magnitude;
}
