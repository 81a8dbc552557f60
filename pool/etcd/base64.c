/* base64.c - see base64.h. */
#include "pool/etcd/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *rg_base64_encode(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    char *out = malloc((size + 2) / 3 * 4 + 1), *at = out;
    for (size_t i = 0; out && i < size; i += 3) {
        const size_t left = size - i;
        const uint32_t three = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)bytes[i + 2] : 0);
        *at++ = letters[three >> 18 & 63];
        *at++ = letters[three >> 12 & 63];
        *at++ = '=';
        *at++ = '=';
        if (left > 1)
            at[-2] = letters[three >> 6 & 63];
        if (left > 2)
            at[-1] = letters[three & 63];
    }
    if (out)
        *at = '\0';
    return out;
}

/* What a letter stands for, and one more; 0: it is none. A pool is read in thousands of values. */
static uint8_t values[256];

static __attribute__((constructor)) void fill_values(void)
{
    for (size_t i = 0; letters[i]; i++)
        values[(unsigned char)letters[i]] = (uint8_t)(i + 1);
}

char *rg_base64_decode(const char *text, size_t *size)
{
    const size_t length = strlen(text);
    char *out = length % 4 ? NULL : malloc(length / 4 * 3 + 1);
    size_t used = 0;
    for (size_t i = 0; out && i < length; i += 4) {
        uint32_t four = 0;
        unsigned padding = 0;
        for (size_t j = 0; j < 4; j++) {
            const uint32_t found = values[(unsigned char)text[i + j]];
            /* padding ends the text, and is at most two of the last four */
            if ((!found && (text[i + j] != '=' || i + 4 != length || j < 2)) || (found && padding)) {
                free(out);
                return NULL;
            }
            padding += !found;
            four = four << 6 | (found ? found - 1 : 0);
        }
        out[used++] = (char)(four >> 16);
        if (padding < 2)
            out[used++] = (char)(four >> 8);
        if (padding < 1)
            out[used++] = (char)four;
    }
    if (out)
        out[used] = '\0';
    *size = used;
    return out;
}
