/*
 * lexer.c - see lexer.h. Pure function of the text.
 */
#include "softgpu/compiler/parse/lexer.h"

#include "common/base/parse.h"

#include <ctype.h>
#include <string.h>

static bool is_word_start(char c)
{
    return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static void skip_space(struct sg_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;
        size_t left = (size_t)(lexer->end - lexer->at);
        if (c == '\n') {
            lexer->line++;
            lexer->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            lexer->at++;
        } else if (left >= 2 && c == '/' && lexer->at[1] == '/') {
            const char *newline = memchr(lexer->at, '\n', left);
            lexer->at = newline == NULL ? lexer->end : newline;
        } else if (left >= 2 && c == '/' && lexer->at[1] == '*') {
            uint32_t line = lexer->line;
            lexer->at += 2;
            while (lexer->end - lexer->at >= 2 && !(lexer->at[0] == '*' && lexer->at[1] == '/'))
                lexer->line += *lexer->at++ == '\n';
            if (lexer->end - lexer->at < 2)
                sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, line, "comment is not closed");
            lexer->at += 2;
        } else {
            return;
        }
    }
}

static uint64_t digits(struct sg_lexer *lexer, int base, uint32_t *count)
{
    uint64_t value = 0;
    *count = 0;
    for (; lexer->at < lexer->end; lexer->at++, ++*count) {
        int c = tolower((unsigned char)*lexer->at);
        int digit = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (digit >= base)
            break;
        value = value * (uint64_t)base + (uint64_t)digit;
    }
    return value;
}

static void lex_decimal_float(struct sg_lexer *lexer, struct sg_token *token)
{
    char copy[64];
    const char *p = token->text.data;
    size_t size = 0;
    while (p < lexer->end && size < sizeof(copy) - 1 &&
           (isdigit((unsigned char)*p) || *p == '.' || *p == 'e' || *p == 'E' ||
            ((*p == '-' || *p == '+') && size > 0 && (p[-1] == 'e' || p[-1] == 'E'))))
        copy[size++] = *p++;
    copy[size] = '\0';
    char *end;
    double value = rg_parse_double(copy, &end);
    lexer->at = token->text.data + (end - copy);
    token->kind = SG_TOKEN_FLOAT64;
    memcpy(&token->value, &value, sizeof(value));
}

static void lex_number(struct sg_lexer *lexer, struct sg_token *token)
{
    size_t left = (size_t)(lexer->end - lexer->at);
    char second = left >= 2 ? (char)tolower((unsigned char)lexer->at[1]) : '\0';
    uint32_t count = 1;
    token->kind = SG_TOKEN_INTEGER;
    if (lexer->at[0] == '0' && (second == 'f' || second == 'd')) {
        lexer->at += 2;
        token->kind = second == 'f' ? SG_TOKEN_FLOAT32 : SG_TOKEN_FLOAT64;
        token->value = digits(lexer, 16, &count);
        if (count != (second == 'f' ? 8u : 16u))
            sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, lexer->line,
                    "a 0%c literal needs %u hexadecimal digits", second, second == 'f' ? 8u : 16u);
    } else if (lexer->at[0] == '0' && (second == 'x' || second == 'b')) {
        lexer->at += 2;
        token->value = digits(lexer, second == 'x' ? 16 : 2, &count);
    } else {
        const char *p = lexer->at;
        while (p < lexer->end && isdigit((unsigned char)*p))
            p++;
        if (p < lexer->end && (*p == '.' || *p == 'e' || *p == 'E'))
            lex_decimal_float(lexer, token);
        else
            token->value = digits(lexer, lexer->at[0] == '0' ? 8 : 10, &count);
    }
    if (token->kind == SG_TOKEN_INTEGER && lexer->at < lexer->end && *lexer->at == 'U')
        lexer->at++;
    if (count == 0 || (lexer->at < lexer->end && is_word(*lexer->at)))
        sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, lexer->line, "bad number");
}

static void lex_dotted(struct sg_lexer *lexer, struct sg_token *token)
{
    token->kind = SG_TOKEN_DOTTED;
    lexer->at++;
    token->text.data = lexer->at;
    while (lexer->at < lexer->end) {
        if (is_word(*lexer->at))
            lexer->at++;
        else if (lexer->end - lexer->at >= 3 && lexer->at[0] == ':' && lexer->at[1] == ':' &&
                 is_word(lexer->at[2]))
            lexer->at += 2;
        else
            break;
    }
}

static int lex_punctuation(struct sg_lexer *lexer)
{
    static const char two[][3] = {"<<", ">>", "&&", "||", "==", "!=", "<=", ">="};
    if (lexer->end - lexer->at >= 2)
        for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++)
            if (lexer->at[0] == two[i][0] && lexer->at[1] == two[i][1]) {
                lexer->at += 2;
                return SG_TWO(two[i][0], two[i][1]);
            }
    if (*lexer->at == '\0' || strchr("(){}[]<>,;:+-!@|=*/&^~?%", *lexer->at) == NULL)
        sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, lexer->line, "unexpected character 0x%02x",
                (unsigned char)*lexer->at);
    return *lexer->at++;
}

struct sg_token sg_lexer_next(struct sg_lexer *lexer)
{
    skip_space(lexer);
    struct sg_token token = {.kind = SG_TOKEN_END, .line = lexer->line, .text = {lexer->at, 0}};
    if (lexer->at >= lexer->end)
        return token;
    char c = *lexer->at;
    bool percent_word = c == '%' && lexer->end - lexer->at >= 2 && is_word(lexer->at[1]);
    if (c == '%' ? percent_word : is_word_start(c)) {
        token.kind = SG_TOKEN_WORD;
        for (lexer->at++; lexer->at < lexer->end && is_word(*lexer->at); lexer->at++)
            ;
    } else if (isdigit((unsigned char)c)) {
        lex_number(lexer, &token);
    } else if (c == '.') {
        lex_dotted(lexer, &token);
    } else if (c == '"') {
        token.kind = SG_TOKEN_STRING;
        token.text.data = ++lexer->at;
        while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
            lexer->at++;
        if (lexer->at >= lexer->end || *lexer->at != '"')
            sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, token.line, "string is not closed");
        token.text.size = (uint32_t)(lexer->at++ - token.text.data);
        return token;
    } else {
        token.kind = SG_TOKEN_PUNCTUATION;
        token.punctuation = lex_punctuation(lexer);
    }
    token.text.size = (uint32_t)(lexer->at - token.text.data);
    return token;
}

void sg_lexer_skip_braces(struct sg_lexer *lexer)
{
    uint32_t depth = 0;
    do {
        skip_space(lexer);
        if (lexer->at == lexer->end)
            sg_fail(lexer->diagnostics, SG_COMPILE_INVALID_PTX, lexer->line,
                    "expected '}', found the end of the text");
        char c = *lexer->at++;
        if (c == '"') {
            const char *quote = memchr(lexer->at, '"', (size_t)(lexer->end - lexer->at));
            lexer->at = quote == NULL ? lexer->end : quote + 1;
        }
        depth += c == '{';
        depth -= c == '}';
    } while (depth > 0);
}
