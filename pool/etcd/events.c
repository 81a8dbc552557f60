/* events.c - see events.h. */
#include "pool/etcd/events.h"

#include "common/base/cleanup.h"
#include "pool/etcd/base64.h"

#include <string.h>

/* The plain text of a key; NULL: it is none that was asked for. */
static char *read_key(const json_t *pair, const char *prefix)
{
    const char *text = json_string_value(json_object_get(pair, "key"));
    size_t size = 0;
    RG_CLEANUP_FREE char *plain = rg_base64_decode(text ? text : "", &size);
    if (!plain || strncmp(plain, prefix, strlen(prefix)) != 0)
        return NULL;
    char *out = plain;
    plain = NULL;
    return out;
}

static void tell_put(const json_t *pair, const char *prefix, const struct rg_etcd_watcher *watcher)
{
    const char *value = json_string_value(json_object_get(pair, "value"));
    size_t size = 0;
    RG_CLEANUP_FREE char *key = read_key(pair, prefix);
    RG_CLEANUP_FREE char *plain = rg_base64_decode(value ? value : "", &size);
    if (!key || !plain)
        return;
    const struct rg_etcd_pair out = {.key = key,
                                     .value = plain,
                                     .created = rg_etcd_get_number(pair, "create_revision"),
                                     .changed = rg_etcd_get_number(pair, "mod_revision")};
    watcher->put(watcher->data, &out);
}

static void tell_event(const json_t *event, const char *prefix, const struct rg_etcd_watcher *watcher)
{
    const json_t *pair = json_object_get(event, "kv");
    const char *type = json_string_value(json_object_get(event, "type"));
    if (!type || strcmp(type, "DELETE") != 0) {
        tell_put(pair, prefix, watcher);
        return;
    }
    RG_CLEANUP_FREE char *key = read_key(pair, prefix);
    if (key)
        watcher->removed(watcher->data, key);
}

void rg_etcd_tell_pairs(const json_t *pairs, const char *prefix, const struct rg_etcd_watcher *watcher)
{
    const json_t *pair;
    size_t i;
    json_array_foreach(pairs, i, pair) tell_put(pair, prefix, watcher);
}

enum rg_etcd_line rg_etcd_tell_line(const char *text, size_t size, const char *prefix,
                                    const struct rg_etcd_watcher *watcher, int64_t *revision)
{
    json_t *line = json_loadb(text, size, 0, NULL);
    const json_t *result = json_object_get(line, "result"), *events = json_object_get(result, "events"),
                 *event;
    enum rg_etcd_line what = RG_ETCD_LINE_NOTHING;
    size_t i;
    if (!result || json_is_true(json_object_get(result, "canceled"))) {
        what = rg_etcd_get_number(result, "compact_revision") ? RG_ETCD_LINE_COMPACTED : RG_ETCD_LINE_ENDED;
    } else if (json_is_true(json_object_get(result, "created"))) {
        what = RG_ETCD_LINE_CREATED;
    } else if (json_array_size(events)) {
        json_array_foreach(events, i, event)
        {
            const int64_t changed = rg_etcd_get_number(json_object_get(event, "kv"), "mod_revision");
            tell_event(event, prefix, watcher);
            *revision = changed > *revision ? changed : *revision;
        }
        watcher->whole(watcher->data, *revision);
        what = RG_ETCD_LINE_TOLD;
    }
    json_decref(line);
    return what;
}
