/*
 * rewind.c - whether etcd has the past that it had: it has not when a backup was restored, or another etcd is at its address.
 *
 * Calls on keys are answered by what is true when they are begun or later, so the revision of an answer is not lower than any that was seen
 * before its call was begun. After a restored backup it is, until as much has been written again; then the change that was told last tells:
 * another past has another value at its revision, or none.
 */
#include "pool/etcd/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void rewound(struct rg_etcd *etcd, int64_t revision)
{
    etcd->past.revision = revision;
    rg_etcd_forget_revisions(etcd);
    rg_etcd_past_fini(etcd);
    rg_etcd_watch_rewound(etcd);
}

void rg_etcd_past_answered(struct rg_etcd *etcd, const json_t *reply, int64_t before)
{
    struct rg_etcd_past *past = &etcd->past;
    const json_t *header = json_object_get(reply, "header");
    const int64_t revision = rg_etcd_get_number(header, "revision");
    const char *cluster = json_string_value(json_object_get(header, "cluster_id"));
    const bool other = cluster && past->cluster[0] && strcmp(cluster, past->cluster) != 0;
    if (cluster)
        snprintf(past->cluster, sizeof past->cluster, "%s", cluster);
    if (other || (revision && revision < before))
        rewound(etcd, revision);
    else if (before)
        rg_etcd_past_told(etcd, revision);
}

void rg_etcd_past_told(struct rg_etcd *etcd, int64_t revision)
{
    etcd->past.revision = revision > etcd->past.revision ? revision : etcd->past.revision;
}

void rg_etcd_past_put(struct rg_etcd *etcd, const struct rg_etcd_pair *pair)
{
    struct rg_etcd_past *past = &etcd->past;
    if (pair->changed <= past->changed)
        return;
    rg_etcd_past_fini(etcd);
    past->key = strdup(pair->key);
    past->value = strdup(pair->value);
    past->changed = pair->changed;
    if (!past->key || !past->value)
        rg_etcd_past_fini(etcd);
}

json_t *rg_etcd_past_question(const struct rg_etcd *etcd, int64_t revision)
{
    const struct rg_etcd_past *past = &etcd->past;
    return past->key && past->changed == revision ? json_pack("{s:o, s:o}", "key", rg_etcd_bytes(past->key),
                                                              "revision", rg_etcd_number(revision))
                                                  : NULL;
}

bool rg_etcd_past_is_there(const struct rg_etcd *etcd, const json_t *reply)
{
    const struct rg_etcd_past *past = &etcd->past;
    const json_t *pair = json_array_get(json_object_get(reply, "kvs"), 0);
    json_t *plain = pair ? rg_etcd_plain(json_object_get(pair, "value")) : NULL;
    const char *text = json_string_value(plain);
    const bool same = text && past->value && strcmp(text, past->value) == 0 &&
                      rg_etcd_get_number(pair, "mod_revision") == past->changed;
    json_decref(plain);
    return same;
}

void rg_etcd_past_fini(struct rg_etcd *etcd)
{
    free(etcd->past.key);
    free(etcd->past.value);
    etcd->past.key = etcd->past.value = NULL;
    etcd->past.changed = 0;
}

struct rg_etcd_seen rg_etcd_get_seen(const struct rg_etcd *etcd)
{
    struct rg_etcd_seen seen = {.revision = etcd->past.revision};
    memcpy(seen.cluster, etcd->past.cluster, sizeof seen.cluster);
    return seen;
}

void rg_etcd_set_seen(struct rg_etcd *etcd, const struct rg_etcd_seen *seen)
{
    etcd->past.revision = seen->revision;
    snprintf(etcd->past.cluster, sizeof etcd->past.cluster, "%.*s", (int)sizeof seen->cluster - 1,
             seen->cluster);
}
