/*
 * parser.h - internal to the parser's files: a token of look-ahead, and the pieces they share.
 */
#ifndef SG_COMPILER_PARSE_PARSER_H
#define SG_COMPILER_PARSE_PARSER_H

#include "softgpu/compiler/parse/ast.h"
#include "softgpu/compiler/parse/lexer.h"

struct sg_parser {
    struct sg_lexer lexer;
    struct sg_token token; /* the current one */
    struct sg_token ahead; /* the one after, if has_ahead */
    bool has_ahead;
    bool in_call;             /* of the instruction in work: parentheses hold lists, elsewhere expressions */
    struct sg_arena *arena;   /* of what is parsed */
    struct sg_arena *lasting; /* of initial values; the same but in bodies */
    struct sg_ast *ast;
    struct sg_ast_place place; /* by the last .loc of the function */
    const char *previous_end;  /* end of the token before the current one */
    uint32_t depth;            /* of what is nested in itself */
};

/** The next token becomes the current one; `previous_end` is the end of the one before. */
void sg_parser_advance(struct sg_parser *parser);
/** The token behind the current one, which stays current. Until the next call of these. */
const struct sg_token *sg_parser_peek(struct sg_parser *parser);
/** Whether the current token is that; it is not stepped over. */
bool sg_parser_at(const struct sg_parser *parser, int punctuation);
bool sg_parser_at_word(const struct sg_parser *parser, const char *word);
bool sg_parser_at_dotted(const struct sg_parser *parser, const char *word);
/** Steps over the punctuation if it is there. */
bool sg_parser_accept(struct sg_parser *parser, int punctuation);
bool sg_parser_accept_dotted(struct sg_parser *parser, const char *word);
void sg_parser_expect(struct sg_parser *parser, int punctuation);
struct sg_slice sg_parser_name(struct sg_parser *parser, const char *what);
uint64_t sg_parser_integer(struct sg_parser *parser, const char *what);
_Noreturn void sg_parser_unexpected(struct sg_parser *parser, const char *wanted);
/** Around parts of a text that may hold others of their own kind: fails if they are nested too deeply. */
void sg_parser_enter(struct sg_parser *parser);
void sg_parser_leave(struct sg_parser *parser);

/** A constant integer expression. */
uint64_t sg_parse_expression(struct sg_parser *parser);
/** ".space .align N .type name[dims] = initialiser", from the space on; one declarator of a list. */
void sg_parse_variable_head(struct sg_parser *parser, struct sg_ast_variable *variable);
void sg_parse_declarator(struct sg_parser *parser, struct sg_ast_variable *variable);
/**
 * As above, or "name<N>" for N variables name0, name1, …, as GCC declares arguments of calls: returns N (1: just that one), and
 * sg_numbered_variable names them one after the other.
 */
uint32_t sg_parse_declarators(struct sg_parser *parser, struct sg_ast_variable *variable);
struct sg_ast_variable sg_numbered_variable(struct sg_parser *parser, const struct sg_ast_variable *variable,
                                            uint32_t number);
/** "(params)" into an array. */
struct sg_ast_variable *sg_parse_params(struct sg_parser *parser, uint32_t *count);
/** Steps over .loc, .file, .pragma and the like; false if the current token starts none of them. */
bool sg_parse_ignored(struct sg_parser *parser);

#endif
