/* events.c - what etcd tells of keys: lines of a watch, good ones and others, and what is not below the prefix. */
#include "pool/etcd/events.h"
#include "pool/etcd/base64.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "/remote-gpu/pools/blue/"

static char told[512];

static void put(void *data, const struct rg_etcd_pair *pair)
{
    (void)data;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s=%s@%lld;", pair->key + strlen(PREFIX),
             pair->value, (long long)pair->changed);
}

static void removed(void *data, const char *key)
{
    (void)data;
    snprintf(told + strlen(told), sizeof told - strlen(told), "-%s;", key + strlen(PREFIX));
}

static void whole(void *data, int64_t revision)
{
    (void)data;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%lld.", (long long)revision);
}

static const struct rg_etcd_watcher watcher = {.put = put, .removed = removed, .whole = whole};

static enum rg_etcd_line tell(const char *line, int64_t *revision)
{
    told[0] = '\0';
    return rg_etcd_tell_line(line, strlen(line), PREFIX, &watcher, revision);
}

/* An event of a watch about a key. */
static const char *event(const char *type, const char *key, const char *value, int revision)
{
    static char text[1024];
    char *encoded = rg_base64_encode(key, strlen(key)), *plain = rg_base64_encode(value, strlen(value));
    snprintf(text, sizeof text,
             "{\"result\":{\"events\":[{\"type\":\"%s\",\"kv\":{\"key\":\"%s\",\"value\":\"%s\",\"mod_"
             "revision\":\"%d\"}}]}}\n",
             type, encoded, plain, revision);
    free(encoded);
    free(plain);
    return text;
}

Test(etcd_events, what_is_told)
{
    int64_t revision = 3;
    cr_expect_eq(tell(event("PUT", PREFIX "leases/1", "{}", 5), &revision), RG_ETCD_LINE_TOLD);
    cr_expect_str_eq(told, "leases/1={}@5;5.");
    cr_expect_eq(tell(event("DELETE", PREFIX "leases/1", "", 6), &revision), RG_ETCD_LINE_TOLD);
    cr_expect_str_eq(told, "-leases/1;6.");
    cr_expect_eq(tell("{\"result\":{\"created\":true}}", &revision), RG_ETCD_LINE_CREATED);
    cr_expect_eq(tell("{\"result\":{\"canceled\":true}}", &revision), RG_ETCD_LINE_ENDED);
    cr_expect_eq(tell("{\"result\":{\"canceled\":true,\"compact_revision\":\"4\"}}", &revision),
                 RG_ETCD_LINE_COMPACTED);
    cr_expect_eq(tell("{\"error\":{}}", &revision), RG_ETCD_LINE_ENDED);
    cr_expect_eq(tell("<html>", &revision), RG_ETCD_LINE_ENDED);
    cr_expect_eq(revision, 6);
}

/* Those who are told look for what is behind the prefix without looking for the prefix. */
Test(etcd_events, what_was_not_asked_for_is_not_told)
{
    static const char *const keys[] = {"", "/", "/remote-gpu/pools/blue", "/remote-gpu/pools/green/leases/1",
                                       "leases/1"};
    int64_t revision = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cr_expect_eq(tell(event("PUT", keys[i], "{}", 1), &revision), RG_ETCD_LINE_TOLD);
        cr_expect_str_eq(told, "1.", "%s: %s", keys[i], told);
        (void)tell(event("DELETE", keys[i], "", 1), &revision);
        cr_expect_str_eq(told, "1.", "%s: %s", keys[i], told);
    }
    (void)tell("{\"result\":{\"events\":[{\"type\":\"DELETE\"},{\"kv\":{\"key\":7}},{},9]}}", &revision);
    cr_expect_str_eq(told, "1.");
    json_t *pairs = json_pack("[{s:s, s:s}, {s:s}]", "key", "bGVhc2VzLzE=", "value", "e30=", "key", "");
    told[0] = '\0';
    rg_etcd_tell_pairs(pairs, PREFIX, &watcher);
    cr_expect_str_eq(told, "");
    json_decref(pairs);
}
