/*
 * surface.c - surface loads, stores and reductions: whole bytes of array memory, no formats. The first
 * coordinate counts bytes. Runs inside of kernels, as texture.c.
 */
#include "softgpu/exec/texture/texture.h"
#include "softgpu/guest.h"
#include "softgpu/kernel_abi.h"

#include <string.h>

static int64_t clamped(int64_t value, int64_t largest)
{
    return value < 0 ? 0 : value > largest ? largest : value;
}

/*
 * Where an access goes; NULL for one outside that is to be ignored. Does not return for one that is an error.
 */
static void *locate(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates)
{
    const struct sg_texture *x = sg_texture_find(surface, true);
    const unsigned geometry = operation & SG_TEX_GEOMETRY;
    const unsigned bytes = operation >> SG_SURFACE_BYTES_SHIFT & 255;
    if (x == NULL)
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    const bool layered = geometry == SG_TEX_A1D || geometry == SG_TEX_A2D;
    int64_t layer = layered ? *coordinates++ : 0; /* without a sign */
    int64_t column = (int32_t)coordinates[0], row = 0, slice = layer;
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
    const void *at = locate(t, surface, operation, coordinates);
    const unsigned bytes = operation >> SG_SURFACE_BYTES_SHIFT & 255;
    if (at != NULL)
        memcpy(result, at, bytes);
    else
        memset(result, 0, bytes);
}

void sg_rt_sust(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                const void *value)
{
    void *at = locate(t, surface, operation, coordinates);
    if (at != NULL)
        memcpy(at, value, operation >> SG_SURFACE_BYTES_SHIFT & 255);
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
    void *at = locate(t, surface, operation, coordinates);
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
