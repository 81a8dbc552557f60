/* uuid_text.c - see uuid_text.h. */
#include "common/base/uuid_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *rg_uuid_text(const uint8_t uuid[16], bool mig, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, mig ? "MIG-" : "GPU-");
    for (int i = 0; i < 16 && used < size; i++)
        used += (size_t)snprintf(text + used, size - used,
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    return text;
}

const char *rg_uuid_bare(const char *text)
{
    const bool named =
        strncasecmp(text, "GPU-", RG_UUID_PREFIX) == 0 || strncasecmp(text, "MIG-", RG_UUID_PREFIX) == 0;
    return named ? text + RG_UUID_PREFIX : text;
}

bool rg_uuid_parse(const char *text, uint8_t uuid[16], bool *mig)
{
    const char *at = rg_uuid_bare(text);
    if (at == text)
        return false;
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (i == 4 || i == 6 || i == 8 || i == 10)
            if (*at++ != '-')
                return false;
        if (!isxdigit((unsigned char)at[0]) || !isxdigit((unsigned char)at[1]) ||
            sscanf(at, "%2x", &byte) != 1)
            return false;
        uuid[i] = (uint8_t)byte;
        at += 2;
    }
    *mig = strncasecmp(text, "MIG-", RG_UUID_PREFIX) == 0;
    return *at == '\0';
}
