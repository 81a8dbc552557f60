/*
 * texture_fast.c - the functions that fetch from the base level of a texture, made for its format, dimensions
 * and filter, and the choice among them. They give what texture.c gives for the same operation; addressing is
 * decided where an index is outside, so that what is inside pays nothing for it.
 */
#include "softgpu/exec/texture/texel.h"
#include "softgpu/kernel_abi.h"

#include <pthread.h>

#define ALWAYS static inline __attribute__((always_inline))

float sg_unorm8[256], sg_srgb8[256];

static void fill_tables(void)
{
    for (int i = 0; i < 256; i++) {
        const float value = (float)i / 255.0f;
        sg_unorm8[i] = value;
        sg_srgb8[i] = value <= 0.04045f ? value / 12.92f : powf((value + 0.055f) / 1.055f, 2.4f);
    }
}

/* --- formats --- */

/*
 * Formats with functions of their own: channels of 32 bits, and bytes that become fractions. All others are
 * one.
 */
enum format { WORD1, WORD2, WORD4, BYTE1, BYTE2, BYTE4, OTHER, FORMATS };

ALWAYS sg_texel4 load(enum format format, const struct sg_texture *x, const unsigned char *texel)
{
    uint32_t a, b;
    sg_texel4 all;
    switch (format) {
    case WORD1:
        memcpy(&a, texel, 4);
        return (sg_texel4){a, 0, 0, sg_one(x)};
    case WORD2:
        memcpy(&a, texel, 4);
        memcpy(&b, texel + 4, 4);
        return (sg_texel4){a, b, 0, sg_one(x)};
    case WORD4:
        memcpy(&all, texel, sizeof all);
        return all;
    case BYTE1:
        return (sg_texel4){sg_bits_of_float(sg_unorm8[texel[0]]), 0, 0, 0x3f800000u};
    case BYTE2:
        return (sg_texel4){sg_bits_of_float(sg_unorm8[texel[0]]), sg_bits_of_float(sg_unorm8[texel[1]]), 0,
                           0x3f800000u};
    case BYTE4:
        return (sg_texel4){sg_bits_of_float(sg_unorm8[texel[0]]), sg_bits_of_float(sg_unorm8[texel[1]]),
                           sg_bits_of_float(sg_unorm8[texel[2]]), sg_bits_of_float(sg_unorm8[texel[3]])};
    default:
        return sg_texel_any(x, texel);
    }
}

/* --- fetches --- */

/* Where an index is outside; not inlined, so that it costs the rest nothing. */
static __attribute__((noinline)) const unsigned char *outside(const struct sg_texture *x, unsigned dimensions,
                                                              bool fractions, int32_t i, int32_t j, int32_t k,
                                                              int32_t layer)
{
    const struct sg_level *level = &x->level[0];
    int64_t at[3] = {i, j, k};
    const uint32_t extent[3] = {level->width, level->height, level->depth};
    for (unsigned d = 0; d < 3; d++) {
        if (d >= dimensions) {
            at[d] = d == 2 ? layer : 0;
            continue;
        }
        at[d] = sg_place(sg_address_mode(x, d, fractions), at[d], extent[d]);
        if (at[d] < 0)
            return NULL;
    }
    return sg_texel_at(x, level, at[0], at[1], at[2]);
}

ALWAYS sg_texel4 fetch(enum format format, unsigned dimensions, bool fractions, const struct sg_texture *x,
                       int32_t i, int32_t j, int32_t k, int32_t layer)
{
    const struct sg_level *level = &x->level[0];
    const unsigned char *texel;
    if (__builtin_expect((uint32_t)i < level->width && (dimensions < 2 || (uint32_t)j < level->height) &&
                             (dimensions < 3 || (uint32_t)k < level->depth),
                         1))
        texel = sg_texel_at(x, level, i, dimensions < 2 ? 0 : j, dimensions < 3 ? layer : k);
    else if ((texel = outside(x, dimensions, fractions, i, j, k, layer)) == NULL)
        return sg_border(x);
    return load(format, x, texel);
}

ALWAYS sg_texel4 fetch_index(enum format format, unsigned dimensions, const struct sg_texture *x, int32_t i,
                             int32_t j, int32_t k, int32_t layer)
{
    if (x->linear && (i < 0 || (uint32_t)i >= x->level[0].width))
        return (sg_texel4){0};
    return fetch(format, dimensions, false, x, i, j, k, layer != 0 ? sg_clamp_layer(&x->level[0], layer) : 0);
}

ALWAYS void in_texels(unsigned dimensions, const struct sg_texture *x, float u[3])
{
    const uint32_t extent[3] = {x->level[0].width, x->level[0].height, x->level[0].depth};
    for (unsigned d = 0; d < dimensions; d++)
        u[d] = sg_in_texels(u[d], x->normalised, x->address[d], extent[d]);
}

ALWAYS sg_texel4 sample_point(enum format format, unsigned dimensions, const struct sg_texture *x, float u,
                              float v, float w, int32_t layer)
{
    float at[3] = {u, v, w};
    in_texels(dimensions, x, at);
    return fetch(format, dimensions, x->normalised, x, sg_floor(at[0]), dimensions < 2 ? 0 : sg_floor(at[1]),
                 dimensions < 3 ? 0 : sg_floor(at[2]), layer != 0 ? sg_clamp_layer(&x->level[0], layer) : 0);
}

typedef float floats __attribute__((vector_size(16)));

/* The sum of corners in the order of texture.c; what weighs nothing is not looked at: it may be infinite. */
ALWAYS sg_texel4 sample_linear(enum format format, unsigned dimensions, const struct sg_texture *x, float u,
                               float v, float w, int32_t layer)
{
    float at[3] = {u, v, w}, weight[3] = {0};
    int32_t first[3] = {0};
    floats sum = {0};
    in_texels(dimensions, x, at);
    for (unsigned d = 0; d < dimensions; d++)
        first[d] = sg_weigh(at[d], &weight[d]);
    if (layer != 0)
        layer = sg_clamp_layer(&x->level[0], layer);
    if (weight[0] == 0.0f && weight[1] == 0.0f &&
        weight[2] == 0.0f) /* the middle of a texel, which is common */
        return (sg_texel4)(sum + (floats)fetch(format, dimensions, x->normalised, x, first[0], first[1],
                                               first[2], layer));
    for (unsigned corner = 0; corner < 1u << dimensions; corner++) {
        float part = 1.0f;
        for (unsigned d = 0; d < dimensions; d++)
            part *= corner >> d & 1 ? weight[d] : 1.0f - weight[d];
        if (part == 0.0f)
            continue;
        const sg_texel4 texel =
            fetch(format, dimensions, x->normalised, x, first[0] + (int32_t)(corner & 1),
                  first[1] + (int32_t)(corner >> 1 & 1), first[2] + (int32_t)(corner >> 2), layer);
        sum += part * (floats)texel;
    }
    return (sg_texel4)sum;
}

/* --- all of them --- */

#define FUNCTIONS(format, n)                                                                                 \
    static sg_texel4 point_##format##_##n(struct sg_thread *t, const struct sg_texture *x, float u, float v, \
                                          float w, int32_t layer)                                            \
    {                                                                                                        \
        (void)t;                                                                                             \
        return sample_point(format, n, x, u, v, w, layer);                                                   \
    }                                                                                                        \
    static sg_texel4 linear_##format##_##n(struct sg_thread *t, const struct sg_texture *x, float u,         \
                                           float v, float w, int32_t layer)                                  \
    {                                                                                                        \
        (void)t;                                                                                             \
        return sample_linear(format, n, x, u, v, w, layer);                                                  \
    }                                                                                                        \
    static sg_texel4 index_##format##_##n(struct sg_thread *t, const struct sg_texture *x, int32_t i,        \
                                          int32_t j, int32_t k, int32_t layer)                               \
    {                                                                                                        \
        (void)t;                                                                                             \
        return fetch_index(format, n, x, i, j, k, layer);                                                    \
    }

#define EACH(DO) DO(WORD1) DO(WORD2) DO(WORD4) DO(BYTE1) DO(BYTE2) DO(BYTE4) DO(OTHER)
#define DEFINE(format)                                                                                       \
    FUNCTIONS(format, 1)                                                                                     \
    FUNCTIONS(format, 2)                                                                                     \
    FUNCTIONS(format, 3)
#define POINT(format)  [format] = {point_##format##_1, point_##format##_2, point_##format##_3},
#define LINEAR(format) [format] = {linear_##format##_1, linear_##format##_2, linear_##format##_3},
#define INDEX(format)  [format] = {index_##format##_1, index_##format##_2, index_##format##_3},

EACH(DEFINE)

static sg_sample_function *const points[FORMATS][3] = {EACH(POINT)};
static sg_sample_function *const linears[FORMATS][3] = {EACH(LINEAR)};
static sg_fetch_function *const indices[FORMATS][3] = {EACH(INDEX)};

static enum format format_of(const struct sg_texture *x)
{
    const unsigned place = x->channels == 4 ? 2 : x->channels - 1u;
    if (x->texel == SG_TEXEL_32 || x->texel == SG_TEXEL_FLOAT)
        return (enum format)(WORD1 + place);
    return x->texel == SG_TEXEL_U8 && x->as_float && !x->srgb ? (enum format)(BYTE1 + place) : OTHER;
}

void sg_texture_choose(struct sg_texture *x)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
    if (x->n_levels == 0)
        x->n_levels = 1;
    if (x->surface)
        return;
    const enum format format = format_of(x);
    memcpy(x->sample, x->filter && sg_gives_float(x) ? linears[format] : points[format], sizeof x->sample);
    memcpy(x->fetch, indices[format], sizeof x->fetch);
}
