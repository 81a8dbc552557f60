/* crc32.h - CRC-32 as of IEEE 802.3 (zlib, PNG): tells damage of a file, not intent. */
#ifndef RG_COMMON_BASE_CRC32_H
#define RG_COMMON_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/** Goes on from `crc` (0 at the beginning) with `size` bytes. */
uint32_t rg_crc32(uint32_t crc, const void *data, size_t size);

#endif
