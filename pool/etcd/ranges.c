/* ranges.c - see ranges.h. */
#include "pool/etcd/ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *rg_etcd_keys_json(const struct rg_etcd_keys *range)
{
    return range->end ? json_pack("{s:o, s:o}", "key", rg_etcd_bytes(range->first), "range_end",
                                  rg_etcd_bytes(range->end))
                      : json_pack("{s:o}", "key", rg_etcd_bytes(range->first));
}

void rg_etcd_keys_free(struct rg_etcd_keys *ranges, uint32_t n)
{
    for (uint32_t i = 0; i < n && ranges; i++) {
        free(ranges[i].first);
        free(ranges[i].end);
    }
    free(ranges);
}

/* A prefix and what comes behind it; NULL: no memory. */
static char *join(const char *prefix, const char *text)
{
    const size_t size = strlen(prefix) + strlen(text) + 1;
    char *out = malloc(size);
    if (out)
        snprintf(out, size, "%s%s", prefix, text);
    return out;
}

/* All below a prefix ends before its successor: prefixes end with '/', whose successor is '0'. */
static bool copy_ranges(struct rg_etcd_keys *out, const char *prefix, const struct rg_etcd_range *ranges,
                        uint32_t n)
{
    bool good = true;
    for (uint32_t i = 0; i < n && good; i++) {
        out[i].first = join(prefix, ranges[i].first);
        out[i].end = ranges[i].end ? join(prefix, ranges[i].end) : NULL;
        good = out[i].first && (out[i].end || !ranges[i].end);
    }
    if (n > 0)
        return good;
    out->first = join(prefix, "");
    if ((out->end = join(prefix, "")) != NULL && *out->end)
        out->end[strlen(out->end) - 1]++;
    return out->first && out->end;
}

struct rg_etcd_keys *rg_etcd_keys_new(const char *prefix, const struct rg_etcd_range *ranges, uint32_t n)
{
    const uint32_t wanted = n ? n : 1;
    struct rg_etcd_keys *keys = calloc(wanted, sizeof *keys);
    if (keys && copy_ranges(keys, prefix, ranges, n))
        return keys;
    rg_etcd_keys_free(keys, wanted);
    return NULL;
}
