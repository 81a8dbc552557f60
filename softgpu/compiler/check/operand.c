/*
 * operand.c - names in operands to registers, variables, functions, labels and special registers; and whether
 * an operand may stand where an instruction wants a type.
 */
#include "softgpu/compiler/check/checker.h"

#include <ctype.h>
#include <string.h>

static const struct {
    const char *name;
    enum sg_special special;
    enum sg_type type;
    bool vector;
} specials[] = {
    {"%tid", SG_SPECIAL_TID, SG_U32, true},
    {"%ntid", SG_SPECIAL_NTID, SG_U32, true},
    {"%ctaid", SG_SPECIAL_CTAID, SG_U32, true},
    {"%nctaid", SG_SPECIAL_NCTAID, SG_U32, true},
    {"%clusterid", SG_SPECIAL_CLUSTERID, SG_U32, true},
    {"%nclusterid", SG_SPECIAL_NCLUSTERID, SG_U32, true},
    {"%cluster_ctaid", SG_SPECIAL_CLUSTER_CTAID, SG_U32, true},
    {"%cluster_nctaid", SG_SPECIAL_CLUSTER_NCTAID, SG_U32, true},
    {"%cluster_ctarank", SG_SPECIAL_CLUSTER_CTARANK, SG_U32, false},
    {"%cluster_nctarank", SG_SPECIAL_CLUSTER_NCTARANK, SG_U32, false},
    {"%is_explicit_cluster", SG_SPECIAL_IS_EXPLICIT_CLUSTER, SG_PRED, false},
    {"%laneid", SG_SPECIAL_LANEID, SG_U32, false},
    {"%warpid", SG_SPECIAL_WARPID, SG_U32, false},
    {"%nwarpid", SG_SPECIAL_NWARPID, SG_U32, false},
    {"%smid", SG_SPECIAL_SMID, SG_U32, false},
    {"%nsmid", SG_SPECIAL_NSMID, SG_U32, false},
    {"%gridid", SG_SPECIAL_GRIDID, SG_U64, false},
    {"%lanemask_eq", SG_SPECIAL_LANEMASK_EQ, SG_U32, false},
    {"%lanemask_le", SG_SPECIAL_LANEMASK_LE, SG_U32, false},
    {"%lanemask_lt", SG_SPECIAL_LANEMASK_LT, SG_U32, false},
    {"%lanemask_ge", SG_SPECIAL_LANEMASK_GE, SG_U32, false},
    {"%lanemask_gt", SG_SPECIAL_LANEMASK_GT, SG_U32, false},
    {"%clock", SG_SPECIAL_CLOCK, SG_U32, false},
    {"%clock_hi", SG_SPECIAL_CLOCK_HI, SG_U32, false},
    {"%clock64", SG_SPECIAL_CLOCK64, SG_U64, false},
    {"%globaltimer", SG_SPECIAL_GLOBALTIMER, SG_U64, false},
    {"%globaltimer_lo", SG_SPECIAL_GLOBALTIMER_LO, SG_U32, false},
    {"%globaltimer_hi", SG_SPECIAL_GLOBALTIMER_HI, SG_U32, false},
    {"%dynamic_smem_size", SG_SPECIAL_DYNAMIC_SMEM_SIZE, SG_U32, false},
    {"%total_smem_size", SG_SPECIAL_TOTAL_SMEM_SIZE, SG_U32, false},
    {"%current_graph_exec", SG_SPECIAL_ZERO, SG_U64, false},
    {"%aggr_smem_size", SG_SPECIAL_AGGR_SMEM_SIZE, SG_U32, false},
};

static bool check_special(const struct sg_ast_operand *ast, struct sg_operand *out, enum sg_type *type)
{
    struct sg_slice name = ast->name;
    if (name.size == 0 || name.data[0] != '%')
        return false;
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
        if (!sg_slice_is(name, specials[i].name))
            continue;
        if (specials[i].vector != (ast->component.size == 1))
            return false;
        out->kind = SG_OPERAND_SPECIAL;
        out->reg = specials[i].special;
        out->component = 0;
        if (specials[i].vector) {
            if (strchr("xyzw", ast->component.data[0]) == NULL)
                return false;
            out->component = ast->component.data[0] == 'w' ? 3 : (uint8_t)(ast->component.data[0] - 'x');
        }
        *type = specials[i].type;
        return true;
    }
    static const char reserved[] = "%reserved_smem_offset_";
    if (name.size > sizeof(reserved) - 1 && memcmp(name.data, reserved, sizeof(reserved) - 1) == 0) {
        struct sg_slice place = {name.data + sizeof(reserved) - 1,
                                 (uint32_t)(name.size - sizeof(reserved) + 1)};
        out->kind = SG_OPERAND_SPECIAL;
        out->reg = SG_SPECIAL_RESERVED_SMEM;
        out->component = sg_slice_is(place, "end")   ? SG_RESERVED_END
                         : sg_slice_is(place, "cap") ? SG_RESERVED_CAP
                                                     : SG_RESERVED_BEGIN;
        *type = SG_U32;
        return true;
    }
    bool envreg = name.size > 7 && memcmp(name.data, "%envreg", 7) == 0;
    bool counter = name.size > 3 && memcmp(name.data, "%pm", 3) == 0 && isdigit((unsigned char)name.data[3]);
    if (!envreg && !counter)
        return false;
    uint32_t number = 0;
    for (uint32_t i = 7; envreg && i < name.size && isdigit((unsigned char)name.data[i]); i++)
        number = number * 10 + (uint32_t)(name.data[i] - '0');
    if (number > 31)
        return false;
    out->kind = SG_OPERAND_SPECIAL;
    out->reg = envreg ? SG_SPECIAL_ENVREG : SG_SPECIAL_ZERO;
    out->component = (uint8_t)number;
    *type = counter && name.size > 4 && memcmp(name.data + name.size - 3, "_64", 3) == 0 ? SG_U64 : SG_U32;
    return true;
}

/* Which of a vector's elements `.x` or `.r` and so on is; UINT32_MAX: none. */
static uint32_t element(struct sg_slice component)
{
    static const char names[] = "xyzwrgba";
    const char *at = component.size == 1 ? strchr(names, component.data[0]) : NULL;
    return at == NULL || *at == '\0' ? UINT32_MAX : (uint32_t)(at - names) % 4;
}

/* A vector of registers, or an element of one. */
static bool check_vector(struct sg_checker *checker, const struct sg_ast_operand *ast, struct sg_operand *out)
{
    const struct sg_symbol *symbol = sg_check_lookup(checker, ast->name);
    if (symbol == NULL || symbol->kind != SG_SYMBOL_VECTOR || ast->value != 0)
        return false;
    if (ast->component.size != 0) {
        uint32_t place = element(ast->component);
        if (place >= symbol->regs.count)
            return false;
        out->kind = SG_OPERAND_REG;
        out->reg = symbol->regs.first + place;
        return true;
    }
    out->kind = SG_OPERAND_VECTOR;
    out->count = (uint16_t)symbol->regs.count;
    out->items = SG_NEW_ARRAY(checker->arena, struct sg_operand, out->count);
    for (uint32_t i = 0; i < out->count; i++)
        out->items[i] = (struct sg_operand){.kind = SG_OPERAND_REG, .reg = symbol->regs.first + i};
    return true;
}

/*
 * GCC's code for OpenMP (-muniform-simt) has all lanes of a warp work on one stack, each doing the same, and asks this variable
 * where they do not. That needs lanes that go in step through all calls.
 */
static bool needs_lanes_in_step(struct sg_slice name)
{
    return sg_slice_is(name, "__nvptx_uni");
}

static void check_name(struct sg_checker *checker, const struct sg_ast_operand *ast, struct sg_operand *out)
{
    enum sg_type type;
    uint32_t reg = ast->component.size == 0 ? sg_check_register(checker, ast->name) : UINT32_MAX;
    if (reg != UINT32_MAX) {
        out->kind = SG_OPERAND_REG;
        out->reg = reg;
        out->value = ast->value;
        return;
    }
    if (check_special(ast, out, &type) || check_vector(checker, ast, out))
        return;
    struct sg_symbol *symbol = ast->component.size == 0 ? sg_check_lookup(checker, ast->name) : NULL;
    if (symbol == NULL)
        sg_check_fail(checker, "unknown name '%.*s%s%.*s'", (int)ast->name.size, ast->name.data,
                      ast->component.size == 0 ? "" : ".", (int)ast->component.size, ast->component.data);
    if (needs_lanes_in_step(ast->name))
        sg_check_unknown(
            checker, "GCC's OpenMP is not supported by the software device (its lanes share a stack; OpenACC "
                     "is)");
    out->value = ast->value;
    switch (symbol->kind) {
    case SG_SYMBOL_VAR:
        out->kind = SG_OPERAND_VAR;
        out->var = symbol->var;
        break;
    case SG_SYMBOL_FUNCTION:
        out->kind = SG_OPERAND_FUNCTION;
        out->function = symbol->function;
        break;
    case SG_SYMBOL_LABEL:
        out->kind = SG_OPERAND_LABEL;
        out->value = symbol->number;
        break;
    case SG_SYMBOL_TABLE:
        out->kind = SG_OPERAND_TABLE;
        out->value = symbol->number;
        break;
    default:
        sg_check_fail(checker, "'%.*s' cannot be an operand", (int)ast->name.size, ast->name.data);
    }
}

void sg_check_operand(struct sg_checker *checker, const struct sg_ast_operand *ast, struct sg_operand *out)
{
    *out = (struct sg_operand){.negated = ast->negated};
    switch (ast->kind) {
    case SG_AST_SINK:
        out->kind = SG_OPERAND_SINK;
        break;
    case SG_AST_INTEGER:
        out->kind = SG_OPERAND_INTEGER;
        out->value = ast->value;
        break;
    case SG_AST_FLOAT32:
        out->kind = SG_OPERAND_FLOAT32;
        out->value = ast->value;
        break;
    case SG_AST_FLOAT64:
        out->kind = SG_OPERAND_FLOAT64;
        out->value = ast->value;
        break;
    case SG_AST_NAME:
        if (ast->minus)
            sg_check_fail(checker, "a register cannot be negated with '-'");
        check_name(checker, ast, out);
        if (ast->value != 0 && (out->kind == SG_OPERAND_REG || out->kind == SG_OPERAND_SPECIAL))
            sg_check_fail(checker, "a number cannot be added to '%.*s' here", (int)ast->name.size,
                          ast->name.data);
        break;
    case SG_AST_ADDRESS:
        if (ast->n_items != 0)
            sg_check_fail(checker, "an address has no coordinates here");
        if (ast->name.size != 0) {
            check_name(checker, ast, out);
        } else {
            out->kind = SG_OPERAND_INTEGER;
            out->value = ast->value;
        }
        break;
    case SG_AST_VECTOR:
        out->kind = SG_OPERAND_VECTOR;
        out->count = (uint16_t)ast->n_items;
        out->items = SG_NEW_ARRAY(checker->arena, struct sg_operand, ast->n_items);
        for (uint32_t i = 0; i < ast->n_items; i++)
            sg_check_operand(checker, &ast->items[i], &out->items[i]);
        break;
    case SG_AST_LIST:
        sg_check_fail(checker, "a list in parentheses is not an operand here");
    }
}

/* --- types --- */

/* May an operand of register type `have` stand where an instruction wants `want`? */
static bool register_fits(enum sg_type have, enum sg_type want, bool wider)
{
    if (have == SG_PRED || want == SG_PRED)
        return have == want;
    uint16_t have_bits = sg_types[have].bits, want_bits = sg_types[want].bits;
    if (have_bits != want_bits && !(wider && have_bits > want_bits))
        return false;
    if (have_bits > want_bits) /* .u8 in a .f32 register makes no sense; .b8 is bits */
        return sg_types[have].class != SG_CLASS_FLOAT || sg_types[want].class == SG_CLASS_BITS;
    bool have_float = sg_type_is_float(have), want_float = sg_type_is_float(want);
    bool have_bit = sg_types[have].class == SG_CLASS_BITS, want_bit = sg_types[want].class == SG_CLASS_BITS;
    return have_bit || want_bit || have_float == want_float;
}

static const char *register_type(struct sg_checker *checker, const struct sg_operand *operand)
{
    return sg_types[checker->function->regs[operand->reg].type].name;
}

void sg_check_type(struct sg_checker *checker, const struct sg_operand *operand, enum sg_type type, bool dest,
                   bool wider)
{
    switch (operand->kind) {
    case SG_OPERAND_REG:
        if (!register_fits((enum sg_type)checker->function->regs[operand->reg].type, type, wider))
            sg_check_fail(checker, "a register of type .%s does not fit where .%s is wanted",
                          register_type(checker, operand), sg_types[type].name);
        break;
    case SG_OPERAND_SINK:
        if (!dest)
            sg_check_fail(checker, "'_' cannot be read");
        return;
    case SG_OPERAND_INTEGER:
        if (sg_type_is_float(type))
            sg_check_fail(checker, "an integer where .%s is wanted", sg_types[type].name);
        break;
    case SG_OPERAND_FLOAT32:
    case SG_OPERAND_FLOAT64:
        if (type == SG_PRED || sg_types[type].class == SG_CLASS_SIGNED ||
            sg_types[type].class == SG_CLASS_UNSIGNED)
            sg_check_fail(checker, "a floating-point number where .%s is wanted", sg_types[type].name);
        break;
    case SG_OPERAND_SPECIAL:
        break;
    case SG_OPERAND_VAR:
    case SG_OPERAND_FUNCTION:
        if (sg_types[type].bits < 32 || sg_type_is_float(type))
            sg_check_fail(checker, "an address where .%s is wanted", sg_types[type].name);
        break;
    default:
        sg_check_fail(checker, "wrong kind of operand where .%s is wanted", sg_types[type].name);
    }
    if (dest && operand->kind != SG_OPERAND_REG)
        sg_check_fail(checker, "the result must be a register");
    if (operand->negated && type != SG_PRED)
        sg_check_fail(checker, "'!' is for predicates");
}

void sg_check_address(struct sg_checker *checker, const struct sg_operand *operand)
{
    if (operand->kind == SG_OPERAND_REG) {
        enum sg_type type = (enum sg_type)checker->function->regs[operand->reg].type;
        if ((sg_types[type].bits != 64 && sg_types[type].bits != 32) || sg_type_is_float(type))
            sg_check_fail(checker, "a register of type .%s cannot be an address", sg_types[type].name);
    } else if (operand->kind != SG_OPERAND_VAR && operand->kind != SG_OPERAND_INTEGER) {
        sg_check_fail(checker, "not an address");
    }
}

bool sg_check_type_in(const struct sg_insn *insn, const char *names)
{
    const char *name = sg_types[insn->types[0]].name;
    for (const char *p = names; *p != '\0';) {
        uint32_t size = 0;
        while (p[size] != ' ' && p[size] != '\0')
            size++;
        if (sg_slice_is((struct sg_slice){p, size}, name))
            return true;
        p += size + (p[size] == ' ');
    }
    return false;
}
