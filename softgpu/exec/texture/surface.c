/*
 * surface.c - surface loads, stores and reductions: whole bytes of array memory, whose first coordinate counts bytes, and stores
 * by the surface's format, whose first coordinate counts texels. Runs inside of kernels, as texture.c.
 */
#include "softgpu/exec/texture/texel.h"
#include "softgpu/guest.h"
#include "softgpu/kernel_abi.h"

#include <math.h>
#include <string.h>

static int64_t clamped(int64_t value, int64_t largest)
{
    return value < 0 ? 0 : value > largest ? largest : value;
}

static const struct sg_texture *surface_of(struct sg_thread *t, uint64_t handle)
{
    const struct sg_texture *x = sg_texture_find(handle, true);
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    return x;
}

/*
 * Where an access goes; NULL for one outside that is to be ignored. Does not return for one that is an error.
 */
static void *locate(struct sg_thread *t, const struct sg_texture *x, uint32_t operation,
                    const uint32_t *coordinates)
{
    const unsigned geometry = operation & SG_TEX_GEOMETRY;
    const bool formatted = operation & SG_SURFACE_FORMATTED;
    const unsigned bytes = formatted ? x->texel_size : operation >> SG_SURFACE_BYTES_SHIFT & 255;
    const bool layered = geometry == SG_TEX_A1D || geometry == SG_TEX_A2D;
    int64_t layer = layered ? *coordinates++ : 0; /* without a sign */
    int64_t column = (int64_t)(int32_t)coordinates[0] * (formatted ? bytes : 1), row = 0, slice = layer;
    if (geometry == SG_TEX_2D || geometry == SG_TEX_A2D || geometry == SG_TEX_3D)
        row = (int32_t)coordinates[1];
    if (geometry == SG_TEX_3D)
        slice = (int32_t)coordinates[2];
    const struct sg_level *level = &x->level[0];
    const int64_t last = (int64_t)level->width * x->texel_size - bytes;
    if (last < 0)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    if (column < 0 || column > last || row < 0 || row >= level->height || slice < 0 ||
        slice >= level->depth) {
        switch (operation & SG_SURFACE_BOUND) {
        case SG_SURFACE_ZERO:
            return NULL;
        case SG_SURFACE_CLAMP:
            column = clamped(column, last);
            row = clamped(row, (int64_t)level->height - 1);
            slice = clamped(slice, (int64_t)level->depth - 1);
            break;
        default:
            sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
        }
    }
    if (column % bytes != 0)
        sg_rt_fault(t, SG_FAULT_MISALIGNED);
    return sg_guest_pointer((unsigned char *)(uintptr_t)level->base + (uint64_t)slice * level->slice +
                            (uint64_t)row * level->pitch + column); /* as in texel.h */
}

void sg_rt_suld(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                void *result)
{
    const void *at = locate(t, surface_of(t, surface), operation, coordinates);
    const unsigned bytes = operation >> SG_SURFACE_BYTES_SHIFT & 255;
    if (at != NULL)
        memcpy(result, at, bytes);
    else
        memset(result, 0, bytes);
}

/* A word as a channel of the format: fractions are of `most`, and what is beyond the ends is the end. */
static int32_t narrowed(const struct sg_texture *x, uint32_t word, int32_t least, int32_t most)
{
    if (x->fractions) {
        const float value = sg_float_of_bits(word);
        const float low = least < 0 ? -1.0f : 0.0f;
        return (int32_t)roundf((value > 1.0f   ? 1.0f
                                : value > low  ? value
                                : value <= low ? low
                                               : 0.0f) *
                               (float)most);
    }
    if (least < 0)
        return (int32_t)clamped((int64_t)(int32_t)word - least, (int64_t)most - least) + least;
    return (int32_t)clamped(word, most);
}

/* Writes the channels that the texel and the value have both; others stay as they are. */
static void store_formatted(const struct sg_texture *x, unsigned char *at, const uint32_t *words,
                            unsigned n_words)
{
    for (unsigned c = 0; c < x->channels && c < n_words; c++) {
        uint32_t wide = words[c];
        switch (x->texel) {
        case SG_TEXEL_U8:
            at[c] = (unsigned char)narrowed(x, wide, 0, UINT8_MAX);
            continue;
        case SG_TEXEL_S8:
            at[c] = (unsigned char)narrowed(x, wide, INT8_MIN, INT8_MAX);
            continue;
        case SG_TEXEL_U16:
            wide = (uint32_t)narrowed(x, wide, 0, UINT16_MAX);
            break;
        case SG_TEXEL_S16:
            wide = (uint32_t)narrowed(x, wide, INT16_MIN, INT16_MAX);
            break;
        case SG_TEXEL_HALF:
            wide = sg_half_of_float(sg_float_of_bits(wide));
            break;
        default:
            memcpy(at + 4 * c, &wide, 4);
            continue;
        }
        const uint16_t narrow = (uint16_t)wide;
        memcpy(at + 2 * c, &narrow, 2);
    }
}

void sg_rt_sust(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                const void *value)
{
    const struct sg_texture *x = surface_of(t, surface);
    const unsigned bytes = operation >> SG_SURFACE_BYTES_SHIFT & 255;
    void *at = locate(t, x, operation, coordinates);
    if (at == NULL)
        return;
    if (operation & SG_SURFACE_FORMATTED)
        store_formatted(x, at, value, bytes / 4);
    else
        memcpy(at, value, bytes);
}

/* *at = smaller or larger of *at and value, atomically. */
#define EXTREME(type, compare)                                                                               \
    do {                                                                                                     \
        type *p = at, before = __atomic_load_n(p, __ATOMIC_RELAXED);                                         \
        while (                                                                                              \
            (type)value compare before &&                                                                    \
            !__atomic_compare_exchange_n(p, &before, (type)value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
            ;                                                                                                \
    } while (0)

void sg_rt_sured(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                 uint64_t value)
{
    void *at = locate(t, surface_of(t, surface), operation, coordinates);
    const bool wide = (operation >> SG_SURFACE_BYTES_SHIFT & 255) == 8;
    const bool is_signed = operation & SG_SURFACE_SIGNED;
    if (at == NULL)
        return;
    switch (operation >> SG_SURFACE_REDUCE_SHIFT & 7) {
    case SG_REDUCE_ADD:
        if (wide)
            __atomic_fetch_add((uint64_t *)at, value, __ATOMIC_RELAXED);
        else
            __atomic_fetch_add((uint32_t *)at, (uint32_t)value, __ATOMIC_RELAXED);
        break;
    case SG_REDUCE_MIN:
        if (wide && is_signed)
            EXTREME(int64_t, <);
        else if (wide)
            EXTREME(uint64_t, <);
        else if (is_signed)
            EXTREME(int32_t, <);
        else
            EXTREME(uint32_t, <);
        break;
    case SG_REDUCE_MAX:
        if (wide && is_signed)
            EXTREME(int64_t, >);
        else if (wide)
            EXTREME(uint64_t, >);
        else if (is_signed)
            EXTREME(int32_t, >);
        else
            EXTREME(uint32_t, >);
        break;
    case SG_REDUCE_AND_BITS:
        __atomic_fetch_and((uint32_t *)at, (uint32_t)value, __ATOMIC_RELAXED);
        break;
    default:
        __atomic_fetch_or((uint32_t *)at, (uint32_t)value, __ATOMIC_RELAXED);
        break;
    }
}
