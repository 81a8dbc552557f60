/*
 * types.h - the types and state spaces of PTX.
 */
#ifndef SG_COMPILER_IR_TYPES_H
#define SG_COMPILER_IR_TYPES_H

#include "softgpu/compiler/base/support.h"

enum sg_type {
    SG_TYPE_NONE,
    SG_PRED,
    SG_B8,
    SG_B16,
    SG_B32,
    SG_B64,
    SG_B128,
    SG_U8,
    SG_U16,
    SG_U32,
    SG_U64,
    SG_S8,
    SG_S16,
    SG_S32,
    SG_S64,
    SG_F16,
    SG_BF16,
    SG_F32,
    SG_F64,
    SG_TF32,
    SG_F16X2,
    SG_BF16X2,
    SG_U16X2,
    SG_S16X2,
    SG_F32X2,
    SG_E4M3,
    SG_E5M2,
    SG_E4M3X2,
    SG_E5M2X2,
    SG_E2M1,
    SG_E2M3,
    SG_E3M2,
    SG_E2M1X2,
    SG_E2M3X2,
    SG_E3M2X2,
    SG_UE8M0X2,
    SG_S2,
    SG_U2,
    SG_S4,
    SG_U4,
    SG_B1,
    SG_TYPE_COUNT,
};

enum sg_type_class {
    SG_CLASS_NONE,
    SG_CLASS_PRED,
    SG_CLASS_BITS,
    SG_CLASS_UNSIGNED,
    SG_CLASS_SIGNED,
    SG_CLASS_FLOAT
};

struct sg_type_info {
    const char *name;
    uint16_t bits;
    enum sg_type_class class;
};
extern const struct sg_type_info sg_types[SG_TYPE_COUNT];

enum sg_type sg_type_from_name(struct sg_slice name);

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

/**
 * Variables that are references: .texref and .surfref. They hold the handle of a texture or surface object.
 */
enum sg_linkage {
    SG_LINKAGE_NONE,
    SG_LINKAGE_EXTERN,
    SG_LINKAGE_VISIBLE,
    SG_LINKAGE_WEAK,
    SG_LINKAGE_COMMON
};

enum sg_reference { SG_REFERENCE_NONE, SG_REFERENCE_TEXTURE, SG_REFERENCE_SURFACE };

#endif
