/* json_text.c - see json_text.h. */
#include "client/profile/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `size` more bytes and a NUL. */
static char *room(struct rg_json_text *text, size_t size)
{
    if (text->failed)
        return NULL;
    if (text->capacity - text->used <= size) {
        size_t capacity = text->capacity * 2 + size + 4096;
        char *bigger = realloc(text->data, capacity);
        if (!bigger) {
            text->failed = true;
            return NULL;
        }
        text->data = bigger;
        text->capacity = capacity;
    }
    return text->data + text->used;
}

static void put(struct rg_json_text *text, const char *bytes, size_t size)
{
    char *at = room(text, size);
    if (!at)
        return;
    memcpy(at, bytes, size);
    at[size] = 0;
    text->used += size;
}

void rg_json_text_put(struct rg_json_text *text, const char *words)
{
    put(text, words, strlen(words));
}

void rg_json_text_format(struct rg_json_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int size = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *at = size < 0 ? NULL : room(text, (size_t)size);
    if (!at)
        return;
    va_start(list, format);
    vsnprintf(at, (size_t)size + 1, format, list);
    va_end(list);
    text->used += (size_t)size;
}

void rg_json_text_number(struct rg_json_text *text, uint64_t number)
{
    char digits[20];
    size_t n = sizeof digits;
    do
        digits[--n] = (char)('0' + number % 10);
    while (number /= 10);
    put(text, digits + n, sizeof digits - n);
}

void rg_json_text_us(struct rg_json_text *text, uint64_t ns)
{
    const unsigned rest = (unsigned)(ns % 1000);
    const char decimals[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                              (char)('0' + rest % 10)};
    rg_json_text_number(text, ns / 1000);
    put(text, decimals, sizeof decimals);
}

/* Bytes of the UTF-8 character at `at`, 0 if it is none. */
static size_t character(const char *at)
{
    const unsigned char *c = (const unsigned char *)at;
    const size_t size = c[0] < 0x80                   ? 1
                        : c[0] >= 0xc2 && c[0] < 0xe0 ? 2
                        : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                        : c[0] >= 0xf0 && c[0] < 0xf5 ? 4
                                                      : 0;
    for (size_t i = 1; i < size; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    const bool surrogate_or_long = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) ||
                                   (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90);
    return surrogate_or_long ? 0 : size;
}

void rg_json_text_string(struct rg_json_text *text, const char *string)
{
    put(text, "\"", 1);
    while (*string) {
        const size_t size = character(string);
        if (*string == '"' || *string == '\\') {
            put(text, "\\", 1);
            put(text, string, 1);
        } else if ((unsigned char)*string < 0x20) {
            rg_json_text_format(text, "\\u%04x", *string);
        } else if (size) {
            put(text, string, size);
        } else {
            put(text, "?", 1);
        }
        string += size ? size : 1;
    }
    put(text, "\"", 1);
}
