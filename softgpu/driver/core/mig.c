/* mig.c - see mig.h. */
#include "softgpu/driver/core/mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/parse.h"

enum { MEMORY_LEAST = 1 << 20, MULTIPROCESSORS_MOST = 1024 };

/* "2:1G" */
static bool read_instance(char *text, struct sg_mig_instance *out, char *why, size_t why_size)
{
    char *memory = strchr(text, ':');
    int64_t multiprocessors;
    if (memory == NULL) {
        rg_explain(why, why_size, "'%s' is not multiprocessors and memory, like 1:2G", text);
        return false;
    }
    *memory++ = '\0';
    if (rg_parse_integer(text, 1, MULTIPROCESSORS_MOST, &multiprocessors, why, why_size) != RG_OK ||
        rg_parse_size(memory, &out->memory, why, why_size) != RG_OK)
        return false;
    out->multiprocessors = (int)multiprocessors;
    out->memory &= ~4095ull;
    if (out->memory < MEMORY_LEAST)
        rg_explain(why, why_size, "an instance has at least 1M of memory, not %s", memory);
    return out->memory >= MEMORY_LEAST;
}

/* "0=1:1G,2:2G"; -1: `why` says what is wrong. */
static int read_device(char *text, int n, struct sg_mig_instance *out, int used, char *why, size_t why_size)
{
    char *list = strchr(text, '=');
    int64_t number;
    int index = 0;
    if (list == NULL) {
        rg_explain(why, why_size, "'%s' has no '='", text);
        return -1;
    }
    *list++ = '\0';
    if (rg_parse_integer(text, 0, n - 1, &number, why, why_size) != RG_OK)
        return -1;
    for (char *word; (word = strsep(&list, ",")) != NULL; used++, index++) {
        if (used == SG_DEVICES_MAX) {
            rg_explain(why, why_size, "there are more than %d instances", SG_DEVICES_MAX);
            return -1;
        }
        for (int i = 0; i < used && index == 0; i++)
            if (out[i].number == (int)number) {
                rg_explain(why, why_size, "device %d stands there twice", (int)number);
                return -1;
            }
        out[used] = (struct sg_mig_instance){.number = (int)number, .index = index};
        if (!read_instance(word, &out[used], why, why_size))
            return -1;
    }
    return used;
}

int sg_mig_instances(int n, struct sg_mig_instance out[SG_DEVICES_MAX])
{
    const char *text = secure_getenv("SOFTGPU_MIG");
    char why[200] = "no memory";
    int used = 0;
    if (text == NULL || *text == '\0')
        return 0;
    char *copy = strdup(text);
    if (copy == NULL)
        used = -1;
    for (char *rest = copy, *part; used >= 0 && (part = strsep(&rest, ";")) != NULL;)
        used = read_device(part, n, out, used, why, sizeof why);
    free(copy);
    if (used >= 0)
        return used;
    rg_warn("SOFTGPU_MIG: %s: no device is divided", why);
    return 0;
}
