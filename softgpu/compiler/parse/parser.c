/*
 * parser.c - module level: directives and function headers.
 */
#include "softgpu/compiler/parse/parser.h"

#include <string.h>

/* Steps over what the braces hold that open with the current token, and gives its text. */
static struct sg_slice skip_braces(struct sg_parser *parser)
{
    const char *start = parser->token.text.data;
    parser->lexer.at = start;
    parser->lexer.line = parser->token.line;
    parser->has_ahead = false;
    sg_lexer_skip_braces(&parser->lexer);
    const char *end = parser->lexer.at;
    if (end - start > UINT32_MAX)
        sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, parser->token.line, "too large");
    sg_parser_advance(parser);
    return (struct sg_slice){start, (uint32_t)(end - start)};
}

/* .loc and .file have no terminator: they end where their arguments end. */
static void parse_location(struct sg_parser *parser)
{
    bool is_file = sg_parser_at_dotted(parser, "file");
    uint32_t line = parser->token.line;
    sg_parser_advance(parser);
    if (parser->token.kind == SG_TOKEN_INTEGER) {
        uint32_t number = (uint32_t)sg_parser_integer(parser, "a number");
        if (is_file && parser->token.kind == SG_TOKEN_STRING)
            *SG_PUSH(parser->lasting, parser->ast->files, parser->ast->n_files, parser->ast->file_capacity) =
                (struct sg_ast_file){number, parser->token.text};
        else if (!is_file && parser->token.kind == SG_TOKEN_INTEGER)
            parser->place = (struct sg_ast_place){number, (uint32_t)parser->token.value};
    }
    while (parser->token.kind != SG_TOKEN_END && parser->token.line == line &&
           parser->token.kind != SG_TOKEN_DOTTED)
        sg_parser_advance(parser);
}

bool sg_parse_ignored(struct sg_parser *parser)
{
    if (sg_parser_at_dotted(parser, "loc") || sg_parser_at_dotted(parser, "file")) {
        parse_location(parser);
        return true;
    }
    if (sg_parser_at_dotted(parser, "section")) {
        sg_parser_advance(parser);
        while (!sg_parser_at(parser, '{') && parser->token.kind != SG_TOKEN_END)
            sg_parser_advance(parser);
        if (!sg_parser_at(parser, '{'))
            sg_parser_unexpected(parser, "'{'");
        skip_braces(parser);
        return true;
    }
    if (sg_parser_at_dotted(parser, "pragma")) {
        while (!sg_parser_at(parser, ';') && parser->token.kind != SG_TOKEN_END)
            sg_parser_advance(parser);
        sg_parser_expect(parser, ';');
        return true;
    }
    return false;
}

struct sg_ast_variable *sg_parse_params(struct sg_parser *parser, uint32_t *count)
{
    struct sg_ast_variable *params = NULL;
    uint32_t capacity = 0;
    *count = 0;
    sg_parser_expect(parser, '(');
    while (!sg_parser_at(parser, ')')) {
        struct sg_ast_variable param = {0};
        sg_parse_variable_head(parser, &param);
        sg_parse_declarator(parser, &param);
        *SG_PUSH(parser->arena, params, *count, capacity) = param;
        if (!sg_parser_accept(parser, ','))
            break;
    }
    sg_parser_expect(parser, ')');
    return params;
}

static void parse_dimensions(struct sg_parser *parser, uint32_t dimensions[3])
{
    for (int i = 0; i < 3; i++)
        dimensions[i] = 1;
    for (int i = 0; i < 3; i++) {
        if (parser->token.kind == SG_TOKEN_INTEGER && parser->token.value == 0)
            sg_parser_unexpected(parser, "a number of threads or blocks that is not 0");
        dimensions[i] = (uint32_t)sg_parser_integer(parser, "a number of threads or blocks");
        if (!sg_parser_accept(parser, ','))
            break;
    }
}

/* Performance and shape directives between a function's header and its body. */
static bool parse_function_directive(struct sg_parser *parser, struct sg_ast_function *function)
{
    static const char *const with_numbers[] = {"minnctapersm",   "maxnctapersm", "maxnreg",
                                               "maxclusterrank", "abi_preserve", "abi_preserve_control"};
    if (sg_parse_ignored(parser))
        return true;
    if (sg_parser_accept_dotted(parser, "noreturn"))
        return function->no_return = true;
    if (sg_parser_accept_dotted(parser, "maxntid"))
        return parse_dimensions(parser, function->maxntid), true;
    if (sg_parser_accept_dotted(parser, "reqntid"))
        return parse_dimensions(parser, function->reqntid), true;
    if (sg_parser_accept_dotted(parser, "reqnctapercluster"))
        return parse_dimensions(parser, function->reqnctapercluster), true;
    if (sg_parser_accept_dotted(parser, "explicitcluster"))
        return function->explicit_cluster = true;
    if (sg_parser_accept_dotted(parser, "blocksareclusters"))
        return function->blocks_are_clusters = true;
    for (size_t i = 0; i < sizeof(with_numbers) / sizeof(with_numbers[0]); i++)
        if (sg_parser_accept_dotted(parser, with_numbers[i])) {
            sg_parser_integer(parser, "a number");
            return true;
        }
    return sg_parser_accept_dotted(parser, "unique");
}

static void parse_attribute(struct sg_parser *parser, bool *managed)
{
    sg_parser_expect(parser, '(');
    while (!sg_parser_accept(parser, ')')) {
        if (parser->token.kind == SG_TOKEN_END)
            sg_parser_unexpected(parser, "')'");
        *managed |= sg_parser_at_dotted(parser, "managed");
        sg_parser_advance(parser);
    }
}

static void parse_function(struct sg_parser *parser, struct sg_ast *ast, enum sg_linkage linkage,
                           bool is_entry)
{
    struct sg_ast_function function = {.line = parser->token.line, .linkage = linkage, .is_entry = is_entry};
    bool managed = false;
    while (sg_parser_accept_dotted(parser, "attribute"))
        parse_attribute(parser, &managed);
    if (!is_entry && sg_parser_at(parser, '('))
        function.signature.returns = sg_parse_params(parser, &function.signature.n_returns);
    function.name = sg_parser_name(parser, "a function's name");
    if (sg_parser_at(parser, '('))
        function.signature.params = sg_parse_params(parser, &function.signature.n_params);
    while (parse_function_directive(parser, &function))
        ;
    if (sg_parser_at(parser, '{')) {
        function.has_body = true;
        function.body_line = parser->token.line;
        function.body = skip_braces(parser);
    } else {
        sg_parser_expect(parser, ';');
    }
    *SG_PUSH(parser->arena, ast->functions, ast->n_functions, ast->function_capacity) = function;
}

static void parse_variables(struct sg_parser *parser, struct sg_ast *ast, enum sg_linkage linkage)
{
    struct sg_ast_variable head = {.linkage = linkage};
    sg_parse_variable_head(parser, &head);
    do {
        struct sg_ast_variable variable = head;
        const uint32_t n = sg_parse_declarators(parser, &variable);
        for (uint32_t i = 0; i < n; i++)
            *SG_PUSH(parser->arena, ast->variables, ast->n_variables, ast->variable_capacity) =
                sg_numbered_variable(parser, &variable, i);
    } while (sg_parser_accept(parser, ','));
    sg_parser_expect(parser, ';');
}

static void parse_header(struct sg_parser *parser, struct sg_ast *ast)
{
    if (sg_parser_accept_dotted(parser, "version")) {
        /* "9.0" arrives as one decimal number */
        if (parser->token.kind != SG_TOKEN_FLOAT64)
            sg_parser_unexpected(parser, "a version");
        double version;
        memcpy(&version, &parser->token.value, sizeof(version));
        if (!(version >= 0 && version < 1000))
            sg_parser_unexpected(parser, "a version");
        ast->version = (uint32_t)(version * 10 + 0.5);
        sg_parser_advance(parser);
    } else if (sg_parser_accept_dotted(parser, "target")) {
        ast->target_line = parser->token.line;
        ast->target = sg_parser_name(parser, "a target");
        while (sg_parser_accept(parser, ','))
            sg_parser_name(parser, "a target option");
    } else if (sg_parser_accept_dotted(parser, "address_size")) {
        uint32_t line = parser->token.line;
        if (sg_parser_integer(parser, "an address size") != 64)
            sg_fail(parser->arena->diagnostics, SG_COMPILE_INVALID_PTX, line,
                    "only .address_size 64 is supported");
    } else {
        sg_parser_unexpected(parser, "a directive");
    }
}

static void parse_alias(struct sg_parser *parser, struct sg_ast *ast)
{
    struct sg_ast_alias alias = {.line = parser->token.line};
    alias.name = sg_parser_name(parser, "an alias");
    sg_parser_expect(parser, ',');
    alias.target = sg_parser_name(parser, "a function's name");
    sg_parser_expect(parser, ';');
    *SG_PUSH(parser->arena, ast->aliases, ast->n_aliases, ast->alias_capacity) = alias;
}

static enum sg_linkage parse_linkage(struct sg_parser *parser)
{
    static const char *const names[] = {[SG_LINKAGE_EXTERN] = "extern",
                                        [SG_LINKAGE_VISIBLE] = "visible",
                                        [SG_LINKAGE_WEAK] = "weak",
                                        [SG_LINKAGE_COMMON] = "common"};
    for (int linkage = SG_LINKAGE_EXTERN; linkage <= SG_LINKAGE_COMMON; linkage++)
        if (sg_parser_accept_dotted(parser, names[linkage]))
            return (enum sg_linkage)linkage;
    return SG_LINKAGE_NONE;
}

struct sg_ast *sg_parse(struct sg_arena *arena, const char *text, size_t size)
{
    struct sg_parser parser = {
        .lexer = {.at = text, .end = text + size, .line = 1, .diagnostics = arena->diagnostics},
        .arena = arena,
        .lasting = arena,
    };
    struct sg_ast *ast = parser.ast = SG_NEW(arena, struct sg_ast);
    parser.token = sg_lexer_next(&parser.lexer);
    while (parser.token.kind != SG_TOKEN_END) {
        if (sg_parse_ignored(&parser) || sg_parser_accept(&parser, ';'))
            continue;
        if (sg_parser_accept_dotted(&parser, "alias")) {
            parse_alias(&parser, ast);
            continue;
        }
        enum sg_linkage linkage = parse_linkage(&parser);
        bool entry = sg_parser_at_dotted(&parser, "entry");
        if (entry || sg_parser_at_dotted(&parser, "func")) {
            sg_parser_advance(&parser);
            parse_function(&parser, ast, linkage, entry);
        } else if (parser.token.kind == SG_TOKEN_DOTTED &&
                   sg_space_from_name(parser.token.text) != SG_SPACE_NONE) {
            parse_variables(&parser, ast, linkage);
        } else {
            parse_header(&parser, ast);
        }
    }
    return ast;
}
