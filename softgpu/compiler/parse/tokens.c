/*
 * tokens.c - the parser's window of two tokens, and what is expected of the current one.
 */
#include "softgpu/compiler/parse/parser.h"

#define DEPTH_MAX 200u /* each level takes some stack, of whoever loads the text */

void sg_parser_advance(struct sg_parser *parser)
{
    parser->previous_end = parser->token.text.data + parser->token.text.size;
    if (parser->has_ahead)
        parser->token = parser->ahead;
    else
        parser->token = sg_lexer_next(&parser->lexer);
    parser->has_ahead = false;
}

const struct sg_token *sg_parser_peek(struct sg_parser *parser)
{
    if (!parser->has_ahead)
        parser->ahead = sg_lexer_next(&parser->lexer);
    parser->has_ahead = true;
    return &parser->ahead;
}

bool sg_parser_at(const struct sg_parser *parser, int punctuation)
{
    return parser->token.kind == SG_TOKEN_PUNCTUATION && parser->token.punctuation == punctuation;
}

bool sg_parser_at_word(const struct sg_parser *parser, const char *word)
{
    return parser->token.kind == SG_TOKEN_WORD && sg_slice_is(parser->token.text, word);
}

bool sg_parser_at_dotted(const struct sg_parser *parser, const char *word)
{
    return parser->token.kind == SG_TOKEN_DOTTED && sg_slice_is(parser->token.text, word);
}

bool sg_parser_accept(struct sg_parser *parser, int punctuation)
{
    if (!sg_parser_at(parser, punctuation))
        return false;
    sg_parser_advance(parser);
    return true;
}

bool sg_parser_accept_dotted(struct sg_parser *parser, const char *word)
{
    if (!sg_parser_at_dotted(parser, word))
        return false;
    sg_parser_advance(parser);
    return true;
}

void sg_parser_unexpected(struct sg_parser *parser, const char *wanted)
{
    if (parser->token.kind == SG_TOKEN_END)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line,
                "expected %s, found the end of the text", wanted);
    sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line,
            "expected %s, found '%s%.*s'", wanted, parser->token.kind == SG_TOKEN_DOTTED ? "." : "",
            (int)parser->token.text.size, parser->token.text.data);
}

void sg_parser_enter(struct sg_parser *parser)
{
    if (++parser->depth > DEPTH_MAX)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line,
                "nested more than %u levels deep", DEPTH_MAX);
}

void sg_parser_leave(struct sg_parser *parser)
{
    parser->depth--;
}

void sg_parser_expect(struct sg_parser *parser, int punctuation)
{
    char wanted[4] = {'\'', (char)punctuation, '\'', '\0'};
    if (!sg_parser_accept(parser, punctuation))
        sg_parser_unexpected(parser, wanted);
}

struct sg_slice sg_parser_name(struct sg_parser *parser, const char *what)
{
    if (parser->token.kind != SG_TOKEN_WORD)
        sg_parser_unexpected(parser, what);
    struct sg_slice name = parser->token.text;
    sg_parser_advance(parser);
    return name;
}

uint64_t sg_parser_integer(struct sg_parser *parser, const char *what)
{
    if (parser->token.kind != SG_TOKEN_INTEGER)
        sg_parser_unexpected(parser, what);
    uint64_t value = parser->token.value;
    sg_parser_advance(parser);
    return value;
}
