/*
 * texture.c - fetches against a reference that is written by definition (the programming guide's
 * appendix on fetching, in double precision): every format, filter, address mode, number of dimensions and
 * kind of coordinate, by the functions that textures bring and by the general one.
 */
#include "softgpu/exec/texture/texel.h"
#include "softgpu/kernel_abi.h"

#include <stdio.h>
#include <stdlib.h>

#define WIDTH  7
#define HEIGHT 5
#define DEPTH  3

static int failures;

/* --- the reference --- */

static double half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                             : exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                                              : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

/* Channel c of a texel: a number, whatever its kind. */
static double channel_value(const struct sg_texture *x, const void *texel, unsigned c)
{
    const double largest[] = {
        [SG_TEXEL_U8] = 255, [SG_TEXEL_S8] = 127, [SG_TEXEL_U16] = 65535, [SG_TEXEL_S16] = 32767};
    double value;
    if (c >= x->channels)
        return c == 3;
    switch (x->texel) {
    case SG_TEXEL_U8:
        value = ((const uint8_t *)texel)[c];
        break;
    case SG_TEXEL_S8:
        value = ((const int8_t *)texel)[c];
        break;
    case SG_TEXEL_U16:
        value = ((const uint16_t *)texel)[c];
        break;
    case SG_TEXEL_S16:
        value = ((const int16_t *)texel)[c];
        break;
    case SG_TEXEL_HALF:
        return half_value(((const uint16_t *)texel)[c]);
    case SG_TEXEL_FLOAT:
        return (double)((const float *)texel)[c];
    default:
        return ((const int32_t *)texel)[c];
    }
    if (!x->as_float)
        return value;
    value = value / largest[x->texel] < -1 ? -1 : value / largest[x->texel];
    if (x->srgb && c < 3)
        value = value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
    return value;
}

static double texel_value(const struct sg_texture *x, unsigned dimensions, bool fractions,
                          const long index[3], long layer, unsigned c)
{
    const long extent[3] = {x->level[0].width, x->level[0].height, x->level[0].depth};
    long at[3] = {0, 0, layer < 0 || layer >= DEPTH ? DEPTH - 1 : layer};
    for (unsigned d = 0; d < dimensions; d++) {
        const long n = extent[d];
        enum sg_address mode = x->address[d];
        at[d] = index[d];
        if (!fractions && mode != SG_ADDRESS_BORDER)
            mode = SG_ADDRESS_CLAMP;
        if (at[d] >= 0 && at[d] < n)
            continue;
        if (mode == SG_ADDRESS_BORDER)
            return sg_gives_float(x) ? (double)x->border[c] : (double)(int)x->border[c];
        if (mode == SG_ADDRESS_CLAMP)
            at[d] = at[d] < 0 ? 0 : n - 1;
        while (mode == SG_ADDRESS_WRAP && at[d] < 0)
            at[d] += n;
        if (mode == SG_ADDRESS_WRAP)
            at[d] %= n;
        while (mode == SG_ADDRESS_MIRROR && (at[d] < 0 || at[d] >= n))
            at[d] = at[d] < 0 ? -1 - at[d] : 2 * n - 1 - at[d];
    }
    const char *texel = (const char *)(uintptr_t)x->level[0].base + (uint64_t)at[2] * x->level[0].slice +
                        (uint64_t)at[1] * x->level[0].pitch + (uint64_t)at[0] * x->texel_size;
    return channel_value(x, texel, c);
}

static double reference(const struct sg_texture *x, unsigned dimensions, const float u[3], long layer,
                        unsigned c)
{
    const float extent[3] = {(float)x->level[0].width, (float)x->level[0].height, (float)x->level[0].depth};
    long first[3] = {0};
    double weight[3] = {0}, sum = 0;
    for (unsigned d = 0; d < dimensions; d++) {
        float at = u[d]; /* what is done in float is done so by definition: rounding decides between texels */
        if (x->normalised && x->address[d] == SG_ADDRESS_WRAP)
            at -= floorf(at);
        if (x->normalised && x->address[d] == SG_ADDRESS_MIRROR)
            at -= 2 * floorf(at / 2);
        if (x->normalised)
            at *= extent[d];
        if (x->filter)
            at -= 0.5f;
        first[d] = (long)floorf(at);
        weight[d] = x->filter ? nearbyint(256 * (double)(at - floorf(at))) / 256 : 0;
    }
    for (unsigned corner = 0; corner < 1u << dimensions; corner++) {
        long index[3] = {0};
        double part = 1;
        for (unsigned d = 0; d < dimensions; d++) {
            index[d] = first[d] + (corner >> d & 1);
            part *= corner >> d & 1 ? weight[d] : 1 - weight[d];
        }
        if (part != 0)
            sum += part * texel_value(x, dimensions, x->normalised, index, layer, c);
    }
    return sum;
}

/* --- the comparison --- */

static double number(const struct sg_texture *x, uint32_t word)
{
    return sg_gives_float(x) ? (double)sg_float_of_bits(word) : (double)(int32_t)word;
}

static void compare(const struct sg_texture *x, const char *what, unsigned dimensions, const float at[3],
                    const uint32_t got[4], const double expected[4])
{
    for (unsigned c = 0; c < 4; c++) {
        const double value = number(x, got[c]), error = fabs(value - expected[c]);
        if (error <= 1e-6 * (1 + fabs(expected[c])) || (isnan(value) && isnan(expected[c])) ||
            value == expected[c])
            continue;
        if (failures++ < 20)
            printf("%s, %uD, texel %d, %u channels, float %d, srgb %d, filter %d, normalised %d, address %d, "
                   "at %.9g %.9g "
                   "%.9g: channel %u is %.9g, not %.9g\n",
                   what, dimensions, (int)x->texel, x->channels, x->as_float, x->srgb, x->filter,
                   x->normalised, (int)x->address[0], (double)at[0], (double)at[1], (double)at[2], c, value,
                   expected[c]);
    }
}

static void one_texture(const struct sg_texture *description, unsigned dimensions)
{
    static const float places[] = {0.5f, 0,     1,    2.25f, 2.998f, 2.999f,  3.75f, -0.25f,
                                   -1,   -9.5f, 6.5f, 6.9f,  7,      12.125f, 100};
    static const uint32_t geometry[2][3] = {{SG_TEX_1D, SG_TEX_2D, SG_TEX_3D},
                                            {SG_TEX_A1D, SG_TEX_A2D, SG_TEX_3D}};
    const uint64_t handle = sg_texture_register(description, NULL);
    const struct sg_texture *x = sg_rt_texture(handle);
    const unsigned n = sizeof places / sizeof *places;
    for (unsigned i = 0; i < n * 3; i++) {
        const int layer =
            dimensions < 3 ? (int)(i % 5) - 1 : 0; /* without a sign: what is negative is large */
        const int clamped = layer < 0 || layer > 2 ? 2 : layer;
        float at[3] = {places[i % n], places[(i * 7 + 3) % n], places[(i * 11 + 5) % n]};
        for (unsigned d = 0; d < 3 && x->normalised; d++)
            at[d] /= 8;
        const bool layered = dimensions < 3;
        uint32_t words[SG_TEX_WORDS] = {0}, result[4];
        double expected[4];
        for (unsigned c = 0; c < 4; c++)
            expected[c] = reference(x, dimensions, at, clamped, c);
        sg_texel4 direct = x->sample[dimensions - 1](NULL, x, at[0], at[1], at[2], layer);
        memcpy(result, &direct, sizeof result);
        compare(x, "direct", dimensions, at, result, expected);
        words[0] = (uint32_t)layer;
        memcpy(words + layered, at, dimensions * sizeof *at);
        sg_rt_tex(NULL, handle, geometry[layered][dimensions - 1], words, result);
        compare(x, "general", dimensions, at, result, expected);

        const long index[3] = {(long)places[i % n], (long)places[(i * 7 + 3) % n],
                               (long)places[(i * 11 + 5) % n]};
        for (unsigned c = 0; c < 4; c++)
            expected[c] = texel_value(x, dimensions, false, index, clamped, c);
        direct =
            x->fetch[dimensions - 1](NULL, x, (int32_t)index[0], (int32_t)index[1], (int32_t)index[2], layer);
        memcpy(result, &direct, sizeof result);
        compare(x, "index, direct", dimensions, at, result, expected);
        for (unsigned d = 0; d < dimensions; d++)
            words[layered + d] = (uint32_t)index[d];
        sg_rt_tex(NULL, handle, geometry[layered][dimensions - 1] | SG_TEX_INTEGER, words, result);
        compare(x, "index, general", dimensions, at, result, expected);
    }
    sg_texture_user(handle, false, true);
}

static void all_textures(const void *texels, enum sg_texel kind, unsigned size, unsigned channels,
                         bool as_float, bool srgb)
{
    struct sg_texture x = {
        .texel = kind,
        .texel_size = size * channels,
        .channels = (uint8_t)channels,
        .n_levels = 1,
        .as_float = as_float,
        .srgb = srgb,
        .border = {3, -2, 5, -7},
        .level[0] = {.base = (uintptr_t)texels, .width = WIDTH, .height = HEIGHT, .depth = DEPTH}};
    x.level[0].pitch = (uint64_t)x.texel_size * 8;
    x.level[0].slice = x.level[0].pitch * HEIGHT;
    for (unsigned dimensions = 1; dimensions <= 3; dimensions++)
        for (unsigned mode = 0; mode < 16; mode++) {
            x.filter = mode & 1 && sg_gives_float(&x);
            x.normalised = mode & 2;
            for (unsigned d = 0; d < 3; d++)
                x.address[d] = (enum sg_address)(mode >> 2);
            one_texture(&x, dimensions);
        }
}

int main(void)
{
    static _Alignas(16) unsigned char bytes[8 * HEIGHT * DEPTH * 16];
    static _Alignas(16) uint16_t halves[8 * HEIGHT * DEPTH * 4];
    static _Alignas(16) float floats[8 * HEIGHT * DEPTH * 4];
    uint32_t random = 12345;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
    bytes[0] = 0x80; /* of signed channels: -1, and not less */
    bytes[1] = 0x80;
    /* All values are below 2, so that sums in float and in double agree to 1e-6. */
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        floats[i] = (float)(int32_t)(random = random * 1664525 + 1013904223) * 0x1p-30f;
        halves[i] = (uint16_t)(random >> 16 & 0xbfff); /* finite */
    }
    for (unsigned channels = 1; channels <= 4; channels *= 2) {
        for (int as_float = 0; as_float < 2; as_float++) {
            all_textures(bytes, SG_TEXEL_U8, 1, channels, as_float, false);
            all_textures(bytes, SG_TEXEL_S8, 1, channels, as_float, false);
            all_textures(bytes, SG_TEXEL_U16, 2, channels, as_float, false);
            all_textures(bytes, SG_TEXEL_S16, 2, channels, as_float, false);
        }
        all_textures(bytes, SG_TEXEL_U8, 1, channels, true, true);
        all_textures(bytes, SG_TEXEL_32, 4, channels, false, false);
        all_textures(halves, SG_TEXEL_HALF, 2, channels, false, false);
        all_textures(floats, SG_TEXEL_FLOAT, 4, channels, false, false);
    }
    /* what weighs nothing may be infinite */
    floats[0] = 1;
    floats[1] = INFINITY;
    all_textures(floats, SG_TEXEL_FLOAT, 4, 1, false, false);
    printf("%d failures\n", failures);
    return failures != 0;
}
