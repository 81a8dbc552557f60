/* topology.c - see topology.h. */
#include "softgpu/driver/core/topology.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/parse.h"

enum { NUMBER_MAX = 1023 };

static int *figure_of(struct sg_place *place, const char *key)
{
    return strcmp(key, "numa") == 0     ? &place->numa_node
           : strcmp(key, "nvlink") == 0 ? &place->nvlink
           : strcmp(key, "pcie") == 0   ? &place->pcie
                                        : NULL;
}

/* "0,0,-,1" of `key`; false: `why` says what is wrong. */
static bool read_list(struct sg_place *out, int n, const char *key, char *list, char *why, size_t why_size)
{
    char *rest = list;
    if (figure_of(out, key) == NULL) {
        rg_explain(why, why_size, "'%s' is none of numa, nvlink, pcie", key);
        return false;
    }
    for (int i = 0; i < n; i++) {
        const char *word = strsep(&rest, ",");
        int64_t number = -1;
        if (word == NULL) {
            rg_explain(why, why_size, "%s says it of %d devices, and there are %d", key, i, n);
            return false;
        }
        if (strcmp(word, "-") != 0 && rg_parse_integer(word, 0, NUMBER_MAX, &number, why, why_size) != RG_OK)
            return false;
        *figure_of(&out[i], key) = (int)number;
    }
    return true;
}

static bool read_all(struct sg_place *out, int n, char *text, char *why, size_t why_size)
{
    for (char *rest = text, *part; (part = strsep(&rest, ":")) != NULL;) {
        char *list = strchr(part, '=');
        if (list == NULL) {
            rg_explain(why, why_size, "'%s' has no '='", part);
            return false;
        }
        *list++ = '\0';
        if (!read_list(out, n, part, list, why, why_size))
            return false;
    }
    return true;
}

static void nowhere(struct sg_place *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (struct sg_place){.numa_node = -1, .nvlink = -1, .pcie = -1};
}

void sg_places(struct sg_place *out, int n)
{
    const char *text = secure_getenv("SOFTGPU_TOPOLOGY");
    char why[200] = "no memory";
    nowhere(out, n);
    if (text == NULL || *text == '\0')
        return;
    char *copy = strdup(text);
    if (copy == NULL || !read_all(out, n, copy, why, sizeof why)) {
        nowhere(out, n);
        rg_warn("SOFTGPU_TOPOLOGY: %s: nothing is known of where the devices are", why);
    }
    free(copy);
}
