/* uuid_text.c - see uuid_text.h. */
#include "common/base/uuid_text.h"

#include <stdio.h>

const char *rg_uuid_text(const uint8_t uuid[16], char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "GPU-");
    for (int i = 0; i < 16 && used < size; i++)
        used += (size_t)snprintf(text + used, size - used,
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    return text;
}
