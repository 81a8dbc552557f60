/*
 * types.c - the tables of types and state spaces.
 */
#include "softgpu/compiler/ir/types.h"

const struct sg_type_info sg_types[SG_TYPE_COUNT] = {
    [SG_TYPE_NONE] = {"", 0, SG_CLASS_NONE},
    [SG_PRED] = {"pred", 1, SG_CLASS_PRED},
    [SG_B8] = {"b8", 8, SG_CLASS_BITS},
    [SG_B16] = {"b16", 16, SG_CLASS_BITS},
    [SG_B32] = {"b32", 32, SG_CLASS_BITS},
    [SG_B64] = {"b64", 64, SG_CLASS_BITS},
    [SG_B128] = {"b128", 128, SG_CLASS_BITS},
    [SG_U8] = {"u8", 8, SG_CLASS_UNSIGNED},
    [SG_U16] = {"u16", 16, SG_CLASS_UNSIGNED},
    [SG_U32] = {"u32", 32, SG_CLASS_UNSIGNED},
    [SG_U64] = {"u64", 64, SG_CLASS_UNSIGNED},
    [SG_S8] = {"s8", 8, SG_CLASS_SIGNED},
    [SG_S16] = {"s16", 16, SG_CLASS_SIGNED},
    [SG_S32] = {"s32", 32, SG_CLASS_SIGNED},
    [SG_S64] = {"s64", 64, SG_CLASS_SIGNED},
    [SG_F16] = {"f16", 16, SG_CLASS_FLOAT},
    [SG_BF16] = {"bf16", 16, SG_CLASS_FLOAT},
    [SG_F32] = {"f32", 32, SG_CLASS_FLOAT},
    [SG_F64] = {"f64", 64, SG_CLASS_FLOAT},
    /* formats without registers of their own: carried in .b registers of their size */
    [SG_TF32] = {"tf32", 32, SG_CLASS_BITS},
    [SG_F16X2] = {"f16x2", 32, SG_CLASS_BITS},
    [SG_BF16X2] = {"bf16x2", 32, SG_CLASS_BITS},
    [SG_U16X2] = {"u16x2", 32, SG_CLASS_BITS},
    [SG_S16X2] = {"s16x2", 32, SG_CLASS_BITS},
    [SG_F32X2] = {"f32x2", 64, SG_CLASS_BITS},
    [SG_E4M3] = {"e4m3", 8, SG_CLASS_BITS},
    [SG_E5M2] = {"e5m2", 8, SG_CLASS_BITS},
    [SG_E4M3X2] = {"e4m3x2", 16, SG_CLASS_BITS},
    [SG_E5M2X2] = {"e5m2x2", 16, SG_CLASS_BITS},
    [SG_E2M1] = {"e2m1", 8, SG_CLASS_BITS}, /* in a byte each where matrices hold them */
    [SG_E2M3] = {"e2m3", 8, SG_CLASS_BITS},
    [SG_E3M2] = {"e3m2", 8, SG_CLASS_BITS},
    [SG_E2M1X2] = {"e2m1x2", 8, SG_CLASS_BITS},
    [SG_E2M3X2] = {"e2m3x2", 16, SG_CLASS_BITS},
    [SG_E3M2X2] = {"e3m2x2", 16, SG_CLASS_BITS},
    [SG_UE8M0X2] = {"ue8m0x2", 16, SG_CLASS_BITS},
    /* elements of matrices, several in a register */
    [SG_S2] = {"s2", 2, SG_CLASS_BITS},
    [SG_U2] = {"u2", 2, SG_CLASS_BITS},
    [SG_S4] = {"s4", 4, SG_CLASS_BITS},
    [SG_U4] = {"u4", 4, SG_CLASS_BITS},
    [SG_B1] = {"b1", 1, SG_CLASS_BITS},
};

enum sg_type sg_type_from_name(struct sg_slice name)
{
    for (int type = SG_PRED; type < SG_TYPE_COUNT; type++)
        if (sg_slice_is(name, sg_types[type].name))
            return (enum sg_type)type;
    return SG_TYPE_NONE;
}

enum sg_space sg_space_from_name(struct sg_slice name)
{
    static const struct {
        const char *name;
        enum sg_space space;
    } spaces[] = {
        {"reg", SG_SPACE_REG},       {"global", SG_SPACE_GLOBAL},          {"const", SG_SPACE_CONST},
        {"shared", SG_SPACE_SHARED}, {"shared::cta", SG_SPACE_SHARED},     {"local", SG_SPACE_LOCAL},
        {"param", SG_SPACE_PARAM},   {"shared::cluster", SG_SPACE_SHARED},
    };
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        if (sg_slice_is(name, spaces[i].name))
            return spaces[i].space;
    return SG_SPACE_NONE;
}
