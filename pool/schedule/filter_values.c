/* filter_values.c - values of filters: versions, numbers, patterns, and whether a server or GPU satisfies one. */
#include "common/base/parse.h"
#include "common/base/uuid_text.h"
#include "pool/schedule.h"
#include "pool/schedule/filter_internal.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

bool rg_pool_version_parse(const char *text, uint32_t version[RG_POOL_VERSION_PARTS])
{
    memset(version, 0, RG_POOL_VERSION_PARTS * sizeof *version);
    for (unsigned part = 0; part < RG_POOL_VERSION_PARTS; part++) {
        if (!isdigit((unsigned char)*text))
            return false;
        uint64_t number = 0;
        for (; isdigit((unsigned char)*text); text++) {
            number = number * 10 + (uint64_t)(*text - '0');
            if (number > UINT32_MAX)
                return false;
        }
        version[part] = (uint32_t)number;
        if (!*text)
            return true;
        if (*text++ != '.')
            return false;
    }
    return false;
}

bool rg_pool_decimal_parse(const char *text, double *out)
{
    if (!isdigit((unsigned char)text[0]) && !(text[0] == '-' && isdigit((unsigned char)text[1])))
        return false;
    char *end;
    const double number = rg_parse_double(text, &end);
    if (*end || !isfinite(number))
        return false;
    *out = number;
    return true;
}

bool rg_pool_text_matches(const char *pattern, const char *text)
{
    /* On a mismatch the last * takes a character more; an earlier one never has to. */
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (tolower((unsigned char)*pattern) == tolower((unsigned char)*text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

const char *rg_pool_uuid_bare(const char *uuid)
{
    return rg_uuid_bare(uuid);
}

bool rg_pool_is_instance(const struct rg_pool_device *device)
{
    return device->uuid && strncasecmp(device->uuid, "MIG-", RG_UUID_PREFIX) == 0;
}

int rg_pool_versions_compare(const uint32_t *a, const uint32_t *b)
{
    for (unsigned i = 0; i < RG_POOL_VERSION_PARTS; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

bool rg_pool_operator_holds(enum rg_pool_filter_operator op, int order)
{
    switch (op) {
    case RG_POOL_EQUAL:
        return order == 0;
    case RG_POOL_UNEQUAL:
        return order != 0;
    case RG_POOL_LESS:
        return order < 0;
    case RG_POOL_AT_MOST:
        return order <= 0;
    case RG_POOL_MORE:
        return order > 0;
    case RG_POOL_AT_LEAST:
        return order >= 0;
    }
    return false;
}

bool rg_pool_filter_of_server(const struct rg_pool_filter *filter)
{
    return filter->key < RG_POOL_DEVICE_INDEX || filter->key == RG_POOL_LABEL;
}

static bool text_holds(const struct rg_pool_filter *filter, const char *pattern, const char *text)
{
    return (text && rg_pool_text_matches(pattern, text)) == (filter->op == RG_POOL_EQUAL);
}

static bool version_holds(const struct rg_pool_filter *filter, const char *text)
{
    uint32_t version[RG_POOL_VERSION_PARTS];
    if (!text || !rg_pool_version_parse(text, version))
        return filter->op == RG_POOL_UNEQUAL;
    return rg_pool_operator_holds(filter->op, rg_pool_versions_compare(version, filter->version));
}

static bool number_holds(const struct rg_pool_filter *filter, uint64_t number)
{
    return rg_pool_operator_holds(filter->op, (number > filter->number) - (number < filter->number));
}

static bool label_holds(const struct rg_pool_filter *filter, const struct rg_pool_server *server)
{
    const char *value = NULL;
    for (uint32_t i = 0; i < server->n_labels && !value; i++)
        if (strcmp(server->labels[i].key, filter->label) == 0)
            value = server->labels[i].value ? server->labels[i].value : "";
    if (filter->op == RG_POOL_EQUAL || filter->op == RG_POOL_UNEQUAL)
        return text_holds(filter, filter->value, value);
    double number;
    return value && rg_pool_decimal_parse(value, &number) &&
           rg_pool_operator_holds(filter->op, (number > filter->decimal) - (number < filter->decimal));
}

bool rg_pool_filter_matches(const struct rg_pool_filter *filter, const struct rg_pool_server *server,
                            const struct rg_pool_device *device)
{
    switch (filter->key) {
    case RG_POOL_SERVER_ADDR:
        return text_holds(filter, filter->value, server->address);
    case RG_POOL_SERVER_HOSTNAME:
        return text_holds(filter, filter->value, server->hostname);
    case RG_POOL_SERVER_HAS_RDMA:
        return number_holds(filter, server->has_rdma);
    case RG_POOL_SERVER_CUDA_VERSION:
        return version_holds(filter, server->cuda_version);
    case RG_POOL_SERVER_DRIVER_VERSION:
        return version_holds(filter, server->driver_version);
    case RG_POOL_DEVICE_INDEX:
        return number_holds(filter, device->index);
    case RG_POOL_DEVICE_ID:
        return text_holds(filter, rg_pool_uuid_bare(filter->value),
                          device->uuid ? rg_pool_uuid_bare(device->uuid) : NULL);
    case RG_POOL_DEVICE_NAME:
        return text_holds(filter, filter->value, device->name);
    case RG_POOL_DEVICE_MEMORY:
        return number_holds(filter, device->memory);
    case RG_POOL_LABEL:
        return label_holds(filter, server);
    }
    return false;
}
