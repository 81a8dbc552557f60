/* uuid_text.h - a device's UUID in words. Any thread. */
#ifndef RG_COMMON_BASE_UUID_TEXT_H
#define RG_COMMON_BASE_UUID_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_UUID_TEXT   48
#define RG_UUID_PREFIX 4 /* the length of "GPU-" and "MIG-" */

/** "GPU-1b4e28ba-…"; "MIG-…" of an instance of a GPU that MIG has divided. Returns `text`, which needs RG_UUID_TEXT bytes. */
const char *rg_uuid_text(const uint8_t uuid[16], bool mig, char *text, size_t size);
/** The same text the other way. False: it is none. */
bool rg_uuid_parse(const char *text, uint8_t uuid[16], bool *mig);
/** What follows "GPU-" or "MIG-", in letters of either case; the text itself where it does not begin so. */
const char *rg_uuid_bare(const char *text);

#endif
