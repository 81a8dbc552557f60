/* visible_devices.c - see visible_devices.h. */
#include "client/connect/visible_devices.h"

#include "common/base/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_listed(const uint32_t *list, uint32_t n, unsigned long number)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == number)
            return true;
    return false;
}

bool rg_visible_devices(uint32_t *out, size_t max, uint32_t *n)
{
    const char *at = secure_getenv("CUDA_VISIBLE_DEVICES");
    *n = 0;
    if (!at)
        return false;
    if (strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0) {
        rg_warn("CUDA_VISIBLE_DEVICES names devices by UUID, which is not supported yet: all are visible");
        return false;
    }
    while (*n < max) {
        while (isspace((unsigned char)*at))
            at++;
        if (!isdigit((unsigned char)*at))
            break;
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (number > UINT32_MAX)
            break;
        if (is_listed(out, *n, number)) { /* a device that is named twice: none at all */
            *n = 0;
            break;
        }
        out[(*n)++] = (uint32_t)number;
        at = end + strspn(end, " \t");
        if (*at++ != ',')
            break;
    }
    return true;
}
