/*
 * small_floats.h - floats by their bits, and as numbers of 16 bits (half precision, bfloat16) and fewer. To the nearest number, ties to
 * even; NaN becomes 0x7fff, the one that instructions make. Those of 16 bits are without branches, so that loops over them become vector
 * instructions.
 */
#ifndef SG_SMALL_FLOATS_H
#define SG_SMALL_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t sg_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float sg_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The steps of subnormal numbers in half precision are 2^-24, and so are those of floats from a half to one. */
static inline float sg_float_of_half(uint32_t half)
{
    const uint32_t size = half & 0x7fff, sign = (half & 0x8000) << 16;
    const uint32_t subnormal = sg_bits_of_float((float)(int32_t)size * 0x1p-24f);
    const uint32_t normal = (size << 13) + (size < 0x7c00 ? 112u << 23 : 224u << 23);
    return sg_float_of_bits((size < 0x400 ? subnormal : normal) | sign);
}

static inline uint16_t sg_half_of_float(float value)
{
    const uint32_t size = sg_bits_of_float(value) & 0x7fffffff, sign = sg_bits_of_float(value) >> 16 & 0x8000;
    const uint32_t subnormal = sg_bits_of_float(sg_float_of_bits(size) + 0.5f) - 0x3f000000;
    const uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const uint32_t finite = size < 0x38800000 ? subnormal : normal; /* 2^-14 */
    const uint32_t bounded = size < 0x477ff000 ? finite : 0x7c00;   /* 65520 */
    return (uint16_t)(size > 0x7f800000 ? 0x7fff : sign | bounded);
}

/*
 * A number of up to 8 bits: a sign, `exponent` bits, the rest mantissa. e5m2 has infinities and NaN as larger
 * formats do, e4m3 has NaN alone, the others have neither.
 */
static inline float sg_float_of_small(uint32_t bits, unsigned exponent, unsigned mantissa)
{
    const uint32_t magnitude = bits & ((1u << (exponent + mantissa)) - 1),
                   sign = (bits >> (exponent + mantissa) & 1) << 31;
    if (exponent == 5 ? magnitude >= 0x7c : exponent == 4 && magnitude == 0x7f)
        return sg_float_of_bits(sign | (magnitude == 0x7c ? 0x7f800000 : 0x7fffffff));
    const int bias = (1 << (exponent - 1)) - 1;
    /* the bias is put right by a multiplication, which makes subnormal numbers right as well */
    const float scaled = ldexpf(sg_float_of_bits(magnitude << (23 - mantissa)), 127 - bias);
    return sg_float_of_bits(sign | sg_bits_of_float(scaled));
}

static inline float sg_float_of_bfloat16(uint32_t bfloat16)
{
    return sg_float_of_bits(bfloat16 << 16);
}

static inline uint16_t sg_bfloat16_of_float(float value)
{
    const uint32_t bits = sg_bits_of_float(value);
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
