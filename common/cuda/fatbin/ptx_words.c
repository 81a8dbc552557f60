/* ptx_words.c - see ptx_words.h. */
#include "common/cuda/fatbin/ptx_words.h"

#include <string.h>

bool rg_ptx_is(const struct rg_ptx_word *word, const char *text)
{
    return word->length == strlen(text) && memcmp(word->at, text, word->length) == 0;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
}

static void skip_line(struct rg_ptx_text *text)
{
    while (text->at < text->end && *text->at != '\n')
        text->at++;
}

static void skip_comment(struct rg_ptx_text *text)
{
    text->at += 2;
    while (text->end - text->at >= 2 && !(text->at[0] == '*' && text->at[1] == '/'))
        text->at++;
    text->at = text->end - text->at >= 2 ? text->at + 2 : text->end;
}

static void skip_string(struct rg_ptx_text *text)
{
    for (text->at++; text->at < text->end && *text->at != '"'; text->at++)
        if (*text->at == '\\' && text->end - text->at > 1)
            text->at++;
    if (text->at < text->end)
        text->at++;
}

bool rg_ptx_next(struct rg_ptx_text *text, struct rg_ptx_word *word)
{
    while (text->at < text->end) {
        const char c = *text->at, d = text->end - text->at > 1 ? text->at[1] : '\0';
        if (c == '/' && d == '/')
            skip_line(text);
        else if (c == '/' && d == '*')
            skip_comment(text);
        else if (c == '"')
            skip_string(text);
        else if (c == ' ' || (c >= '\t' && c <= '\r'))
            text->at++;
        else
            break;
    }
    if (text->at == text->end)
        return false;
    word->at = text->at++;
    if (in_word(*word->at))
        while (text->at < text->end && in_word(*text->at))
            text->at++;
    word->length = (size_t)(text->at - word->at);
    return true;
}

bool rg_ptx_skip_brackets(struct rg_ptx_text *text, char open, char close, const char *wanted)
{
    struct rg_ptx_word word;
    bool found = false;
    for (unsigned depth = 1; depth && rg_ptx_next(text, &word);) {
        depth += word.length == 1 && *word.at == open;
        depth -= word.length == 1 && *word.at == close;
        found |= wanted && rg_ptx_is(&word, wanted);
    }
    return found;
}

bool rg_ptx_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

uint64_t rg_ptx_dimension(struct rg_ptx_text *text)
{
    struct rg_ptx_word word, close;
    uint64_t count = 0;
    if (!rg_ptx_next(text, &word) || rg_ptx_is(&word, "]") || !rg_ptx_next(text, &close))
        return RG_PTX_UNSIZED;
    if (!rg_ptx_is(&close, "]")) { /* an expression */
        rg_ptx_skip_brackets(text, '[', ']', NULL);
        return RG_PTX_UNSIZED;
    }
    if (word.length > 1 && *word.at == '0') /* not decimal */
        return RG_PTX_UNSIZED;
    for (size_t i = 0; i < word.length; i++) {
        if (!rg_ptx_is_digit(word.at[i]) || __builtin_mul_overflow(count, 10u, &count) ||
            __builtin_add_overflow(count, (unsigned)(word.at[i] - '0'), &count))
            return RG_PTX_UNSIZED;
    }
    return count;
}

uint64_t rg_ptx_width(const struct rg_ptx_word *type)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {{".b8", 1},  {".u8", 1},   {".s8", 1},  {".b16", 2}, {".u16", 2},   {".s16", 2},
                 {".f16", 2}, {".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4},   {".f32", 4},
                 {".b64", 8}, {".u64", 8},  {".s64", 8}, {".f64", 8}, {".f16x2", 4}, {".b128", 16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (rg_ptx_is(type, types[i].name))
            return types[i].bytes;
    return 0;
}
