/* printable.c - see printable.h. */
#include "common/base/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t rg_printable_character(const unsigned char *text, size_t size)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f ? 1 : 0;
    size_t length = first >= 0xf0 && first <= 0xf4 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
    if (first > 0xf4 || length == 0 || length > size)
        return 0;
    uint32_t code = first & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    /* C1 controls, and those that reorder the text around them */
    if (code < 0xa0 || (code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
        (code >= 0x2066 && code <= 0x2069))
        return 0;
    return length;
}

static void clean(char *text, size_t left, bool lines)
{
    while (left) {
        size_t length = rg_printable_character((const unsigned char *)text, left);
        if (!length) {
            if (!lines || (*text != '\n' && *text != '\t'))
                *text = '?';
            length = 1;
        }
        text += length;
        left -= length;
    }
}

void rg_printable_clean(char *text)
{
    clean(text, strlen(text), false);
}

void rg_printable_clean_lines(char *text, size_t size)
{
    clean(text, size, true);
}
