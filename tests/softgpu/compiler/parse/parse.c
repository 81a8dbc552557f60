/* parse.c - PTX text as tokens and as a tree; text that is no PTX, and what its message says. */
#include "softgpu/compiler/parse/ast.h"
#include "softgpu/compiler/parse/lexer.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.7\n.target sm_90\n.address_size 64\n"

struct parsed {
    struct sg_arena arena, scratch;
    struct sg_diagnostics diagnostics;
    struct sg_text log;
    struct sg_ast *ast; /* NULL: the text was refused */
};

static void parse(struct parsed *parsed, const char *text)
{
    memset(parsed, 0, sizeof *parsed);
    parsed->arena.diagnostics = parsed->scratch.diagnostics = &parsed->diagnostics;
    parsed->diagnostics.log = &parsed->log;
    if (setjmp(parsed->diagnostics.escape) == 0)
        parsed->ast = sg_parse(&parsed->arena, text, strlen(text));
}

static void end(struct parsed *parsed)
{
    sg_arena_fini(&parsed->arena);
    sg_arena_fini(&parsed->scratch);
    sg_text_fini(&parsed->log);
}

Test(parse, tokens)
{
    static const struct {
        const char *text;
        enum sg_token_kind kind;
        uint64_t value;
    } tokens[] = {{"17", SG_TOKEN_INTEGER, 17},
                  {"0x1fU", SG_TOKEN_INTEGER, 31},
                  {"017", SG_TOKEN_INTEGER, 15},
                  {"0b101", SG_TOKEN_INTEGER, 5},
                  {"0f3F800000", SG_TOKEN_FLOAT32, 0x3f800000},
                  {"0d3FF0000000000000", SG_TOKEN_FLOAT64, 0x3ff0000000000000},
                  {"1.5", SG_TOKEN_FLOAT64, 0x3ff8000000000000},
                  {"%rd12", SG_TOKEN_WORD, 0},
                  {"$L__1", SG_TOKEN_WORD, 0},
                  {".shared::cta", SG_TOKEN_DOTTED, 0},
                  {"// nothing\n/* of\nthis */ x", SG_TOKEN_WORD, 0},
                  {"", SG_TOKEN_END, 0}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct sg_diagnostics diagnostics = {0};
        struct sg_lexer lexer = {tokens[i].text, tokens[i].text + strlen(tokens[i].text), 1, &diagnostics};
        cr_assert_eq(setjmp(diagnostics.escape), 0, "%s", tokens[i].text);
        const struct sg_token token = sg_lexer_next(&lexer);
        cr_expect_eq(token.kind, tokens[i].kind, "%s", tokens[i].text);
        if (token.kind == SG_TOKEN_INTEGER || token.kind == SG_TOKEN_FLOAT32 ||
            token.kind == SG_TOKEN_FLOAT64)
            cr_expect_eq(token.value, tokens[i].value, "%s", tokens[i].text);
        if (strncmp(tokens[i].text, "//", 2) == 0)
            cr_expect_eq(token.line, 3u);
    }
}

Test(parse, module)
{
    struct parsed parsed;
    parse(&parsed, HEAD ".visible .global .align 8 .u32 table[2*3+1] = {1, 2, first};\n"
                        ".extern .shared .align 16 .b8 dynamic[];\n"
                        ".visible .entry k(.param .u64 p, .param .align 4 .b8 q[12]) .maxntid 32, 2\n"
                        "{ .reg .b32 %r<4>; L: add.u32 %r1, %r2, -3; @!%p bra L; ret; }\n");
    cr_assert(parsed.ast, "%s", parsed.log.data);
    cr_expect_eq(parsed.ast->version, 87u);
    cr_expect(sg_slice_is(parsed.ast->target, "sm_90"));
    cr_assert_eq(parsed.ast->n_variables, 2);
    const struct sg_ast_variable *table = &parsed.ast->variables[0], *dynamic = &parsed.ast->variables[1];
    cr_expect(table->is_array && table->count == 7 && table->align == 8 && table->type == SG_U32);
    cr_assert(table->initial && table->initial->n_items == 3);
    cr_expect_eq(table->initial->items[1].value, 2);
    cr_expect(sg_slice_is(table->initial->items[2].symbol, "first"));
    cr_expect(dynamic->is_array && dynamic->count == 0 && dynamic->linkage == SG_LINKAGE_EXTERN);
    cr_assert_eq(parsed.ast->n_functions, 1);
    const struct sg_ast_function *kernel = &parsed.ast->functions[0];
    cr_expect(kernel->is_entry && kernel->has_body && kernel->maxntid[0] == 32 && kernel->maxntid[1] == 2);
    cr_assert_eq(kernel->signature.n_params, 2);
    cr_expect_eq(kernel->signature.params[1].count, 12);
    const struct sg_ast_body *body = sg_parse_body(&parsed.arena, &parsed.scratch, parsed.ast, kernel);
    cr_expect_eq(body->n_instructions, 3);
    const struct sg_ast_instruction *add = NULL, *jump = NULL;
    for (uint32_t i = 0; i < body->n_statements; i++)
        if (body->statements[i].kind == SG_STATEMENT_INSTRUCTION) {
            const struct sg_ast_instruction *insn = &body->statements[i].instruction;
            add = sg_slice_is(insn->base, "add") ? insn : add;
            jump = sg_slice_is(insn->base, "bra") ? insn : jump;
        }
    cr_assert(add && jump);
    cr_expect(add->n_modifiers == 1 && sg_slice_is(add->modifiers[0], "u32") && add->n_operands == 3);
    cr_expect_eq((int64_t)add->operands[2].value, -3);
    cr_expect(jump->guard_negated && sg_slice_is(jump->guard, "%p"));
    end(&parsed);
}

/* Numbers of instructions are expressions, whichever operator they begin with. */
Test(parse, operands_are_expressions)
{
    static const struct {
        const char *text;
        int64_t value;
    } expressions[] = {{"-3", -3},       {"!1", 0},      {"!0", 1},        {"!!5", 1},
                       {"!(3 == 3)", 0}, {"~7", -8},     {"-4 + 6", 2},    {"- -4", 4},
                       {"-(4)", -4},     {"-2 * 3", -6}, {"1 ? 3 : 2", 3}, {"!0 + 1", 2}};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD ".visible .entry k()\n{ .reg .b32 %%r; mov.u32 %%r, %s; ret; }\n",
                 expressions[i].text);
        struct parsed parsed;
        parse(&parsed, text);
        cr_assert(parsed.ast, "%s: %s", expressions[i].text, parsed.log.data);
        cr_assert_eq(setjmp(parsed.diagnostics.escape), 0, "%s: %s", expressions[i].text, parsed.log.data);
        const struct sg_ast_body *body =
            sg_parse_body(&parsed.arena, &parsed.scratch, parsed.ast, &parsed.ast->functions[0]);
        const struct sg_ast_operand *number = NULL;
        for (uint32_t j = 0; j < body->n_statements; j++)
            if (body->statements[j].kind == SG_STATEMENT_INSTRUCTION &&
                sg_slice_is(body->statements[j].instruction.base, "mov"))
                number = &body->statements[j].instruction.operands[1];
        cr_assert(number, "%s", expressions[i].text);
        cr_expect(number->kind == SG_AST_INTEGER && !number->negated, "%s", expressions[i].text);
        cr_expect_eq((int64_t)number->value, expressions[i].value, "%s", expressions[i].text);
        end(&parsed);
    }
}

/* "name<N>" for N variables, as GCC declares the arguments of calls. */
Test(parse, numbered_variables)
{
    struct parsed parsed;
    parse(&parsed, HEAD ".global .u32 g<3>, h;\n.visible .entry k()\n{\n.param .u64 %P<2>;\nret;\n}\n");
    cr_assert_not_null(parsed.ast, "%s", parsed.log.data);
    cr_assert_eq(parsed.ast->n_variables, 4);
    cr_expect(sg_slice_is(parsed.ast->variables[0].name, "g0") &&
              sg_slice_is(parsed.ast->variables[2].name, "g2"));
    cr_expect(sg_slice_is(parsed.ast->variables[3].name, "h"));
    const struct sg_ast_body *body =
        sg_parse_body(&parsed.arena, &parsed.scratch, parsed.ast, &parsed.ast->functions[0]);
    uint32_t n = 0;
    for (uint32_t i = 0; i < body->n_statements; i++)
        if (body->statements[i].kind == SG_STATEMENT_VARIABLE) {
            const struct sg_ast_variable *variable = &body->statements[i].variable;
            cr_expect(sg_slice_is(variable->name, n ? "%P1" : "%P0") && variable->count == 1 &&
                      variable->type == SG_U64);
            n++;
        }
    cr_expect_eq(n, 2);
    end(&parsed);
}

/* Each with the line that is wrong. */
Test(parse, refused)
{
    char deep[4096] = HEAD ".global .u32 a[1] = {";
    memset(deep + strlen(deep), '{', 3000);
    const struct {
        const char *text, *place;
    } wrong[] = {{".version x\n", "ptx:1:"},
                 {HEAD ".global .u32 a[", "ptx:4:"},
                 {HEAD "\n.global .u32 a[1/0];\n", "ptx:5:"},
                 {HEAD ".visible .entry k() {\n\n", "ptx:"},
                 {HEAD ".global .nothing a;\n", "ptx:4:"},
                 {HEAD ".global .u32 a<0>;\n", "ptx:4:"},
                 {HEAD ".global .u32 a<65537>;\n", "ptx:4:"},
                 {HEAD ".global .u32 a<2>[4];\n", "ptx:4:"},
                 {HEAD "\n\n\"text\n", "ptx:6:"},
                 {deep, "ptx:4:"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct parsed parsed;
        parse(&parsed, wrong[i].text);
        cr_expect_null(parsed.ast, "%zu", i);
        cr_expect(parsed.log.data && strncmp(parsed.log.data, wrong[i].place, strlen(wrong[i].place)) == 0,
                  "%zu: %s", i, parsed.log.data ? parsed.log.data : "nothing");
        end(&parsed);
    }
}
