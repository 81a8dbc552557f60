/*
 * lexer.h - PTX text to tokens. Dotted words (".rn", ".shared::cta", ".2d") are one token, so that an
 * instruction is a word followed by dotted words. Comments and white space vanish; every token knows its
 * line.
 */
#ifndef SG_COMPILER_PARSE_LEXER_H
#define SG_COMPILER_PARSE_LEXER_H

#include "softgpu/compiler/base/support.h"

enum sg_token_kind {
    SG_TOKEN_END,
    SG_TOKEN_WORD,        /* identifiers: names, %registers, $labels */
    SG_TOKEN_DOTTED,      /* ".word"; the text is without the dot */
    SG_TOKEN_INTEGER,     /* value */
    SG_TOKEN_FLOAT32,     /* value: the bits of a 0f literal */
    SG_TOKEN_FLOAT64,     /* value: the bits of a 0d literal or of a decimal literal */
    SG_TOKEN_STRING,      /* without the quotes */
    SG_TOKEN_PUNCTUATION, /* punctuation: one character, or one of the two-character operators below */
};

#define SG_TWO(a, b) ((a) | (b) << 8)

struct sg_token {
    enum sg_token_kind kind;
    uint32_t line;
    int punctuation;
    uint64_t value;
    struct sg_slice text;
};

struct sg_lexer {
    const char *at, *end;
    uint32_t line;
    struct sg_diagnostics *diagnostics;
};

/** The next token; fails on characters that no token starts with. */
struct sg_token sg_lexer_next(struct sg_lexer *lexer);
/**
 * Steps over text in braces without looking at its tokens, from '{' (where the lexer must stand) to behind
 * its '}'. Fails if there is none. Braces in comments and strings do not count.
 */
void sg_lexer_skip_braces(struct sg_lexer *lexer);

#endif
