/* hex.h - bytes as hexadecimal digits. Any thread. */
#ifndef RG_COMMON_BASE_HEX_H
#define RG_COMMON_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/** Two lower-case digits for each byte, and a NUL behind them. */
static inline void rg_hex(const uint8_t *bytes, size_t size, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}

#endif
