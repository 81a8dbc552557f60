/*
 * body.c - the bodies of functions: statements, instructions and their operands.
 */
#include "softgpu/compiler/parse/parser.h"

static void parse_operand(struct sg_parser *parser, struct sg_ast_operand *operand);

static void parse_items(struct sg_parser *parser, struct sg_ast_operand *list, int close)
{
    uint32_t capacity = 0;
    while (!sg_parser_at(parser, close)) {
        struct sg_ast_operand item = {0};
        parse_operand(parser, &item);
        *SG_PUSH(parser->arena, list->items, list->n_items, capacity) = item;
        if (!sg_parser_accept(parser, ','))
            break;
    }
    sg_parser_expect(parser, close);
}

/* A number with an optional sign, or an expression of numbers. */
static void parse_number(struct sg_parser *parser, struct sg_ast_operand *operand)
{
    bool minus = sg_parser_at(parser, '-');
    const struct sg_token *number = minus ? sg_parser_peek(parser) : &parser->token;
    if (number->kind == SG_TOKEN_FLOAT32 || number->kind == SG_TOKEN_FLOAT64) {
        bool single = number->kind == SG_TOKEN_FLOAT32;
        operand->kind = single ? SG_AST_FLOAT32 : SG_AST_FLOAT64;
        operand->value = number->value ^ (!minus ? 0 : single ? UINT64_C(1) << 31 : UINT64_C(1) << 63);
        if (minus)
            sg_parser_advance(parser);
        sg_parser_advance(parser);
        return;
    }
    operand->kind = SG_AST_INTEGER;
    operand->value = sg_parse_expression(parser);
}

static void parse_name(struct sg_parser *parser, struct sg_ast_operand *operand)
{
    operand->kind = SG_AST_NAME;
    operand->name = sg_parser_name(parser, "an operand");
    if (parser->token.kind == SG_TOKEN_DOTTED) {
        operand->component = parser->token.text;
        sg_parser_advance(parser);
    }
    if (sg_parser_at(parser, '+') || sg_parser_at(parser, '-'))
        operand->value = sg_parse_expression(parser);
}

static void parse_address(struct sg_parser *parser, struct sg_ast_operand *operand)
{
    sg_parser_expect(parser, '[');
    if (parser->token.kind == SG_TOKEN_WORD) {
        parse_name(parser, operand);
    } else {
        operand->value = sg_parse_expression(parser);
    }
    operand->kind = SG_AST_ADDRESS;
    if (sg_parser_accept(parser, ','))
        parse_items(parser, operand, ']');
    else
        sg_parser_expect(parser, ']');
}

static void parse_operand(struct sg_parser *parser, struct sg_ast_operand *operand)
{
    sg_parser_enter(parser);
    /* Before a name it negates a predicate, else it is the first operator of an expression: "!1" is 0. */
    if (sg_parser_at(parser, '!') && sg_parser_peek(parser)->kind == SG_TOKEN_WORD)
        operand->negated = sg_parser_accept(parser, '!');
    if (sg_parser_at(parser, '[')) {
        parse_address(parser, operand);
    } else if (sg_parser_accept(parser, '{')) {
        operand->kind = SG_AST_VECTOR;
        parse_items(parser, operand, '}');
    } else if (parser->in_call && sg_parser_accept(parser, '(')) {
        operand->kind = SG_AST_LIST;
        parse_items(parser, operand, ')');
    } else if (sg_parser_at_word(parser, "_")) {
        operand->kind = SG_AST_SINK;
        sg_parser_advance(parser);
    } else if (parser->token.kind == SG_TOKEN_WORD && !sg_parser_at_word(parser, "WARP_SZ")) {
        parse_name(parser, operand);
    } else if (sg_parser_at(parser, '-') && sg_parser_peek(parser)->kind == SG_TOKEN_WORD) {
        sg_parser_advance(parser);
        operand->minus = true;
        parse_name(parser, operand);
    } else {
        parse_number(parser, operand);
    }
    if (sg_parser_accept(parser, '|')) {
        operand->pair = SG_NEW(parser->arena, struct sg_ast_operand);
        parse_operand(parser, operand->pair);
    }
    sg_parser_leave(parser);
}

static void parse_operands(struct sg_parser *parser, struct sg_ast_instruction *instruction)
{
    uint32_t capacity = 0;
    while (!sg_parser_at(parser, ';')) {
        struct sg_ast_operand operand = {0};
        parse_operand(parser, &operand);
        *SG_PUSH(parser->arena, instruction->operands, instruction->n_operands, capacity) = operand;
        if (!sg_parser_accept(parser, ','))
            break;
    }
    sg_parser_expect(parser, ';');
}

static void parse_instruction(struct sg_parser *parser, struct sg_ast_statement *statement)
{
    struct sg_ast_instruction *instruction = &statement->instruction;
    const char *start = parser->token.text.data;
    uint32_t capacity = 0;
    statement->kind = SG_STATEMENT_INSTRUCTION;
    if (sg_parser_accept(parser, '@')) {
        instruction->guard_negated = sg_parser_accept(parser, '!');
        instruction->guard = sg_parser_name(parser, "a predicate");
        statement->line = parser->token.line;
    }
    instruction->base = sg_parser_name(parser, "an instruction");
    while (parser->token.kind == SG_TOKEN_DOTTED) {
        *SG_PUSH(parser->arena, instruction->modifiers, instruction->n_modifiers, capacity) =
            parser->token.text;
        sg_parser_advance(parser);
    }
    parser->in_call = sg_slice_is(instruction->base, "call");
    parse_operands(parser, instruction);
    const char *end = parser->previous_end - 1; /* without the semicolon */
    while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\n' || end[-1] == '\r'))
        end--;
    instruction->text = (struct sg_slice){start, (uint32_t)(end - start)};
}

static void parse_prototype(struct sg_parser *parser, struct sg_ast_prototype *prototype)
{
    if (sg_parser_at(parser, '('))
        prototype->returns = sg_parse_params(parser, &prototype->n_returns);
    sg_parser_name(parser, "'_'");
    if (sg_parser_at(parser, '('))
        prototype->params = sg_parse_params(parser, &prototype->n_params);
    while (parser->token.kind == SG_TOKEN_DOTTED) { /* .noreturn, .abi_preserve N */
        sg_parser_advance(parser);
        if (parser->token.kind == SG_TOKEN_INTEGER)
            sg_parser_advance(parser);
    }
    sg_parser_expect(parser, ';');
}

/* What follows "name:": nothing (a label), or a table of targets, or a call prototype. */
static void parse_label(struct sg_parser *parser, struct sg_ast_statement *statement)
{
    statement->kind = SG_STATEMENT_LABEL;
    statement->name = sg_parser_name(parser, "a label");
    sg_parser_expect(parser, ':');
    if (sg_parser_accept_dotted(parser, "callprototype")) {
        statement->kind = SG_STATEMENT_PROTOTYPE;
        parse_prototype(parser, &statement->prototype);
    } else if (sg_parser_at_dotted(parser, "branchtargets") || sg_parser_at_dotted(parser, "calltargets")) {
        uint32_t capacity = 0;
        sg_parser_advance(parser);
        statement->kind = SG_STATEMENT_TARGETS;
        do
            *SG_PUSH(parser->arena, statement->targets.names, statement->targets.count, capacity) =
                sg_parser_name(parser, "a target");
        while (sg_parser_accept(parser, ','));
        sg_parser_expect(parser, ';');
    }
}

static struct sg_ast_statement *push(struct sg_parser *parser, struct sg_ast_body *body)
{
    struct sg_ast_statement *statement =
        SG_PUSH(parser->arena, body->statements, body->n_statements, body->capacity);
    statement->line = parser->token.line;
    statement->place = parser->place;
    return statement;
}

static void parse_registers(struct sg_parser *parser, struct sg_ast_body *body)
{
    uint32_t line = parser->token.line;
    sg_parser_advance(parser);
    uint32_t vector = sg_parser_accept_dotted(parser, "v2")   ? 2
                      : sg_parser_accept_dotted(parser, "v4") ? 4
                                                              : 0;
    enum sg_type type =
        parser->token.kind == SG_TOKEN_DOTTED ? sg_type_from_name(parser->token.text) : SG_TYPE_NONE;
    if (type == SG_TYPE_NONE)
        sg_parser_unexpected(parser, "a register type");
    if (type >= SG_TF32 && type != SG_F16X2 && type != SG_BF16X2)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, line, "registers cannot have type .%s",
                sg_types[type].name);
    sg_parser_advance(parser);
    do {
        struct sg_ast_statement *statement = push(parser, body);
        statement->kind = SG_STATEMENT_REGISTERS;
        statement->registers.type = type;
        statement->registers.vector = vector;
        statement->registers.name = sg_parser_name(parser, "a register's name");
        if (vector == 0 && sg_parser_accept(parser, '<')) {
            uint64_t range = sg_parser_integer(parser, "a number of registers");
            if (range == 0 || range > 1u << 24)
                sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, line, "bad number of registers");
            statement->registers.range = (uint32_t)range;
            sg_parser_expect(parser, '>');
        }
    } while (sg_parser_accept(parser, ','));
    sg_parser_expect(parser, ';');
}

static void parse_local_variables(struct sg_parser *parser, struct sg_ast_body *body)
{
    struct sg_ast_variable head = {0};
    sg_parse_variable_head(parser, &head);
    do {
        struct sg_ast_variable variable = head;
        const uint32_t n = sg_parse_declarators(parser, &variable);
        for (uint32_t i = 0; i < n; i++) {
            struct sg_ast_statement *statement = push(parser, body);
            statement->kind = SG_STATEMENT_VARIABLE;
            statement->variable = sg_numbered_variable(parser, &variable, i);
        }
    } while (sg_parser_accept(parser, ','));
    sg_parser_expect(parser, ';');
}

static void parse_statements(struct sg_parser *parser, struct sg_ast_body *body)
{
    uint32_t depth = 0;
    do {
        if (parser->token.kind == SG_TOKEN_END)
            sg_parser_unexpected(parser, "'}'");
        if (sg_parser_at(parser, '{') || sg_parser_at(parser, '}')) {
            bool open = sg_parser_at(parser, '{');
            push(parser, body)->kind = open ? SG_STATEMENT_OPEN : SG_STATEMENT_CLOSE;
            depth += open ? 1u : -1u;
            sg_parser_advance(parser);
        } else if (sg_parser_at_dotted(parser, "reg")) {
            parse_registers(parser, body);
        } else if (parser->token.kind == SG_TOKEN_DOTTED &&
                   sg_space_from_name(parser->token.text) != SG_SPACE_NONE) {
            parse_local_variables(parser, body);
        } else if (sg_parse_ignored(parser) || sg_parser_accept(parser, ';')) {
            continue;
        } else if (parser->token.kind == SG_TOKEN_WORD && sg_parser_peek(parser)->punctuation == ':') {
            parse_label(parser, push(parser, body));
        } else {
            parse_instruction(parser, push(parser, body));
            body->n_instructions++;
        }
    } while (depth > 0);
}

struct sg_ast_body *sg_parse_body(struct sg_arena *arena, struct sg_arena *scratch, struct sg_ast *ast,
                                  const struct sg_ast_function *function)
{
    const char *text = function->body.data;
    struct sg_parser parser = {
        .lexer = {.at = text,
                  .end = text + function->body.size,
                  .line = function->body_line,
                  .diagnostics = arena->diagnostics},
        .arena = scratch,
        .lasting = arena,
        .ast = ast,
    };
    struct sg_ast_body *body = SG_NEW(scratch, struct sg_ast_body);
    parser.token = sg_lexer_next(&parser.lexer);
    parse_statements(&parser, body);
    return body;
}
