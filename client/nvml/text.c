/*
 * text.c - what NVML says in words and numbers of its own, made from what the inventory says.
 */
#include "client/nvml/nvml.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A hexadecimal number of at most `limit`, at least one digit, nothing in front of it. */
static bool parse_part(const char **text, unsigned long limit, unsigned *out)
{
    if (!isxdigit((unsigned char)**text) || ((*text)[0] == '0' && tolower((unsigned char)(*text)[1]) == 'x'))
        return false;
    char *end;
    unsigned long value = strtoul(*text, &end, 16);
    *text = end;
    *out = (unsigned)value;
    return value <= limit;
}

bool rg_nvml_parse_address(const char *text, struct rg_nvml_address *out)
{
    struct rg_nvml_address address = {0};
    const char *first = strchr(text, ':');
    if (first && strchr(first + 1, ':') && (!parse_part(&text, UINT_MAX, &address.domain) || *text++ != ':'))
        return false;
    if (!parse_part(&text, 0xff, &address.bus) || *text++ != ':' || !parse_part(&text, 0x1f, &address.device))
        return false;
    if (*text == '.') {
        text++;
        if (!parse_part(&text, 7, &address.function))
            return false;
    }
    if (*text)
        return false;
    *out = address;
    return true;
}

enum rg_nvml_return rg_nvml_put_text(char *out, unsigned length, const char *text)
{
    if (!out)
        return RG_NVML_INVALID_ARGUMENT;
    size_t size = strlen(text) + 1;
    if (size > length)
        return RG_NVML_INSUFFICIENT_SIZE;
    memcpy(out, text, size);
    return RG_NVML_SUCCESS;
}

enum rg_nvml_brand rg_nvml_brand_of(const char *name)
{
    static const struct {
        const char *word;
        enum rg_nvml_brand brand;
    } brands[] = {
        {"GeForce", RG_NVML_BRAND_GEFORCE}, {"Quadro RTX", RG_NVML_BRAND_QUADRO_RTX},
        {"Quadro", RG_NVML_BRAND_QUADRO},   {"Tesla", RG_NVML_BRAND_TESLA},
        {"TITAN", RG_NVML_BRAND_TITAN},     {"NVIDIA RTX", RG_NVML_BRAND_NVIDIA_RTX},
        {"NVIDIA", RG_NVML_BRAND_NVIDIA},
    };
    for (size_t i = 0; i < sizeof brands / sizeof brands[0]; i++)
        if (strstr(name, brands[i].word))
            return brands[i].brand;
    return RG_NVML_BRAND_UNKNOWN;
}

unsigned rg_nvml_architecture_of(unsigned major, unsigned minor)
{
    switch (major) {
    case 3:
        return RG_NVML_KEPLER;
    case 5:
        return RG_NVML_MAXWELL;
    case 6:
        return RG_NVML_PASCAL;
    case 7:
        return minor >= 5 ? RG_NVML_TURING : RG_NVML_VOLTA;
    case 8:
        return minor == 9 ? RG_NVML_ADA : RG_NVML_AMPERE;
    case 9:
        return RG_NVML_HOPPER;
    case 10:
    case 11:
    case 12:
        return RG_NVML_BLACKWELL;
    default:
        return RG_NVML_ARCHITECTURE_UNKNOWN;
    }
}
