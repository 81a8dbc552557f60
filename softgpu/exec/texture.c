/*
 * texture.c - texture fetches: coordinates to texels, addressing, filtering, formats.
 *
 * The rules are those of the CUDA programming guide: with linear filtering the coordinate less one half has its
 * fraction rounded to 8 bits and weighs the neighbours; wrapping and mirroring are for normalised coordinates, which
 * clamp otherwise; what a format lacks of four channels is 0, the fourth 1. There are no mip levels: those of
 * instructions that name one are all the first.
 *
 * Runs inside of kernels: nothing is locked or allocated, and a bad handle or memory that is gone is a fault of the
 * grid.
 */
#include "softgpu/exec/texture.h"

#include "softgpu/kernel_abi.h"

#include <math.h>
#include <string.h>

#define FAR 0x1p40f /* beyond this every coordinate is equally far outside */

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- formats --- */

static float half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31,
                   mantissa = half & 1023;
    if (exponent == 0)
        return bits_float(sign | float_bits((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return bits_float(sign | 0x7f800000u | mantissa << 13);
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

static float srgb_to_linear(float value)
{
    return value <= 0.04045f ? value / 12.92f : powf((value + 0.055f) / 1.055f, 2.4f);
}

static uint32_t from_integer(const struct sg_texture *x, int32_t value, float largest)
{
    if (!x->as_float)
        return (uint32_t)value;
    const float fraction = (float)value / largest;
    return float_bits(fraction < -1.0f ? -1.0f : fraction);
}

static uint32_t channel(const struct sg_texture *x, const unsigned char *texel, unsigned i)
{
    uint16_t narrow;
    uint32_t wide;
    switch (x->texel) {
    case SG_TEXEL_U8:
        wide = from_integer(x, texel[i], 255.0f);
        return x->srgb && x->as_float && i < 3 ? float_bits(srgb_to_linear(bits_float(wide))) : wide;
    case SG_TEXEL_S8:
        return from_integer(x, (int8_t)texel[i], 127.0f);
    case SG_TEXEL_U16:
        memcpy(&narrow, texel + 2 * i, 2);
        return from_integer(x, narrow, 65535.0f);
    case SG_TEXEL_S16:
        memcpy(&narrow, texel + 2 * i, 2);
        return from_integer(x, (int16_t)narrow, 32767.0f);
    case SG_TEXEL_HALF:
        memcpy(&narrow, texel + 2 * i, 2);
        return float_bits(half_to_float(narrow));
    default:
        memcpy(&wide, texel + 4 * i, 4);
        return wide;
    }
}

static bool gives_float(const struct sg_texture *x)
{
    return x->as_float || x->texel == SG_TEXEL_HALF || x->texel == SG_TEXEL_FLOAT;
}

/* --- addresses --- */

/* The texel that index `i` of `n` means, or -1 for the border. */
static int64_t place(enum sg_address mode, int64_t i, int64_t n)
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

struct sampler {
    const struct sg_texture *texture;
    enum sg_address address[3];
    unsigned dimensions;
    uint32_t layer;
};

static void fetch(const struct sampler *s, const int64_t index[3], uint32_t out[4])
{
    const struct sg_texture *x = s->texture;
    const int64_t extent[3] = {x->width, x->height, x->depth};
    int64_t at[3] = {0, 0, s->layer};
    for (unsigned d = 0; d < s->dimensions; d++) {
        at[d] = place(s->address[d], index[d], extent[d]);
        if (at[d] < 0) {
            for (unsigned c = 0; c < 4; c++)
                out[c] = gives_float(x) ? float_bits(x->border[c]) : (uint32_t)(int64_t)x->border[c];
            return;
        }
    }
    const unsigned char *texel = (const unsigned char *)(uintptr_t)x->base + (uint64_t)at[2] * x->slice +
                                 (uint64_t)at[1] * x->pitch + (uint64_t)at[0] * x->texel_size;
    for (unsigned c = 0; c < 4; c++)
        out[c] = c < x->channels ? channel(x, texel, c) : c < 3 ? 0 : (gives_float(x) ? float_bits(1.0f) : 1);
}

/* --- coordinates --- */

/* A coordinate in texels. */
static float scale(const struct sampler *s, float u, unsigned d, bool normalised)
{
    const struct sg_texture *x = s->texture;
    const uint32_t extent = d == 0 ? x->width : d == 1 ? x->height : x->depth;
    if (isnan(u))
        return 0.0f;
    if (normalised) {
        if (s->address[d] == SG_ADDRESS_WRAP)
            u -= floorf(u);
        else if (s->address[d] == SG_ADDRESS_MIRROR)
            u -= 2.0f * floorf(u / 2.0f);
        u *= (float)extent;
    }
    return u > FAR ? FAR : u < -FAR ? -FAR : u;
}

static void sample_point(const struct sampler *s, const float u[3], uint32_t out[4])
{
    int64_t index[3] = {0};
    for (unsigned d = 0; d < s->dimensions; d++)
        index[d] = (int64_t)floorf(u[d]);
    fetch(s, index, out);
}

static void sample_linear(const struct sampler *s, const float u[3], uint32_t out[4])
{
    int64_t first[3] = {0};
    float weight[3] = {0}, sum[4] = {0};
    for (unsigned d = 0; d < s->dimensions; d++) {
        const float centre = u[d] - 0.5f, below = floorf(centre);
        first[d] = (int64_t)below;
        weight[d] = rintf((centre - below) * 256.0f) / 256.0f;
    }
    for (unsigned corner = 0; corner < 1u << s->dimensions; corner++) {
        int64_t index[3] = {0};
        float part = 1.0f;
        for (unsigned d = 0; d < s->dimensions; d++) {
            const bool upper = corner >> d & 1;
            index[d] = first[d] + upper;
            part *= upper ? weight[d] : 1.0f - weight[d];
        }
        if (part == 0.0f) /* its neighbour may be infinite, and counts for nothing */
            continue;
        uint32_t texel[4];
        fetch(s, index, texel);
        for (unsigned c = 0; c < 4; c++)
            sum[c] += part * bits_float(texel[c]);
    }
    for (unsigned c = 0; c < 4; c++)
        out[c] = float_bits(sum[c]);
}

/* One component of the four texels that linear filtering would take, counter-clockwise from the lower left. */
static void gather(const struct sampler *s, const float u[3], unsigned component, uint32_t out[4])
{
    static const int8_t order[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (unsigned i = 0; i < 4; i++) {
        uint32_t texel[4];
        fetch(s,
              (int64_t[3]){(int64_t)floorf(u[0] - 0.5f) + order[i][0],
                           (int64_t)floorf(u[1] - 0.5f) + order[i][1]},
              texel);
        out[i] = texel[component];
    }
}

/* The face that a direction meets, and where: fractions of its extents. */
static uint32_t cube_face(const float v[3], float u[2])
{
    const float x = fabsf(v[0]), y = fabsf(v[1]), z = fabsf(v[2]);
    uint32_t face;
    float s, t, major;
    if (x >= y && x >= z) {
        face = v[0] < 0 ? 1 : 0;
        s = v[0] < 0 ? v[2] : -v[2];
        t = -v[1];
        major = x;
    } else if (y >= z) {
        face = v[1] < 0 ? 3 : 2;
        s = v[0];
        t = v[1] < 0 ? -v[2] : v[2];
        major = y;
    } else {
        face = v[2] < 0 ? 5 : 4;
        s = v[2] < 0 ? -v[0] : v[0];
        t = -v[1];
        major = z;
    }
    u[0] = (s / major + 1.0f) / 2.0f;
    u[1] = (t / major + 1.0f) / 2.0f;
    return face;
}

static uint32_t clamp_layer(const struct sg_texture *x, uint32_t layer)
{
    const int32_t wanted = (int32_t)layer;
    return wanted < 0 ? 0 : (uint32_t)wanted < x->depth ? (uint32_t)wanted : x->depth - 1;
}

static const uint8_t dimensions_of[] = {
    [SG_TEX_1D] = 1,  [SG_TEX_2D] = 2,   [SG_TEX_3D] = 3,    [SG_TEX_A1D] = 1,
    [SG_TEX_A2D] = 2, [SG_TEX_CUBE] = 2, [SG_TEX_ACUBE] = 2, [7] = 1,
};

static void fetch_integer(const struct sampler *s, const uint32_t *coordinates, uint32_t out[4])
{
    const struct sg_texture *x = s->texture;
    int64_t index[3] = {0};
    for (unsigned d = 0; d < s->dimensions; d++)
        index[d] = (int32_t)coordinates[d];
    if (x->linear && (index[0] < 0 || index[0] >= x->width))
        memset(out, 0, 4 * sizeof *out);
    else
        fetch(s, index, out);
}

void sg_rt_tex(struct sg_thread *t, uint64_t texture, uint32_t operation, const uint32_t *coordinates,
               uint32_t *result)
{
    const struct sg_texture *x = sg_texture_find(texture, false);
    const unsigned geometry = operation & SG_TEX_GEOMETRY;
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    struct sampler s = {.texture = x, .dimensions = dimensions_of[geometry]};
    const bool layered = geometry == SG_TEX_A1D || geometry == SG_TEX_A2D || geometry == SG_TEX_ACUBE;
    const bool cube = geometry == SG_TEX_CUBE || geometry == SG_TEX_ACUBE;
    const uint32_t layer = layered ? *coordinates++ : 0;
    const bool normalised = x->normalised || cube;
    for (unsigned d = 0; d < 3; d++) {
        s.address[d] = cube ? SG_ADDRESS_CLAMP : x->address[d];
        if ((!normalised || operation & SG_TEX_INTEGER) &&
            (s.address[d] == SG_ADDRESS_WRAP || s.address[d] == SG_ADDRESS_MIRROR))
            s.address[d] = SG_ADDRESS_CLAMP;
    }
    s.layer = clamp_layer(x, layer);
    if (operation & SG_TEX_INTEGER) {
        fetch_integer(&s, coordinates, result);
        return;
    }
    float u[3] = {0};
    if (cube) {
        const float v[3] = {bits_float(coordinates[0]), bits_float(coordinates[1]),
                            bits_float(coordinates[2])};
        s.layer = clamp_layer(x, layer * 6 + cube_face(v, u));
    } else {
        for (unsigned d = 0; d < s.dimensions; d++)
            u[d] = bits_float(coordinates[d]);
    }
    for (unsigned d = 0; d < s.dimensions; d++)
        u[d] = scale(&s, u[d], d, normalised);
    if (operation & SG_TEX_GATHER)
        gather(&s, u, operation >> SG_TEX_COMPONENT_SHIFT & 3, result);
    else if (x->filter && gives_float(x))
        sample_linear(&s, u, result);
    else
        sample_point(&s, u, result);
}

uint32_t sg_rt_txq(struct sg_thread *t, uint64_t handle, uint32_t query)
{
    const struct sg_texture *x = sg_texture_find(handle, query & SG_TXQ_SURFACE);
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    switch (query & ~SG_TXQ_SURFACE) {
    case SG_TXQ_WIDTH:
        return x->width;
    case SG_TXQ_HEIGHT:
        return x->height;
    case SG_TXQ_LEVELS:
        return 1;
    default: /* depth, layers */
        return x->depth;
    }
}
