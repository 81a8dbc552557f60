/* extract.c - see extract.h. */
#include "common/cuda/fatbin/extract.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/** Decompresses into `to`, which holds exactly entry->size bytes. */
static bool decompress(const struct rg_fatbin_entry *entry, char *to)
{
    if (entry->flags & RG_FATBIN_FLAG_ZSTD) {
        size_t size = ZSTD_decompress(to, entry->size, entry->payload, entry->stored_size);
        return !ZSTD_isError(size) && size == entry->size;
    }
    int size =
        LZ4_decompress_safe((const char *)entry->payload, to, (int)entry->stored_size, (int)entry->size);
    return size >= 0 && (uint64_t)size == entry->size;
}

enum rg_fatbin_status rg_fatbin_extract(const struct rg_fatbin_entry *entry, char **out, size_t *out_size)
{
    bool compressed = entry->flags & (RG_FATBIN_FLAG_LZ4 | RG_FATBIN_FLAG_ZSTD);
    if (entry->size > RG_FATBIN_TEXT_MAX || entry->stored_size > RG_FATBIN_TEXT_MAX)
        return RG_FATBIN_LIMIT;
    char *data = malloc(entry->size + 1);
    if (!data)
        return RG_FATBIN_NO_MEMORY;
    if (!compressed) {
        memcpy(data, entry->payload, entry->size);
    } else if (!decompress(entry, data)) {
        free(data);
        return RG_FATBIN_INVALID;
    }
    data[entry->size] = '\0';
    *out = data;
    *out_size = entry->kind == RG_FATBIN_PTX ? strlen(data) : entry->size;
    return RG_FATBIN_OK;
}
