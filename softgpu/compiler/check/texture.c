/*
 * texture.c - instructions on textures and surfaces, which have a grammar of their own: a geometry among the
 * modifiers, and coordinates inside of the brackets. Objects are 64-bit handles: in registers (what CUDA
 * calls texture and surface objects) or in variables of type .texref and .surfref. Samplers of their own
 * (.samplerref) are not known.
 *
 * The instruction that comes out has, whatever it is, the operands: handle, coordinates (a vector), then
 * values: the result of a load, what a store writes. Fetches may have more, vectors all: the level or both
 * gradients, then an offset; and last, no vector, the predicate that says whether all was resident
 * (SG_TEX_RESIDENT). Its `texture` is the operation of kernel_abi.h.
 */
#include "softgpu/compiler/check/checker.h"
#include "softgpu/kernel_abi.h"

struct word {
    const char *name;
    uint32_t value;
};

static const struct word geometries[] = {
    {"1d", SG_TEX_1D},   {"2d", SG_TEX_2D},     {"3d", SG_TEX_3D},       {"a1d", SG_TEX_A1D},
    {"a2d", SG_TEX_A2D}, {"cube", SG_TEX_CUBE}, {"acube", SG_TEX_ACUBE}, {NULL, 0},
};
static const struct word levels[] = {{"base", 1}, {"level", 2}, {"grad", 3}, {NULL, 0}};
static const struct word components[] = {{"r", 0}, {"g", 1}, {"b", 2}, {"a", 3}, {NULL, 0}};
static const struct word caches[] = {{"ca", 0}, {"cg", 0}, {"cs", 0},   {"cv", 0},
                                     {"wb", 0}, {"wt", 0}, {"weak", 0}, {NULL, 0}};
static const struct word vectors[] = {{"v2", 2}, {"v4", 4}, {NULL, 0}};
static const struct word bounds[] = {
    {"trap", SG_SURFACE_TRAP}, {"clamp", SG_SURFACE_CLAMP}, {"zero", SG_SURFACE_ZERO}, {NULL, 0}};
static const struct word reductions[] = {{"add", SG_REDUCE_ADD},    {"min", SG_REDUCE_MIN},
                                         {"max", SG_REDUCE_MAX},    {"and", SG_REDUCE_AND_BITS},
                                         {"or", SG_REDUCE_OR_BITS}, {NULL, 0}};
static const struct word level_queries[] = {
    {"width", SG_TXQ_WIDTH}, {"height", SG_TXQ_HEIGHT}, {"depth", SG_TXQ_DEPTH}, {NULL, 0}};
static const struct word surface_queries[] = {{"width", SG_TXQ_WIDTH},
                                              {"height", SG_TXQ_HEIGHT},
                                              {"depth", SG_TXQ_DEPTH},
                                              {"array_size", SG_TXQ_ARRAY_SIZE},
                                              {"memory_layout", SG_TXQ_NOTHING}, /* 1: linear */
                                              {NULL, 0}};
static const struct word texture_queries[] = {{"width", SG_TXQ_WIDTH},
                                              {"height", SG_TXQ_HEIGHT},
                                              {"depth", SG_TXQ_DEPTH},
                                              {"array_size", SG_TXQ_ARRAY_SIZE},
                                              {"num_mipmap_levels", SG_TXQ_LEVELS},
                                              {"num_samples", SG_TXQ_NOTHING},
                                              {"normalized_coords", SG_TXQ_NORMALISED},
                                              {"filter_mode", SG_TXQ_FILTER},
                                              {"addr_mode_0", SG_TXQ_ADDRESS_0},
                                              {"addr_mode_1", SG_TXQ_ADDRESS_1},
                                              {"addr_mode_2", SG_TXQ_ADDRESS_2},
                                              {NULL, 0}};

static const struct sg_form forms[] = {
    {.base = "tex", .op = SG_OP_TEX},   {.base = "tld4", .op = SG_OP_TEX},
    {.base = "txq", .op = SG_OP_TXQ},   {.base = "suld", .op = SG_OP_SULD},
    {.base = "sust", .op = SG_OP_SUST}, {.base = "sured", .op = SG_OP_SURED},
    {.base = "suq", .op = SG_OP_TXQ},
};
enum { TEX, TLD4, TXQ, SULD, SUST, SURED, SUQ };

/* One instruction being read. */
struct reading {
    struct sg_checker *checker;
    const struct sg_ast_instruction *ast;
    struct sg_insn *insn;
    uint32_t at; /* the next modifier */
};

static const struct word *find(const struct word *words, struct sg_slice name)
{
    while (words->name != NULL && !sg_slice_is(name, words->name))
        words++;
    return words->name != NULL ? words : NULL;
}

/* The next modifier, if it is one of these. */
static const struct word *take(struct reading *r, const struct word *words)
{
    const struct word *word = r->at < r->ast->n_modifiers ? find(words, r->ast->modifiers[r->at]) : NULL;
    r->at += word != NULL;
    return word;
}

static const struct word *need(struct reading *r, const struct word *words, const char *what)
{
    const struct word *word = take(r, words);
    if (word != NULL)
        return word;
    if (r->at < r->ast->n_modifiers)
        sg_check_fail(r->checker, "modifier '.%.*s' is not supported where %s is wanted",
                      (int)r->ast->modifiers[r->at].size, r->ast->modifiers[r->at].data, what);
    sg_check_fail(r->checker, "%s is missing", what);
}

static enum sg_type need_type(struct reading *r, uint64_t allowed)
{
    enum sg_type type =
        r->at < r->ast->n_modifiers ? sg_type_from_name(r->ast->modifiers[r->at]) : SG_TYPE_NONE;
    if (type == SG_TYPE_NONE || (allowed >> type & 1) == 0)
        sg_check_fail(r->checker, "the type is missing or not supported");
    r->at++;
    return type;
}

static void need_end(struct reading *r)
{
    if (r->at < r->ast->n_modifiers)
        sg_check_fail(r->checker, "modifier '.%.*s' does not fit instruction '%.*s'",
                      (int)r->ast->modifiers[r->at].size, r->ast->modifiers[r->at].data,
                      (int)r->ast->base.size, r->ast->base.data);
}

#define ONE(type) (UINT64_C(1) << (type))

static const struct sg_ast_operand *operand(struct reading *r, uint32_t index)
{
    if (index >= r->ast->n_operands)
        sg_check_fail(r->checker, "wrong number of operands");
    return &r->ast->operands[index];
}

/*
 * What an operand is. Its type follows from that and the instruction's own types, [0] of values and [1] of
 * coordinates; what the register it is written in is declared as does not matter.
 */
enum role { LAYER, COORDINATE, LEVEL, GRADIENT, OFFSET, VALUE };

static const struct {
    enum sg_type type; /* SG_TYPE_NONE: one of the instruction's */
    uint8_t which;
    bool bits; /* a register in braces holds the bits of a float, even if it is one of integers */
} roles[] = {
    [LAYER] = {.type = SG_U32},           [COORDINATE] = {.which = 1, .bits = true},
    [LEVEL] = {.which = 1, .bits = true}, [GRADIENT] = {.type = SG_F32},
    [OFFSET] = {.type = SG_S32},          [VALUE] = {.which = 0, .bits = true},
};

static void check_item(struct reading *r, const struct sg_operand *item, enum role role, bool braces,
                       bool dest, bool wider)
{
    enum sg_type type =
        roles[role].type != SG_TYPE_NONE ? roles[role].type : (enum sg_type)r->insn->types[roles[role].which];
    if (roles[role].bits && braces && item->kind == SG_OPERAND_REG && sg_types[type].bits <= 32)
        type = sg_types[type].bits == 32 ? SG_B32 : sg_types[type].bits == 16 ? SG_B16 : SG_B8;
    sg_check_type(r->checker, item, type, dest, wider);
}

/* What is written as a vector, or is one item, as a vector; whether it was one. */
static bool read_vector(struct reading *r, const struct sg_ast_operand *written, struct sg_operand *out)
{
    sg_check_operand(r->checker, written, out);
    if (out->kind == SG_OPERAND_VECTOR)
        return true;
    struct sg_operand *item = SG_NEW(r->checker->arena, struct sg_operand);
    *item = *out;
    *out = (struct sg_operand){.kind = SG_OPERAND_VECTOR, .count = 1, .items = item};
    return false;
}

/* A vector of `count` that is written or read. */
static void check_values(struct reading *r, const struct sg_ast_operand *written, struct sg_operand *out,
                         uint32_t count, bool dest, bool wider)
{
    const bool braces = read_vector(r, written, out);
    if (out->count != count)
        sg_check_fail(r->checker, "a vector of %u is wanted", count);
    for (uint32_t i = 0; i < count; i++)
        check_item(r, &out->items[i], VALUE, braces, dest, wider);
}

/* [handle, {coordinates}], or without coordinates. */
static void check_place(struct reading *r, const struct sg_ast_operand *written, bool coordinates_wanted)
{
    static const uint8_t least[] = {1, 2, 3, 2, 3, 3, 4};
    struct sg_operand *operands = r->insn->operands;
    if (written->kind != SG_AST_ADDRESS || written->value != 0)
        sg_check_fail(r->checker, "a handle in brackets is wanted");
    struct sg_ast_operand handle = *written;
    handle.n_items = 0;
    sg_check_operand(r->checker, &handle, &operands[0]);
    if (operands[0].kind == SG_OPERAND_VAR) {
        if (operands[0].var->reference == SG_REFERENCE_NONE)
            sg_check_fail(r->checker, "the variable is no reference to a texture or surface");
    } else {
        if (operands[0].kind != SG_OPERAND_REG)
            sg_check_fail(r->checker, "a handle in a register or a reference is wanted");
        sg_check_type(r->checker, &operands[0], SG_B64, false, false);
    }
    if (!coordinates_wanted) {
        if (written->n_items != 0)
            sg_check_fail(r->checker, "coordinates are not wanted here");
        return;
    }
    if (written->n_items != 1)
        sg_check_fail(r->checker,
                      "one vector of coordinates is wanted (samplers apart from textures are not supported)");
    const uint32_t geometry = r->insn->texture & SG_TEX_GEOMETRY;
    struct sg_operand *coordinates = &operands[1];
    const bool braces = read_vector(r, &written->items[0], coordinates);
    if (coordinates->count < least[geometry] || coordinates->count > 4)
        sg_check_fail(r->checker, "%u coordinates are wanted", least[geometry]);
    const bool layered = geometry == SG_TEX_A1D || geometry == SG_TEX_A2D || geometry == SG_TEX_ACUBE;
    for (uint32_t i = 0; i < least[geometry]; i++)
        check_item(r, &coordinates->items[i],
                   layered && i == 0 && r->insn->types[1] != SG_B32 ? LAYER : COORDINATE, braces, false,
                   false);
    coordinates->count = least[geometry]; /* what follows is padding */
}

static const uint8_t extents[] = {1, 2, 3, 1, 2, 3, 3}; /* what a gradient has, by geometry */

/* A vector of words beside the coordinates; what follows the first `count` is padding. */
static void check_extra(struct reading *r, const struct sg_ast_operand *written, uint32_t count,
                        enum role role)
{
    struct sg_operand *out = &r->insn->operands[r->insn->n_operands++];
    const bool braces = read_vector(r, written, out);
    if (out->count < count)
        sg_check_fail(r->checker, "a vector of %u is wanted", count);
    for (uint32_t i = 0; i < count; i++)
        check_item(r, &out->items[i], role, braces, false, false);
    out->count = (uint16_t)count;
}

/* The results of a fetch: four words or halves, or two pairs of halves. Returns how many. */
static uint32_t check_result_type(struct reading *r, bool gather)
{
    const uint32_t count = need(r, vectors, ".v4")->value;
    const uint64_t words = ONE(SG_F32) | ONE(SG_S32) | ONE(SG_U32);
    const enum sg_type type = need_type(r, gather ? words : words | ONE(SG_F16) | ONE(SG_F16X2));
    if (count != (type == SG_F16X2 ? 2 : 4))
        sg_check_fail(r->checker, "results are vectors of %d", type == SG_F16X2 ? 2 : 4);
    r->insn->types[0] = (uint8_t)type;
    return count;
}

/*
 * tex{.level}.geometry.v4.type.ctype d{|p}, [a, c] {, level} {, gradients} {, offset};
 * tld4.component.2d.v4.type.f32 d{|p}, [a, c] {, offset}.
 */
static void check_fetch(struct reading *r, bool gather)
{
    const struct word *level = NULL;
    uint32_t component = 0;
    if (gather)
        component = need(r, components, "a component")->value;
    else
        level = take(r, levels);
    const uint32_t geometry = need(r, geometries, "a geometry")->value;
    const uint32_t count = check_result_type(r, gather);
    if (gather && (extents[geometry] < 2 || geometry == SG_TEX_3D))
        sg_check_fail(r->checker, "tld4 is for .2d, .a2d, .cube and .acube");
    const enum sg_type coordinate = need_type(r, gather ? ONE(SG_F32) : ONE(SG_F32) | ONE(SG_S32));
    need_end(r);
    if (coordinate == SG_S32 && geometry >= SG_TEX_CUBE)
        sg_check_fail(r->checker, "cubes have coordinates of type .f32");
    const uint32_t extra = level == NULL ? 0 : level->value - 1, most = 3 + extra;
    const bool offset = r->ast->n_operands == most;
    r->insn->texture = geometry | (coordinate == SG_S32 ? SG_TEX_INTEGER : 0) |
                       (gather ? SG_TEX_GATHER | component << SG_TEX_COMPONENT_SHIFT : 0) |
                       (extra == 1   ? SG_TEX_LEVEL
                        : extra == 2 ? SG_TEX_GRADIENT
                                     : 0) |
                       (offset ? SG_TEX_OFFSET : 0);
    r->insn->types[1] = (uint8_t)coordinate;
    if (r->ast->n_operands != most && r->ast->n_operands != most - 1)
        sg_check_fail(r->checker, "wrong number of operands (depth comparison is not supported)");
    check_place(r, operand(r, 1), true);
    check_values(r, operand(r, 0), &r->insn->operands[2], count, true, false);
    r->insn->n_operands = 3;
    for (uint32_t i = 0; i < extra; i++)
        check_extra(r, operand(r, 2 + i), extra == 1 ? 1 : extents[geometry], extra == 1 ? LEVEL : GRADIENT);
    if (offset && geometry >= SG_TEX_CUBE)
        sg_check_fail(r->checker, "cubes have no offsets (depth comparison is not supported)");
    if (offset)
        check_extra(r, operand(r, 2 + extra), extents[geometry], OFFSET);
    if (r->ast->operands[0].pair != NULL) {
        struct sg_operand *resident = &r->insn->operands[r->insn->n_operands++];
        r->insn->texture |= SG_TEX_RESIDENT;
        sg_check_operand(r->checker, r->ast->operands[0].pair, resident);
        sg_check_type(r->checker, resident, SG_PRED, true, false);
    }
}

/* suld.b.geometry{.cop}{.vec}.type.bound d, [a, c]; sust.b… [a, c], d; sust.p.geometry{.vec}.b32.bound [a, c], d. */
static void check_access(struct reading *r, bool store)
{
    static const struct word raw[] = {{"b", 0}, {NULL, 0}};
    static const struct word either[] = {{"b", 0}, {"p", SG_SURFACE_FORMATTED}, {NULL, 0}};
    const uint32_t formatted = store ? need(r, either, ".b or .p")->value : need(r, raw, ".b")->value;
    const uint32_t geometry = need(r, geometries, "a geometry")->value;
    if (geometry >= SG_TEX_CUBE)
        sg_check_fail(r->checker, "surfaces have no cubes");
    if (!formatted)
        take(r, caches);
    const struct word *vector = take(r, vectors);
    const uint32_t count = vector != NULL ? vector->value : 1;
    const enum sg_type type =
        need_type(r, formatted ? ONE(SG_B32) : ONE(SG_B8) | ONE(SG_B16) | ONE(SG_B32) | ONE(SG_B64));
    const uint32_t bound = need(r, bounds, "a rule for bounds")->value, bytes = count * sg_type_bytes(type);
    need_end(r);
    if (bytes > 16)
        sg_check_fail(r->checker, "an access has at most 16 bytes");
    r->insn->texture = geometry | bound | formatted | bytes << SG_SURFACE_BYTES_SHIFT;
    r->insn->types[0] = (uint8_t)type;
    r->insn->types[1] = SG_B32;
    if (r->ast->n_operands != 2)
        sg_check_fail(r->checker, "wrong number of operands");
    check_place(r, operand(r, store ? 0 : 1), true);
    check_values(r, operand(r, store ? 1 : 0), &r->insn->operands[2], count, !store, true);
    r->insn->n_operands = 3;
}

/* sured.b.op.geometry.type.bound [a, c], value. */
static void check_reduction(struct reading *r)
{
    static const struct word raw[] = {{"b", 0}, {NULL, 0}};
    need(r, raw, ".b");
    const uint32_t op = need(r, reductions, "an operation")->value;
    const uint32_t geometry = need(r, geometries, "a geometry")->value;
    if (geometry >= SG_TEX_CUBE)
        sg_check_fail(r->checker, "surfaces have no cubes");
    const bool bits = op == SG_REDUCE_AND_BITS || op == SG_REDUCE_OR_BITS;
    const enum sg_type type =
        need_type(r, bits ? ONE(SG_B32) : ONE(SG_U32) | ONE(SG_S32) | ONE(SG_U64) | ONE(SG_S64));
    const uint32_t bound = need(r, bounds, "a rule for bounds")->value;
    need_end(r);
    r->insn->texture = geometry | bound | sg_type_bytes(type) << SG_SURFACE_BYTES_SHIFT |
                       op << SG_SURFACE_REDUCE_SHIFT | (sg_type_is_signed(type) ? SG_SURFACE_SIGNED : 0);
    r->insn->types[0] = (uint8_t)type;
    r->insn->types[1] = SG_B32;
    if (r->ast->n_operands != 2)
        sg_check_fail(r->checker, "wrong number of operands");
    check_place(r, operand(r, 0), true);
    check_values(r, operand(r, 1), &r->insn->operands[2], 1, false, false);
    r->insn->n_operands = 3;
}

/* txq{.level}.query.b32 d, [a] {, level}. */
static void check_query(struct reading *r, bool surface)
{
    static const struct word of_level[] = {{"level", 1}, {NULL, 0}};
    const bool level = !surface && take(r, of_level) != NULL;
    const struct word *queries = surface ? surface_queries : level ? level_queries : texture_queries;
    r->insn->texture = need(r, queries, "a query")->value | (surface ? SG_TXQ_SURFACE : 0);
    r->insn->types[0] = (uint8_t)need_type(r, ONE(SG_B32));
    r->insn->types[1] = SG_S32;
    need_end(r);
    if (r->ast->n_operands != 2u + level)
        sg_check_fail(r->checker, "wrong number of operands");
    check_place(r, operand(r, 1), false);
    check_values(r, operand(r, 0), &r->insn->operands[1], 1, true, false);
    r->insn->n_operands = 2;
    if (level)
        check_extra(r, operand(r, 2), 1, LEVEL);
}

const struct sg_form *sg_check_texture_form(struct sg_slice base)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (sg_slice_is(base, forms[i].base))
            return &forms[i];
    return NULL;
}

void sg_check_texture(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast)
{
    struct reading r = {.checker = checker, .ast = ast, .insn = insn};
    insn->operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, 7);
    switch (insn->form - forms) {
    case TEX:
    case TLD4:
        check_fetch(&r, insn->form == &forms[TLD4]);
        break;
    case SULD:
    case SUST:
        check_access(&r, insn->form == &forms[SUST]);
        break;
    case SURED:
        check_reduction(&r);
        break;
    default:
        check_query(&r, insn->form == &forms[SUQ]);
        break;
    }
}
