/*
 * variable.c - declarations of variables and parameters, initialisers, constant expressions.
 */
#include "softgpu/compiler/parse/parser.h"

#include <stdio.h>

enum {
    NUMBERED_MAX = 1 << 16,
    NUMBER_DIGITS = 11, /* of 32 bits, and a NUL */
};

/* --- constant expressions: precedence climbing over the operators of C --- */

static int binary_precedence(const struct sg_token *token)
{
    if (token->kind != SG_TOKEN_PUNCTUATION)
        return 0;
    switch (token->punctuation) {
    case '*':
    case '/':
    case '%':
        return 10;
    case '+':
    case '-':
        return 9;
    case SG_TWO('<', '<'):
    case SG_TWO('>', '>'):
        return 8;
    case '<':
    case '>':
    case SG_TWO('<', '='):
    case SG_TWO('>', '='):
        return 7;
    case SG_TWO('=', '='):
    case SG_TWO('!', '='):
        return 6;
    case '&':
        return 5;
    case '^':
        return 4;
    case '|':
        return 3;
    case SG_TWO('&', '&'):
        return 2;
    case SG_TWO('|', '|'):
        return 1;
    default:
        return 0;
    }
}

static uint64_t apply(struct sg_parser *parser, int operator, uint64_t a, uint64_t b)
{
    if ((operator== '/' || operator== '%') && b == 0)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line,
                "division by zero in a constant expression");
    switch (operator) {
    case '*':
        return a * b;
    case '/':
        return (int64_t)b == -1 ? -a : (uint64_t)((int64_t)a / (int64_t)b);
    case '%':
        return (int64_t)b == -1 ? 0 : (uint64_t)((int64_t)a % (int64_t)b);
    case '+':
        return a + b;
    case '-':
        return a - b;
    case SG_TWO('<', '<'):
        return b > 63 ? 0 : a << b;
    case SG_TWO('>', '>'):
        return b > 63 ? 0 : a >> b;
    case '<':
        return (int64_t)a < (int64_t)b;
    case '>':
        return (int64_t)a > (int64_t)b;
    case SG_TWO('<', '='):
        return (int64_t)a <= (int64_t)b;
    case SG_TWO('>', '='):
        return (int64_t)a >= (int64_t)b;
    case SG_TWO('=', '='):
        return a == b;
    case SG_TWO('!', '='):
        return a != b;
    case '&':
        return a & b;
    case '^':
        return a ^ b;
    case '|':
        return a | b;
    case SG_TWO('&', '&'):
        return a && b;
    default:
        return a || b;
    }
}

static uint64_t parse_unary(struct sg_parser *parser);

static uint64_t parse_signed(struct sg_parser *parser)
{
    if (sg_parser_accept(parser, '-'))
        return -parse_unary(parser);
    if (sg_parser_accept(parser, '+'))
        return parse_unary(parser);
    if (sg_parser_accept(parser, '~'))
        return ~parse_unary(parser);
    if (sg_parser_accept(parser, '!'))
        return !parse_unary(parser);
    if (sg_parser_accept(parser, '(')) {
        uint64_t value = sg_parse_expression(parser);
        sg_parser_expect(parser, ')');
        return value;
    }
    if (sg_parser_at_word(parser, "WARP_SZ")) {
        sg_parser_advance(parser);
        return 32;
    }
    return sg_parser_integer(parser, "a number");
}

static uint64_t parse_unary(struct sg_parser *parser)
{
    sg_parser_enter(parser);
    uint64_t value = parse_signed(parser);
    sg_parser_leave(parser);
    return value;
}

static uint64_t parse_binary(struct sg_parser *parser, int lowest)
{
    uint64_t value = parse_unary(parser);
    for (;;) {
        int precedence = binary_precedence(&parser->token);
        if (precedence == 0 || precedence < lowest)
            return value;
        int operator= parser->token.punctuation;
        sg_parser_advance(parser);
        value = apply(parser, operator, value, parse_binary(parser, precedence + 1));
    }
}

uint64_t sg_parse_expression(struct sg_parser *parser)
{
    sg_parser_enter(parser);
    uint64_t value = parse_binary(parser, 1);
    if (sg_parser_accept(parser, '?')) {
        uint64_t yes = sg_parse_expression(parser);
        sg_parser_expect(parser, ':');
        uint64_t no = sg_parse_expression(parser);
        value = value ? yes : no;
    }
    sg_parser_leave(parser);
    return value;
}

/* --- initialisers --- */

static void parse_symbol(struct sg_parser *parser, struct sg_ast_initial *initial)
{
    initial->kind = SG_INITIAL_SYMBOL;
    if (sg_parser_at_word(parser, "generic") && sg_parser_peek(parser)->punctuation == '(') {
        sg_parser_advance(parser);
        sg_parser_expect(parser, '(');
        initial->generic = true;
        initial->symbol = sg_parser_name(parser, "a variable's name");
        if (sg_parser_at(parser, '+') || sg_parser_at(parser, '-'))
            initial->value = sg_parse_expression(parser);
        sg_parser_expect(parser, ')');
    } else {
        initial->symbol = sg_parser_name(parser, "a symbol");
    }
    if (sg_parser_at(parser, '+') || sg_parser_at(parser, '-'))
        initial->value += sg_parse_expression(parser);
}

static void parse_initial(struct sg_parser *parser, struct sg_ast_initial *initial)
{
    sg_parser_enter(parser);
    initial->line = parser->token.line;
    bool minus_float = sg_parser_at(parser, '-') && sg_parser_peek(parser)->kind == SG_TOKEN_FLOAT64;
    if (minus_float)
        sg_parser_advance(parser);
    if (sg_parser_accept(parser, '{')) {
        uint32_t capacity = 0;
        initial->kind = SG_INITIAL_LIST;
        while (!sg_parser_at(parser, '}')) {
            struct sg_ast_initial item = {0};
            parse_initial(parser, &item);
            *SG_PUSH(parser->lasting, initial->items, initial->n_items, capacity) = item;
            if (!sg_parser_accept(parser, ','))
                break;
        }
        sg_parser_expect(parser, '}');
    } else if (parser->token.kind == SG_TOKEN_FLOAT32 || parser->token.kind == SG_TOKEN_FLOAT64) {
        initial->kind = parser->token.kind == SG_TOKEN_FLOAT32 ? SG_INITIAL_FLOAT32 : SG_INITIAL_FLOAT64;
        initial->value = parser->token.value ^ (minus_float ? UINT64_C(1) << 63 : 0);
        sg_parser_advance(parser);
    } else if (parser->token.kind == SG_TOKEN_WORD && !sg_parser_at_word(parser, "WARP_SZ")) {
        parse_symbol(parser, initial);
    } else if (parser->token.kind == SG_TOKEN_INTEGER && sg_parser_peek(parser)->punctuation == '(') {
        uint64_t mask = sg_parser_integer(parser, "a mask");
        sg_parser_expect(parser, '(');
        parse_symbol(parser, initial);
        initial->mask = mask;
        sg_parser_expect(parser, ')');
    } else {
        initial->kind = SG_INITIAL_INTEGER;
        initial->value = sg_parse_expression(parser);
    }
    sg_parser_leave(parser);
}

/* --- declarations --- */

static void parse_attributes(struct sg_parser *parser, struct sg_ast_variable *variable)
{
    sg_parser_expect(parser, '(');
    while (!sg_parser_accept(parser, ')')) {
        if (parser->token.kind == SG_TOKEN_END)
            sg_parser_unexpected(parser, "')'");
        variable->managed |= sg_parser_at_dotted(parser, "managed");
        sg_parser_advance(parser);
    }
}

void sg_parse_variable_head(struct sg_parser *parser, struct sg_ast_variable *variable)
{
    variable->line = parser->token.line;
    variable->vector = 1;
    if (parser->token.kind != SG_TOKEN_DOTTED ||
        (variable->space = sg_space_from_name(parser->token.text)) == SG_SPACE_NONE)
        sg_parser_unexpected(parser, "a state space");
    sg_parser_advance(parser);
    for (;; sg_parser_advance(parser)) {
        if (parser->token.kind != SG_TOKEN_DOTTED)
            sg_parser_unexpected(parser, "a type");
        struct sg_slice word = parser->token.text;
        if (sg_slice_is(word, "align")) {
            if (sg_parser_peek(parser)->kind != SG_TOKEN_INTEGER)
                sg_parser_unexpected(parser, "an alignment");
            sg_parser_advance(parser);
            uint64_t align = parser->token.value;
            if (align == 0 || align > 4096 || (align & (align - 1)) != 0)
                sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line,
                        ".align must be a power of two, at most 4096");
            if (variable->type == SG_TYPE_NONE)
                variable->align = (uint32_t)align;
        } else if (sg_slice_is(word, "v2")) {
            variable->vector = 2;
        } else if (sg_slice_is(word, "v4")) {
            variable->vector = 4;
        } else if (sg_slice_is(word, "attribute")) {
            sg_parser_advance(parser);
            parse_attributes(parser, variable);
            parser->has_ahead = true; /* the loop's step: look at the current token again */
            parser->ahead = parser->token;
        } else if (sg_slice_is(word, "texref") || sg_slice_is(word, "surfref")) {
            variable->type = SG_B64;
            variable->reference = sg_slice_is(word, "texref") ? SG_REFERENCE_TEXTURE : SG_REFERENCE_SURFACE;
            sg_parser_advance(parser);
            break;
        } else if (sg_type_from_name(word) != SG_TYPE_NONE) {
            variable->type = sg_type_from_name(word);
            sg_parser_advance(parser);
            break;
        } else {
            sg_parser_unexpected(parser, "a type");
        }
    }
    if (sg_parser_accept_dotted(parser, "ptr")) { /* what a pointer parameter points to: of no use here */
        while (parser->token.kind == SG_TOKEN_DOTTED) {
            bool align = sg_parser_at_dotted(parser, "align");
            sg_parser_advance(parser);
            if (align)
                sg_parser_integer(parser, "an alignment");
        }
    }
}

void sg_parse_declarator(struct sg_parser *parser, struct sg_ast_variable *variable)
{
    variable->line = parser->token.line;
    variable->name = sg_parser_name(parser, "a name");
    variable->count = 1;
    while (sg_parser_accept(parser, '[')) {
        variable->is_array = true;
        if (sg_parser_at(parser, ']'))
            variable->count = 0;
        else if (__builtin_mul_overflow(variable->count, sg_parse_expression(parser), &variable->count))
            sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, variable->line, "array is too large");
        sg_parser_expect(parser, ']');
    }
    if (sg_parser_accept(parser, '=')) {
        variable->initial = SG_NEW(parser->lasting, struct sg_ast_initial);
        parse_initial(parser, variable->initial);
        if (variable->is_array && variable->count == 0)
            variable->count = variable->initial->n_items;
    }
}

uint32_t sg_parse_declarators(struct sg_parser *parser, struct sg_ast_variable *variable)
{
    if (parser->token.kind != SG_TOKEN_WORD || sg_parser_peek(parser)->punctuation != '<') {
        sg_parse_declarator(parser, variable);
        return 1;
    }
    variable->line = parser->token.line;
    variable->name = sg_parser_name(parser, "a name");
    variable->count = 1;
    sg_parser_expect(parser, '<');
    const uint64_t n = sg_parser_integer(parser, "a number of variables");
    if (n == 0 || n > NUMBERED_MAX)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, variable->line,
                "bad number of variables");
    sg_parser_expect(parser, '>');
    variable->numbered = true;
    return (uint32_t)n;
}

struct sg_ast_variable sg_numbered_variable(struct sg_parser *parser, const struct sg_ast_variable *variable,
                                            uint32_t number)
{
    struct sg_ast_variable one = *variable;
    if (!variable->numbered)
        return one;
    char *name = sg_arena_alloc(parser->arena, variable->name.size + NUMBER_DIGITS);
    const int size = sprintf(name, "%.*s%u", (int)variable->name.size, variable->name.data, number);
    one.name = (struct sg_slice){name, (uint32_t)size};
    return one;
}
