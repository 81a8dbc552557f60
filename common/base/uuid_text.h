/* uuid_text.h - a device's UUID in words. Any thread. */
#ifndef RG_COMMON_BASE_UUID_TEXT_H
#define RG_COMMON_BASE_UUID_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define RG_UUID_TEXT 48

/** "GPU-1b4e28ba-…". Returns `text`, which needs RG_UUID_TEXT bytes. */
const char *rg_uuid_text(const uint8_t uuid[16], char *text, size_t size);

#endif
