/*
 * types.c - the tables of types and state spaces.
 */
#include "softgpu/compiler/ir/types.h"

#define INFO(constant, name, bits, class) [SG_##constant] = {name, bits, SG_CLASS_##class},
const struct sg_type_info sg_types[SG_TYPE_COUNT] = {[SG_TYPE_NONE] = {"", 0, SG_CLASS_NONE}, SG_TYPES(INFO)};

enum sg_type sg_type_from_name(struct sg_slice name)
{
    for (int type = SG_PRED; type < SG_TYPE_COUNT; type++)
        if (sg_slice_is(name, sg_types[type].name))
            return (enum sg_type)type;
    return SG_TYPE_NONE;
}

enum sg_type sg_type_widened(enum sg_type type)
{
    static const enum sg_type widened[SG_TYPE_COUNT] = {
        [SG_U16] = SG_U32, [SG_S16] = SG_S32, [SG_U32] = SG_U64, [SG_S32] = SG_S64};
    return widened[type];
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
