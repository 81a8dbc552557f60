/* crc32.c - see crc32.h. */
#include "common/base/crc32.h"

#include <pthread.h>

static uint32_t table[256];

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        table[i] = value;
    }
}

uint32_t rg_crc32(uint32_t crc, const void *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    const unsigned char *at = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ at[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}
