/*
 * types.h - the types and state spaces of PTX.
 */
#ifndef SG_COMPILER_IR_TYPES_H
#define SG_COMPILER_IR_TYPES_H

#include "softgpu/compiler/base/support.h"

/* TYPE(constant, name, bits, class); .e2m1, .e2m3 and .e3m2 are in a byte each where matrices hold them */
// clang-format off
#define SG_TYPES(TYPE) \
    TYPE(PRED, "pred", 1, PRED) TYPE(B8, "b8", 8, BITS) TYPE(B16, "b16", 16, BITS) \
    TYPE(B32, "b32", 32, BITS) TYPE(B64, "b64", 64, BITS) TYPE(B128, "b128", 128, BITS) \
    TYPE(U8, "u8", 8, UNSIGNED) TYPE(U16, "u16", 16, UNSIGNED) TYPE(U32, "u32", 32, UNSIGNED) \
    TYPE(U64, "u64", 64, UNSIGNED) TYPE(S8, "s8", 8, SIGNED) TYPE(S16, "s16", 16, SIGNED) \
    TYPE(S32, "s32", 32, SIGNED) TYPE(S64, "s64", 64, SIGNED) TYPE(F16, "f16", 16, FLOAT) \
    TYPE(BF16, "bf16", 16, FLOAT) TYPE(F32, "f32", 32, FLOAT) TYPE(F64, "f64", 64, FLOAT) \
    /* formats without registers of their own: carried in .b registers of their size */ \
    TYPE(TF32, "tf32", 32, BITS) TYPE(F16X2, "f16x2", 32, BITS) TYPE(BF16X2, "bf16x2", 32, BITS) \
    TYPE(U16X2, "u16x2", 32, BITS) TYPE(S16X2, "s16x2", 32, BITS) TYPE(F32X2, "f32x2", 64, BITS) \
    TYPE(E4M3, "e4m3", 8, BITS) TYPE(E5M2, "e5m2", 8, BITS) TYPE(E4M3X2, "e4m3x2", 16, BITS) \
    TYPE(E5M2X2, "e5m2x2", 16, BITS) TYPE(E2M1, "e2m1", 8, BITS) TYPE(E2M3, "e2m3", 8, BITS) \
    TYPE(E3M2, "e3m2", 8, BITS) TYPE(E2M1X2, "e2m1x2", 8, BITS) TYPE(E2M3X2, "e2m3x2", 16, BITS) \
    TYPE(E3M2X2, "e3m2x2", 16, BITS) TYPE(UE8M0X2, "ue8m0x2", 16, BITS) \
    /* elements of matrices, several in a register */ \
    TYPE(S2, "s2", 2, BITS) TYPE(U2, "u2", 2, BITS) TYPE(S4, "s4", 4, BITS) TYPE(U4, "u4", 4, BITS) \
    TYPE(B1, "b1", 1, BITS)

enum sg_type {
    SG_TYPE_NONE,
#define SG_TYPE(constant, ...) SG_##constant,
    SG_TYPES(SG_TYPE)
#undef SG_TYPE
        SG_TYPE_COUNT
};

enum sg_type_class {
    SG_CLASS_NONE, SG_CLASS_PRED, SG_CLASS_BITS,
    SG_CLASS_UNSIGNED, SG_CLASS_SIGNED, SG_CLASS_FLOAT
};
// clang-format on

struct sg_type_info {
    const char *name;
    uint16_t bits;
    enum sg_type_class class;
};
extern const struct sg_type_info sg_types[SG_TYPE_COUNT];

enum sg_type sg_type_from_name(struct sg_slice name);
/** The integer type of twice as many bits, or SG_TYPE_NONE. */
enum sg_type sg_type_widened(enum sg_type type);

static inline uint32_t sg_type_bytes(enum sg_type type)
{
    return type == SG_PRED ? 1 : sg_types[type].bits / 8u;
}
static inline bool sg_type_is_signed(enum sg_type type)
{
    return sg_types[type].class == SG_CLASS_SIGNED;
}
static inline bool sg_type_is_float(enum sg_type type)
{
    return sg_types[type].class == SG_CLASS_FLOAT;
}

enum sg_space {
    SG_SPACE_GENERIC,
    SG_SPACE_REG,
    SG_SPACE_GLOBAL,
    SG_SPACE_CONST,
    SG_SPACE_SHARED,
    SG_SPACE_LOCAL,
    SG_SPACE_PARAM,
    SG_SPACE_NONE,
};
/** SG_SPACE_NONE if the word names no state space. */
enum sg_space sg_space_from_name(struct sg_slice name);

enum sg_linkage {
    SG_LINKAGE_NONE,
    SG_LINKAGE_EXTERN,
    SG_LINKAGE_VISIBLE,
    SG_LINKAGE_WEAK,
    SG_LINKAGE_COMMON
};

/** Variables .texref and .surfref are references: they hold the handle of a texture or surface object. */
enum sg_reference { SG_REFERENCE_NONE, SG_REFERENCE_TEXTURE, SG_REFERENCE_SURFACE };

#endif
