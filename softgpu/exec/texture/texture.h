/*
 * texture.h - texture and surface objects as kernels see them: a table of descriptors by 64-bit handle.
 *
 * The driver registers what an application creates; a kernel's instructions find it by its handle, without a
 * lock. Slots are never given back to the system, so that a handle which is stale or made up is told as such
 * and never followed. A descriptor's memory is read by ordinary accesses: if it has been freed, that is an
 * address fault of the kernel.
 */
#ifndef SG_EXEC_TEXTURE_TEXTURE_H
#define SG_EXEC_TEXTURE_TEXTURE_H

#include <stdbool.h>
#include <stdint.h>

enum sg_texel {
    SG_TEXEL_U8,
    SG_TEXEL_S8,
    SG_TEXEL_U16,
    SG_TEXEL_S16,
    SG_TEXEL_32,
    SG_TEXEL_HALF,
    SG_TEXEL_FLOAT
};
enum sg_address { SG_ADDRESS_WRAP, SG_ADDRESS_CLAMP, SG_ADDRESS_MIRROR, SG_ADDRESS_BORDER };

/** Four channels: the bits of floats, or integers. */
typedef uint32_t sg_texel4 __attribute__((vector_size(16)));

struct sg_thread;
struct sg_texture;

/**
 * Samples at coordinates as the instruction gives them; `layer`, 0 where there are none, has no sign. Faults
 * are the grid's.
 */
typedef sg_texel4 sg_sample_function(struct sg_thread *t, const struct sg_texture *texture, float u, float v,
                                     float w, int32_t layer);
/** Fetches the texel of integer coordinates. */
typedef sg_texel4 sg_fetch_function(struct sg_thread *t, const struct sg_texture *texture, int32_t x,
                                    int32_t y, int32_t z, int32_t layer);

#define SG_TEXTURE_LEVELS 18 /* of the longest extent, 131072 */

/** One level of a mipmapped array, or all of an array or of linear memory. */
struct sg_level {
    uint64_t base;
    uint64_t pitch, slice;         /* bytes from row to row, and from slice (or layer, or face) to slice */
    uint32_t width, height, depth; /* texels; at least 1 each. Layers and faces count as depth */
};

struct sg_texture {
    /* Of the base level, by dimensions less one; generated code calls them. Chosen by sg_texture_choose. */
    sg_sample_function *sample[3];
    sg_fetch_function *fetch[3];
    uint32_t texel_size; /* bytes */
    enum sg_texel texel;
    uint8_t channels;
    uint8_t n_levels;
    bool
        surface; /* a surface object: nothing below matters but what it is of, fractions and the first level */
    bool mipmapped;    /* what it is of, for queries: a mipmapped array, */
    bool layered;      /* layers, */
    bool cube;         /* the six faces of cubes */
    bool linear;       /* linear memory: fetches outside of it return 0 */
    bool fractions;    /* the format's integers are fractions, however they are read */
    bool as_float;     /* integers become [0, 1] or [-1, 1] */
    bool srgb;         /* 8-bit colours are decoded */
    bool normalised;   /* coordinates are fractions of the extents */
    bool filter;       /* linear filtering in a level */
    bool level_filter; /* linear filtering between levels */
    enum sg_address address[3];
    float border[4];
    float level_bias, level_least, level_most;
    struct sg_level level[SG_TEXTURE_LEVELS];
};

/** Sets `sample` and `fetch` by the rest of the description. sg_texture_register does. */
void sg_texture_choose(struct sg_texture *texture);
/** Makes an object; `user` is the caller's. Returns its handle, or 0 if there is no memory or no slot. */
uint64_t sg_texture_register(const struct sg_texture *texture, void *user);
/**
 * What was registered as `user`, or NULL if `handle` is no live object of that kind. `remove`: ends the
 * object.
 */
void *sg_texture_user(uint64_t handle, bool surface, bool remove);
/** The live object of a handle, or NULL. For instructions. */
const struct sg_texture *sg_texture_find(uint64_t handle, bool surface);
/**
 * The texture of a handle; for one that is none a texture all of whose functions are a fault. For generated
 * code.
 */
const struct sg_texture *sg_rt_texture(uint64_t handle);

#endif
