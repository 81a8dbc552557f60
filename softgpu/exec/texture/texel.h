/*
 * texel.h - what all ways to fetch share: formats, addressing, coordinates and weights, each written once.
 * Inline, so that where a format or a number of dimensions is constant, only its code is left.
 */
#ifndef SG_EXEC_TEXTURE_TEXEL_H
#define SG_EXEC_TEXTURE_TEXEL_H

#include "softgpu/exec/texture/texture.h"
#include "softgpu/guest.h"
#include "softgpu/small_floats.h"

#include <math.h>
#include <string.h>

#define SG_FAR 0x1p30f /* beyond this every coordinate is equally far outside */

/**
 * Of 8-bit channels: value / 255, and that as a colour of sRGB. Filled before the first texture is
 * registered.
 */
extern float sg_unorm8[256], sg_srgb8[256];

/** Whether reads of the texture give floats; else integers. */
static inline bool sg_gives_float(const struct sg_texture *x)
{
    return x->as_float || x->texel == SG_TEXEL_HALF || x->texel == SG_TEXEL_FLOAT;
}

/** A signed or 16-bit channel as reads give it: `largest` is 1. */
static inline uint32_t sg_from_integer(const struct sg_texture *x, int32_t value, float largest)
{
    if (!x->as_float)
        return (uint32_t)value;
    const float fraction = (float)value / largest;
    return sg_bits_of_float(fraction < -1.0f ? -1.0f : fraction);
}

/** Channel `i` of a texel in memory, as reads give it. */
static inline uint32_t sg_channel(const struct sg_texture *x, const unsigned char *texel, unsigned i)
{
    uint16_t narrow;
    uint32_t wide;
    switch (x->texel) {
    case SG_TEXEL_U8:
        if (!x->as_float)
            return texel[i];
        return sg_bits_of_float(x->srgb && i < 3 ? sg_srgb8[texel[i]] : sg_unorm8[texel[i]]);
    case SG_TEXEL_S8:
        return sg_from_integer(x, (int8_t)texel[i], 127.0f);
    case SG_TEXEL_U16:
        memcpy(&narrow, texel + 2 * i, 2);
        return sg_from_integer(x, narrow, 65535.0f);
    case SG_TEXEL_S16:
        memcpy(&narrow, texel + 2 * i, 2);
        return sg_from_integer(x, (int16_t)narrow, 32767.0f);
    case SG_TEXEL_HALF:
        memcpy(&narrow, texel + 2 * i, 2);
        return sg_bits_of_float(sg_float_of_half(narrow));
    default:
        memcpy(&wide, texel + 4 * i, 4);
        return wide;
    }
}

/** What a fourth channel is that the format lacks. */
static inline uint32_t sg_one(const struct sg_texture *x)
{
    return sg_gives_float(x) ? 0x3f800000u : 1;
}

/** A texel of any format; channels that it lacks are 0, 0 and one. */
static inline sg_texel4 sg_texel_any(const struct sg_texture *x, const unsigned char *texel)
{
    sg_texel4 out = {0, 0, 0, sg_one(x)};
    for (unsigned c = 0; c < x->channels; c++)
        out[c] = sg_channel(x, texel, c);
    return out;
}

/** What is outside, where the texture has a border. */
static inline sg_texel4 sg_border(const struct sg_texture *x)
{
    sg_texel4 out;
    for (unsigned c = 0; c < 4; c++)
        out[c] = sg_gives_float(x) ? sg_bits_of_float(x->border[c]) : (uint32_t)(int64_t)x->border[c];
    return out;
}

/** The texel that index `i` of `n` means, or -1 for the border. */
static inline int64_t sg_place(enum sg_address mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    switch (mode) {
    case SG_ADDRESS_WRAP:
        i %= n;
        return i < 0 ? i + n : i;
    case SG_ADDRESS_MIRROR:
        i %= 2 * n;
        i = i < 0 ? i + 2 * n : i;
        return i < n ? i : 2 * n - 1 - i;
    case SG_ADDRESS_BORDER:
        return -1;
    default:
        return i < 0 ? 0 : n - 1;
    }
}

/** Wrapping and mirroring are for coordinates that are fractions; others clamp. */
static inline enum sg_address sg_address_mode(const struct sg_texture *x, unsigned d, bool fractions)
{
    const enum sg_address mode = x->address[d];
    return fractions || mode == SG_ADDRESS_BORDER ? mode : SG_ADDRESS_CLAMP;
}

/** A coordinate in texels, at most SG_FAR away. */
static inline float sg_in_texels(float u, bool normalised, enum sg_address mode, uint32_t extent)
{
    if (normalised) {
        if (mode == SG_ADDRESS_WRAP)
            u -= floorf(u);
        else if (mode == SG_ADDRESS_MIRROR)
            u -= 2.0f * floorf(u / 2.0f);
        u *= (float)extent;
    }
    if (__builtin_expect(!(fabsf(u) < SG_FAR), 0))
        return u > 0 ? SG_FAR : u < 0 ? -SG_FAR : 0.0f;
    return u;
}

/** floor, of what is within SG_FAR and an offset. */
static inline int32_t sg_floor(float u)
{
    const int32_t i = (int32_t)u;
    return i - (u < (float)i);
}

/**
 * The first of the two texels that linear filtering takes, and the weight of the second: a multiple of 1/256,
 * less than 1.
 */
static inline int32_t sg_weigh(float u, float *weight)
{
    const float centre = u - 0.5f, to_integer = 0x1.8p23f;
    int32_t first = sg_floor(centre);
    float w =
        ((centre - (float)first) * 256.0f + to_integer) - to_integer; /* rounded to nearest, ties to even */
    if (w == 256.0f) {
        w = 0.0f;
        first++;
    }
    *weight = w * (1.0f / 256.0f);
    return first;
}

/** Layers are counted without a sign: what would be a negative one is beyond the last. */
static inline int32_t sg_clamp_layer(const struct sg_level *level, int32_t layer)
{
    return (uint32_t)layer < level->depth ? layer : (int32_t)level->depth - 1;
}

static inline const unsigned char *sg_texel_at(const struct sg_texture *x, const struct sg_level *level,
                                               int64_t i, int64_t j, int64_t k)
{
    /* confined: a texture that is destroyed and made anew while a kernel uses it is half of one, half of the other */
    return sg_guest_pointer((const unsigned char *)(uintptr_t)level->base + (uint64_t)k * level->slice +
                            (uint64_t)j * level->pitch + (uint64_t)i * x->texel_size);
}

#endif
