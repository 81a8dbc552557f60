/* bodies.c - parts of what etcd is asked, and of what it answers; see etcd.h. */
#include "common/base/cleanup.h"
#include "pool/etcd/base64.h"
#include "pool/etcd/etcd.h"

#include <stdlib.h>
#include <string.h>

json_t *rg_etcd_bytes(const char *text)
{
    RG_CLEANUP_FREE char *encoded = rg_base64_encode(text, strlen(text));
    return encoded ? json_string(encoded) : NULL;
}

json_t *rg_etcd_plain(const json_t *bytes)
{
    size_t size = 0;
    const char *text = json_string_value(bytes);
    RG_CLEANUP_FREE char *plain = rg_base64_decode(text ? text : "", &size);
    return plain ? json_string(plain) : NULL;
}

json_t *rg_etcd_number(int64_t number)
{
    return json_sprintf("%lld", (long long)number);
}

json_t *rg_etcd_prefix_end(const char *prefix)
{
    RG_CLEANUP_FREE char *end = strdup(prefix);
    if (!end || !*end)
        return NULL;
    end[strlen(end) - 1]++; /* prefixes end with '/', whose successor is '0' */
    return rg_etcd_bytes(end);
}

int64_t rg_etcd_get_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text ? strtoll(text, NULL, 10) : (int64_t)json_integer_value(value);
}
