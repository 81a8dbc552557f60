/* fields.c - see fields.h. */
#include "server/identity/fields.h"

#include "common/base/hex.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- lines -------------------------------------------------------------------------------------------------------------- */

static void split(struct rg_fields *fields, char *line)
{
    char *rest = NULL;
    fields->n = 0;
    for (char *word = strtok_r(line, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (fields->n < RG_FIELD_WORDS)
            fields->words[fields->n] = word;
        fields->n++;
    }
}

bool rg_fields_next(struct rg_fields *fields)
{
    while (*fields->at) {
        char *line = fields->at;
        char *end = strchr(line, '\n');
        fields->at = end ? end + 1 : line + strlen(line);
        if (end)
            *end = 0;
        fields->line++;
        split(fields, line);
        if (fields->n && fields->words[0][0] != '#')
            return true;
    }
    return false;
}

bool rg_fields_is(const struct rg_fields *fields, const char *key, size_t n)
{
    return fields->n == n && strcmp(fields->words[0], key) == 0;
}

enum rg_status rg_fields_bad(const struct rg_fields *fields, char *why, size_t why_size)
{
    return RG_FAILED(
        RG_ERR_INVALID, why, why_size,
        "%s, line %u: not understood; a newer version has written it, or it is damaged (restore it "
        "from a backup)",
        fields->file, fields->line);
}

bool rg_field_number(const char *word, uint64_t max, uint64_t *out)
{
    if (!isdigit((unsigned char)word[0]))
        return false;
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(word, &end, 10);
    if (errno || *end || number > max)
        return false;
    *out = number;
    return true;
}

bool rg_field_time(const char *word, int64_t *out)
{
    uint64_t number;
    if (!rg_field_number(word, INT64_MAX, &number))
        return false;
    *out = (int64_t)number;
    return true;
}

/* --- serials ------------------------------------------------------------------------------------------------------------ */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rg_serial_parse(const char *text, uint8_t serial[RG_IDENTITY_SERIAL], uint8_t *size)
{
    uint8_t n = 0;
    for (const char *at = text; *at;) {
        const int high = digit(at[0]), low = high < 0 ? -1 : digit(at[1]);
        if (low < 0)
            return false;
        if (n || high || low) {
            if (n == RG_IDENTITY_SERIAL)
                return false;
            serial[n++] = (uint8_t)(high << 4 | low);
        }
        at += 2;
        if (*at == ':' && at[1])
            at++;
    }
    *size = n;
    return n > 0;
}

void rg_serial_text(const uint8_t *serial, size_t size, char text[2 * RG_IDENTITY_SERIAL + 1])
{
    rg_hex(serial, size < RG_IDENTITY_SERIAL ? size : RG_IDENTITY_SERIAL, text);
}

bool rg_serial_equal(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    for (; a_size && *a == 0; a_size--)
        a++;
    for (; b_size && *b == 0; b_size--)
        b++;
    return a_size && a_size == b_size && memcmp(a, b, a_size) == 0;
}

/* --- text that grows ---------------------------------------------------------------------------------------------------- */

void rg_text_add(struct rg_text *text, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (text->failed || size < 0 || size >= (int)sizeof line) {
        text->failed = true;
        return;
    }
    if (text->room - text->size < (size_t)size + 1) {
        const size_t room = 2 * text->room + sizeof line;
        char *data = realloc(text->data, room);
        if (!data) {
            text->failed = true;
            return;
        }
        text->data = data;
        text->room = room;
    }
    memcpy(text->data + text->size, line, (size_t)size + 1);
    text->size += (size_t)size;
}

void rg_text_fini(struct rg_text *text)
{
    free(text->data);
    *text = (struct rg_text){0};
}
