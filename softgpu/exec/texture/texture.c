/*
 * texture.c - texture fetches: coordinates to texels, addressing, filtering, levels, in full generality.
 *
 * The rules are those of the CUDA programming guide: with linear filtering the coordinate less one half has
 * its fraction rounded to 8 bits and weighs the neighbours; wrapping and mirroring are for normalised
 * coordinates, which clamp otherwise; what a format lacks of four channels is 0, the fourth 1. A level is the
 * one asked for, or the logarithm of the longer gradient in texels, plus the bias of the texture; between
 * levels, linear filtering has weights of 8 bits too. Anisotropic filtering is done as isotropic.
 *
 * Runs inside of kernels: nothing is locked or allocated, and a bad handle or memory that is gone is a fault
 * of the grid.
 */
#include "softgpu/exec/texture/texel.h"
#include "softgpu/kernel_abi.h"

struct sampler {
    const struct sg_texture *texture;
    const struct sg_level *level;
    enum sg_address address[3];
    unsigned dimensions;
    bool normalised;
    int32_t layer;
    int32_t offset[3];
};

static sg_texel4 fetch(const struct sampler *s, const int64_t index[3])
{
    const struct sg_texture *x = s->texture;
    const int64_t extent[3] = {s->level->width, s->level->height, s->level->depth};
    int64_t at[3] = {0, 0, sg_clamp_layer(s->level, s->layer)};
    for (unsigned d = 0; d < s->dimensions; d++) {
        at[d] = sg_place(s->address[d], index[d] + s->offset[d], extent[d]);
        if (at[d] < 0)
            return sg_border(x);
    }
    return sg_texel_any(x, sg_texel_at(x, s->level, at[0], at[1], at[2]));
}

/* --- one level --- */

/* A coordinate in texels of the level. */
static float in_texels(const struct sampler *s, const float u[3], unsigned d)
{
    const uint32_t extent[3] = {s->level->width, s->level->height, s->level->depth};
    return sg_in_texels(u[d], s->normalised, s->address[d], extent[d]);
}

static sg_texel4 sample_point(const struct sampler *s, const float u[3])
{
    int64_t index[3] = {0};
    for (unsigned d = 0; d < s->dimensions; d++)
        index[d] = sg_floor(in_texels(s, u, d));
    return fetch(s, index);
}

static sg_texel4 sample_linear(const struct sampler *s, const float u[3])
{
    int64_t first[3] = {0};
    float weight[3] = {0}, sum[4] = {0};
    sg_texel4 out;
    for (unsigned d = 0; d < s->dimensions; d++)
        first[d] = sg_weigh(in_texels(s, u, d), &weight[d]);
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
        const sg_texel4 texel = fetch(s, index);
        for (unsigned c = 0; c < 4; c++)
            sum[c] += part * sg_float_of_bits(texel[c]);
    }
    for (unsigned c = 0; c < 4; c++)
        out[c] = sg_bits_of_float(sum[c]);
    return out;
}

/*
 * One component of the four texels that linear filtering would take, counter-clockwise from the lower left.
 */
static sg_texel4 gather(const struct sampler *s, const float u[3], unsigned component)
{
    static const int8_t order[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    const int64_t x = sg_floor(in_texels(s, u, 0) - 0.5f), y = sg_floor(in_texels(s, u, 1) - 0.5f);
    sg_texel4 out;
    for (unsigned i = 0; i < 4; i++)
        out[i] = fetch(s, (int64_t[3]){x + order[i][0], y + order[i][1]})[component];
    return out;
}

static sg_texel4 sample(struct sampler *s, const float u[3], unsigned level)
{
    s->level = &s->texture->level[level];
    return s->texture->filter && sg_gives_float(s->texture) ? sample_linear(s, u) : sample_point(s, u);
}

/* --- levels --- */

static float limited(float value, float least, float most)
{
    return value > least ? value < most ? value : most : least; /* NaN: the least */
}

static float level_of(const struct sg_texture *x, float level)
{
    level = limited(level + x->level_bias, x->level_least, x->level_most);
    return limited(level, 0.0f, (float)(x->n_levels - 1));
}

/* The level at which the longer of two gradients is one texel. */
static float level_of_gradients(const struct sampler *s, const float across[3], const float down[3],
                                unsigned dimensions)
{
    const struct sg_level *base = &s->texture->level[0];
    const float extent[3] = {(float)base->width, (float)base->height, (float)base->depth};
    float a = 0, d = 0;
    for (unsigned i = 0; i < dimensions; i++) {
        const float scale = s->normalised ? extent[i] : 1.0f;
        a += across[i] * scale * (across[i] * scale);
        d += down[i] * scale * (down[i] * scale);
    }
    return 0.5f * log2f(a > d ? a : d);
}

static sg_texel4 sample_levels(struct sampler *s, const float u[3], float level)
{
    const struct sg_texture *x = s->texture;
    level = level_of(x, level);
    if (!x->level_filter || !sg_gives_float(x))
        return sample(s, u, (unsigned)(level + 0.5f));
    const unsigned first = (unsigned)level;
    const float weight = rintf((level - (float)first) * 256.0f) / 256.0f;
    if (weight == 0.0f)
        return sample(s, u, first);
    if (weight == 1.0f)
        return sample(s, u, first + 1);
    const sg_texel4 a = sample(s, u, first), b = sample(s, u, first + 1);
    sg_texel4 out;
    for (unsigned c = 0; c < 4; c++)
        out[c] = sg_bits_of_float((1.0f - weight) * sg_float_of_bits(a[c]) + weight * sg_float_of_bits(b[c]));
    return out;
}

/* --- cubes --- */

/* The face that a direction meets, and where: fractions of its extents. */
static int32_t cube_face(const float v[3], float u[2])
{
    const float x = fabsf(v[0]), y = fabsf(v[1]), z = fabsf(v[2]);
    int32_t face;
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

/* The gradients of the place on the face, of half an extent a unit of direction along the major axis. */
static void cube_gradient(const float v[3], float gradient[3])
{
    const float x = fabsf(v[0]), y = fabsf(v[1]), z = fabsf(v[2]);
    const unsigned major = x >= y && x >= z ? 0 : y >= z ? 1 : 2;
    const float length = v[major];
    float along[2];
    for (unsigned i = 0, n = 0; i < 3; i++)
        if (i != major)
            along[n++] = 0.5f * (gradient[i] * length - v[i] * gradient[major]) / (length * length);
    gradient[0] = along[0];
    gradient[1] = along[1];
}

/* From a direction, its gradients and a cube to a place on a face, and gradients there. */
static void enter_cube(struct sampler *s, float u[3], float across[3], float down[3])
{
    const float direction[3] = {u[0], u[1], u[2]};
    const uint32_t cubes = s->level->depth / 6, asked = (uint32_t)s->layer;
    const uint32_t first = cubes == 0 ? 0 : (asked < cubes ? asked : cubes - 1) * 6;
    s->layer = (int32_t)first + cube_face(direction, u);
    cube_gradient(direction, across);
    cube_gradient(direction, down);
}

/* --- the instructions --- */

static const uint8_t dimensions_of[] = {
    [SG_TEX_1D] = 1,  [SG_TEX_2D] = 2,   [SG_TEX_3D] = 3,    [SG_TEX_A1D] = 1,
    [SG_TEX_A2D] = 2, [SG_TEX_CUBE] = 2, [SG_TEX_ACUBE] = 2, [7] = 1,
};

static void floats_of(const uint32_t *words, unsigned n, float *out)
{
    for (unsigned i = 0; i < n; i++)
        out[i] = sg_float_of_bits(words[i]);
}

static sg_texel4 fetch_integer(struct sampler *s, const uint32_t *coordinates, unsigned level)
{
    const struct sg_texture *x = s->texture;
    int64_t index[3] = {0};
    s->level = &x->level[level];
    for (unsigned d = 0; d < s->dimensions; d++)
        index[d] = (int32_t)coordinates[d];
    if (x->linear && (index[0] < 0 || index[0] >= s->level->width))
        return (sg_texel4){0};
    return fetch(s, index);
}

void sg_rt_tex(struct sg_thread *t, uint64_t texture, uint32_t operation, const uint32_t *words,
               uint32_t *result)
{
    const struct sg_texture *x = sg_texture_find(texture, false);
    const unsigned geometry = operation & SG_TEX_GEOMETRY;
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    struct sampler s = {.texture = x, .level = &x->level[0], .dimensions = dimensions_of[geometry]};
    const bool layered = geometry == SG_TEX_A1D || geometry == SG_TEX_A2D || geometry == SG_TEX_ACUBE;
    const bool cube = geometry == SG_TEX_CUBE || geometry == SG_TEX_ACUBE;
    const bool levels = operation & (SG_TEX_LEVEL | SG_TEX_GRADIENT);
    const uint32_t *coordinates = words + layered;
    s.layer = layered ? (int32_t)words[0] : 0;
    s.normalised = x->normalised || cube;
    for (unsigned d = 0; d < 3; d++) {
        s.address[d] =
            cube ? SG_ADDRESS_CLAMP : sg_address_mode(x, d, s.normalised && !(operation & SG_TEX_INTEGER));
        s.offset[d] = operation & SG_TEX_OFFSET ? (int32_t)words[12 + d] : 0;
    }
    const bool integer = operation & SG_TEX_INTEGER;
    float level = 0, u[3] = {0}, across[3] = {0}, down[3] = {0};
    sg_texel4 out;
    if (operation & SG_TEX_LEVEL)
        level = integer ? (float)(int32_t)words[4] : sg_float_of_bits(words[4]);
    floats_of(words + 4, 3, across);
    floats_of(words + 8, 3, down);
    floats_of(coordinates, cube ? 3 : s.dimensions, u);
    if (cube)
        enter_cube(&s, u, across, down);
    if (operation & SG_TEX_GRADIENT)
        level = level_of_gradients(&s, across, down, s.dimensions);
    if (integer)
        out = fetch_integer(&s, coordinates, levels ? (unsigned)(level_of(x, level) + 0.5f) : 0);
    else if (operation & SG_TEX_GATHER)
        out = gather(&s, u, operation >> SG_TEX_COMPONENT_SHIFT & 3);
    else
        out = levels ? sample_levels(&s, u, level) : sample(&s, u, 0);
    memcpy(result, &out, sizeof out);
}

uint32_t sg_rt_txq(struct sg_thread *t, uint64_t handle, uint32_t query)
{
    const struct sg_texture *x = sg_texture_find(handle, query & SG_TXQ_SURFACE);
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    static const uint8_t addresses[] = {
        [SG_ADDRESS_WRAP] = 0, [SG_ADDRESS_MIRROR] = 1, [SG_ADDRESS_CLAMP] = 3, [SG_ADDRESS_BORDER] = 4};
    const uint32_t level = query >> SG_TXQ_LEVEL_SHIFT, what = query & SG_TXQ_QUERY;
    if (level >= x->n_levels)
        return 0;
    const struct sg_level *asked = &x->level[level];
    switch (what) {
    case SG_TXQ_WIDTH:
        return asked->width;
    case SG_TXQ_HEIGHT:
        return asked->height;
    case SG_TXQ_DEPTH: /* layers count as such */
        return asked->depth;
    case SG_TXQ_ARRAY_SIZE:
        return x->layered ? asked->depth / (x->cube ? 6 : 1) : 0;
    case SG_TXQ_LEVELS:
        return x->mipmapped ? x->n_levels : 0;
    case SG_TXQ_NORMALISED:
        return x->normalised;
    case SG_TXQ_FILTER:
        return x->filter;
    case SG_TXQ_ADDRESS_0:
    case SG_TXQ_ADDRESS_1:
    case SG_TXQ_ADDRESS_2:
        return addresses[x->address[what - SG_TXQ_ADDRESS_0]];
    default:
        return 0;
    }
}
