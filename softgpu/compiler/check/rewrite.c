/*
 * rewrite.c - what PTX allows to be written in more ways than the instruction table has: such an instruction
 * becomes several that mean the same.
 *
 *   shfl and vote as they were before Volta, without .sync: of the lanes that are together, which activemask
 *   tells (PTX ISA, "shfl (deprecated)", "vote (deprecated)")
 *
 *   add.u32 a, b + 4, c;     a register and a number where a value is wanted
 *   mov.v2.u32 v, {a, v.x};  all of a vector of registers
 *   wgmma                    warpgroup.c
 */
#include "softgpu/compiler/check/checker.h"

#include <stdio.h>
#include <string.h>

void sg_check_words(struct sg_checker *checker, struct sg_ast_instruction *ast, const char *text)
{
    uint32_t capacity = 0;
    size_t size = strcspn(text, ".");
    ast->base = (struct sg_slice){text, (uint32_t)size};
    ast->modifiers = NULL;
    ast->n_modifiers = 0;
    for (const char *at = text + size; *at == '.'; at += 1 + size) {
        size = strcspn(at + 1, ".");
        *SG_PUSH(checker->scratch, ast->modifiers, ast->n_modifiers, capacity) =
            (struct sg_slice){at + 1, (uint32_t)size};
    }
}

/* An operand for a register that no program can name, wherever it is. */
static struct sg_ast_operand name_register(struct sg_checker *checker, uint32_t reg)
{
    char name[16];
    struct sg_symbol symbol = {.kind = SG_SYMBOL_REG};
    symbol.regs.first = reg;
    symbol.regs.count = 1;
    int size = snprintf(name, sizeof(name), "+%u", reg);
    struct sg_slice text = {name, (uint32_t)size};
    text.data = sg_arena_string(checker->scratch, text);
    if (sg_check_register(checker, text) == UINT32_MAX)
        sg_check_declare(checker, text, symbol);
    return (struct sg_ast_operand){.kind = SG_AST_NAME, .name = text};
}

struct sg_ast_operand sg_check_unnamed_register(struct sg_checker *checker, enum sg_type type)
{
    return name_register(checker, sg_check_new_register(checker, type));
}

struct sg_ast_operand sg_check_spare_register(struct sg_checker *checker, uint32_t number)
{
    while (checker->n_spare <= number)
        *SG_PUSH(checker->scratch, checker->spare, checker->n_spare, checker->spare_capacity) =
            sg_check_new_register(checker, SG_B32);
    return name_register(checker, checker->spare[number]);
}

static bool has_modifier(const struct sg_ast_instruction *ast, const char *modifier)
{
    for (uint32_t i = 0; i < ast->n_modifiers; i++)
        if (sg_slice_is(ast->modifiers[i], modifier))
            return true;
    return false;
}

/* Asks who is together, under the same guard, and makes it an exchange among those. */
static void add_lanes(struct sg_checker *checker, struct sg_ast_instruction *ast)
{
    if (ast->n_operands == 0)
        sg_check_fail(checker, "wrong number of operands");
    struct sg_ast_operand lanes = sg_check_unnamed_register(checker, SG_B32);
    struct sg_ast_instruction ask = {
        .text = ast->text,
        .guard = ast->guard,
        .guard_negated = ast->guard_negated,
        .operands = &lanes,
        .n_operands = 1,
    };
    sg_check_words(checker, &ask, "activemask.b32");
    sg_check_instruction(checker, &ask);
    char words[96];
    int size = snprintf(words, sizeof(words), "%.*s.sync", (int)ast->base.size, ast->base.data);
    for (uint32_t i = 0; i < ast->n_modifiers && size < (int)sizeof(words); i++)
        size += snprintf(words + size, sizeof(words) - (size_t)size, ".%.*s", (int)ast->modifiers[i].size,
                         ast->modifiers[i].data);
    if (size >= (int)sizeof(words))
        sg_check_fail(checker, "too many modifiers");
    sg_check_words(checker, ast, sg_arena_string(checker->scratch, (struct sg_slice){words, (uint32_t)size}));
    struct sg_ast_operand *operands =
        SG_NEW_ARRAY(checker->scratch, struct sg_ast_operand, ast->n_operands + 1);
    memcpy(operands, ast->operands, ast->n_operands * sizeof(*operands));
    operands[ast->n_operands] = lanes;
    ast->operands = operands;
    ast->n_operands++;
}

static bool is_sum(struct sg_checker *checker, const struct sg_ast_operand *operand)
{
    return operand->kind == SG_AST_NAME && operand->value != 0 && !operand->minus && !operand->negated &&
           operand->component.size == 0 && operand->pair == NULL &&
           sg_check_register(checker, operand->name) != UINT32_MAX;
}

static bool has_sum(struct sg_checker *checker, const struct sg_ast_operand *operand)
{
    for (uint32_t i = 0; operand->kind == SG_AST_VECTOR && i < operand->n_items; i++)
        if (has_sum(checker, &operand->items[i]))
            return true;
    return is_sum(checker, operand);
}

/* The operand with each sum in it replaced by a register that holds it. */
static struct sg_ast_operand without_sum(struct sg_checker *checker, const struct sg_ast_instruction *ast,
                                         struct sg_ast_operand operand)
{
    if (operand.kind == SG_AST_VECTOR) {
        struct sg_ast_operand *items = SG_NEW_ARRAY(checker->scratch, struct sg_ast_operand, operand.n_items);
        for (uint32_t i = 0; i < operand.n_items; i++)
            items[i] = without_sum(checker, ast, operand.items[i]);
        operand.items = items;
        return operand;
    }
    if (!is_sum(checker, &operand))
        return operand;
    uint32_t reg = sg_check_register(checker, operand.name);
    enum sg_type type = (enum sg_type)checker->function->regs[reg].type;
    uint32_t bits = sg_types[type].bits;
    if (type == SG_PRED || sg_type_is_float(type) || bits < 16 || bits > 64)
        sg_check_fail(checker, "a number cannot be added to a register of type .%s", sg_types[type].name);
    struct sg_ast_operand operands[3] = {
        sg_check_unnamed_register(checker, type), operand, {.kind = SG_AST_INTEGER, .value = operand.value}};
    operands[1].value = 0;
    struct sg_ast_instruction sum = {.text = ast->text, .operands = operands, .n_operands = 3};
    sg_check_words(checker, &sum, bits == 64 ? "add.u64" : bits == 32 ? "add.u32" : "add.u16");
    sg_check_instruction(checker, &sum);
    return operands[0];
}

/* Element `place` of a vector of registers, or of one that is written out. */
static struct sg_ast_operand element_of(struct sg_checker *checker, const struct sg_ast_operand *vector,
                                        uint32_t place, uint32_t count)
{
    static const char names[] = "xyzw";
    if (vector->kind == SG_AST_VECTOR && vector->n_items == count)
        return vector->items[place];
    const struct sg_symbol *symbol =
        vector->kind == SG_AST_NAME ? sg_check_lookup(checker, vector->name) : NULL;
    if (symbol == NULL || symbol->kind != SG_SYMBOL_VECTOR || symbol->regs.count != count)
        sg_check_fail(checker, "a vector of %u registers is wanted", count);
    struct sg_ast_operand element = *vector;
    element.component = (struct sg_slice){names + place, 1};
    return element;
}

static void move_element(struct sg_checker *checker, const struct sg_ast_instruction *ast, const char *words,
                         struct sg_ast_operand to, struct sg_ast_operand from)
{
    struct sg_ast_operand operands[2] = {to, from};
    struct sg_ast_instruction move = *ast;
    move.operands = operands;
    sg_check_words(checker, &move, words);
    sg_check_instruction(checker, &move);
}

/* Element by element; what is read may be what is written: all is read first. The last move is `out`. */
static void move_vector(struct sg_checker *checker, struct sg_ast_instruction *ast)
{
    const uint32_t count = sg_slice_is(ast->modifiers[0], "v2") ? 2 : 4;
    struct sg_ast_operand between[4];
    char words[24];
    enum sg_type type = sg_type_from_name(ast->modifiers[1]);
    if (type == SG_TYPE_NONE || type == SG_PRED || ast->n_operands != 2)
        sg_check_fail(checker, "not a form of this instruction");
    snprintf(words, sizeof(words), "mov.%s", sg_types[type].name);
    const char *text = sg_arena_string(checker->scratch, (struct sg_slice){words, (uint32_t)strlen(words)});
    for (uint32_t i = 0; i < count; i++) {
        between[i] = sg_check_unnamed_register(checker, type);
        move_element(checker, ast, text, between[i], element_of(checker, &ast->operands[1], i, count));
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        move_element(checker, ast, text, element_of(checker, &ast->operands[0], i, count), between[i]);
    struct sg_ast_operand *operands = SG_NEW_ARRAY(checker->scratch, struct sg_ast_operand, 2);
    operands[0] = element_of(checker, &ast->operands[0], count - 1, count);
    operands[1] = between[count - 1];
    ast->operands = operands;
    sg_check_words(checker, ast, text);
}

void sg_check_written(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    if (sg_slice_is(ast->base, "wgmma") && sg_check_warpgroup(checker, ast))
        return;
    bool old =
        (sg_slice_is(ast->base, "shfl") || sg_slice_is(ast->base, "vote")) && !has_modifier(ast, "sync");
    bool vector = sg_slice_is(ast->base, "mov") && ast->n_modifiers == 2 &&
                  (sg_slice_is(ast->modifiers[0], "v2") || sg_slice_is(ast->modifiers[0], "v4"));
    bool sums = false;
    /* the first is the result, or an address */
    for (uint32_t i = 1; i < ast->n_operands; i++)
        sums |= has_sum(checker, &ast->operands[i]);
    struct sg_ast_instruction out = *ast;
    if (sums) {
        out.operands = SG_NEW_ARRAY(checker->scratch, struct sg_ast_operand, ast->n_operands);
        out.operands[0] = ast->operands[0];
        for (uint32_t i = 1; i < ast->n_operands; i++)
            out.operands[i] = without_sum(checker, ast, ast->operands[i]);
    }
    if (old)
        add_lanes(checker, &out);
    if (vector)
        move_vector(checker, &out);
    sg_check_instruction(checker, &out);
}
