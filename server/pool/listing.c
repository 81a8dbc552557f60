/*
 * listing.c - what there is in the pool, as a client may know it: servers and GPUs are everybody's to see, requests and leases their
 * owner's and the operators' alone. An answer has a limited size, so there are pages.
 */
#include "common/base/cleanup.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <stdlib.h>
#include <string.h>

#define LIST_ROOM (RG_ANSWER_SIZE_MAX - 16384) /* a member more fits behind it */
#define A_PAGE    32 /* leases; each has RG_POOL_GPUS_MAX GPUs at most, as a number */

static bool is_own(const json_t *value, const char *key, bool is_operator)
{
    return is_operator || strcmp(rg_pool_get_text(value, "user", ""), key) == 0;
}

/* A GPU with what is granted of it: to whom is told of one's own alone. */
static json_t *gpu_json(const struct rg_agent *agent, const struct rg_pool_gpu *gpu, const char *key,
                        bool is_operator)
{
    uint64_t free_bytes = gpu->memory;
    json_t *leases = json_array();
    for (uint32_t i = 0; i < gpu->n_shares; i++) {
        const struct rg_pool_share *share = &gpu->shares[i];
        const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, share->lease);
        const bool own = held && is_own(held->value, key, is_operator);
        free_bytes -= share->memory < free_bytes ? share->memory : free_bytes;
        json_array_append_new(leases,
                              json_pack("{s:s*, s:s*, s:I}", "lease", own ? share->lease : NULL, "name",
                                        held ? rg_pool_get_text(held->value, "name", "") : NULL, "memory",
                                        (json_int_t)share->memory));
    }
    json_t *out = json_pack("{s:i, s:s, s:s, s:I, s:I, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid,
                            "name", gpu->name, "memory", (json_int_t)gpu->memory, "free",
                            (json_int_t)free_bytes, "granted", leases);
    rg_pool_gpu_places(gpu, out);
    return out;
}

static json_t *member_json(const struct rg_agent *agent, const struct rg_pool_member *member, const char *key,
                           bool is_operator)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < member->n_gpus; i++)
        json_array_append_new(gpus, gpu_json(agent, member->gpus[i], key, is_operator));
    json_t *labels = json_object_get(member->value, "labels"),
           *taints = json_object_get(member->value, "taints");
    return json_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:b, s:b, s:O*, s:O*, s:o}", "id", member->id, "address",
                     member->address, "host", member->host, "cuda", member->cuda, "driver", member->driver,
                     "rdma", (int)member->rdma, "draining", (int)member->draining, "labels", labels, "taints",
                     taints, "gpus", gpus);
}

/* Those of whoever asks, one's place in the queue first. */
static json_t *requests_json(const struct rg_agent *agent, const char *key, bool is_operator)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < agent->mirror.n_requests && json_array_size(out) < 32; i++) {
        const json_t *value = agent->mirror.requests[i]->value;
        if (is_own(value, key, is_operator))
            json_array_append_new(out, json_pack("{s:i, s:s, s:I, s:I}", "place", (int)i + 1, "name",
                                                 rg_pool_get_text(value, "name", ""), "gpus",
                                                 (json_int_t)rg_pool_get_number(value, "gpus", 0), "since",
                                                 (json_int_t)rg_pool_get_number(value, "since", 0)));
    }
    return out;
}

/* When a lease ends by itself; 0: with its client. */
static uint64_t expiry(const json_t *value)
{
    return json_is_true(json_object_get(value, "kept"))
               ? rg_pool_get_number(value, "since", 0) + rg_pool_get_number(value, "seconds", 0)
               : 0;
}

static json_t *lease_json(const struct rg_pool_entry *held)
{
    const json_t *value = held->value;
    json_t *out =
        json_pack("{s:s, s:s, s:b, s:i, s:I, s:I}", "lease", held->id, "name",
                  rg_pool_get_text(value, "name", ""), "kept", json_is_true(json_object_get(value, "kept")),
                  "gpus", (int)json_array_size(json_object_get(value, "gpus")), "since",
                  (json_int_t)rg_pool_get_number(value, "since", 0), "seconds",
                  (json_int_t)rg_pool_get_number(value, "seconds", 0));
    const char *by = rg_pool_get_text(value, "by", ""), *project = rg_pool_get_text(value, "project", ""),
               *job = rg_pool_get_text(value, "job", "");
    if (out && expiry(value))
        (void)json_object_set_new(out, "expires", json_integer((json_int_t)expiry(value)));
    if (out && *by)
        (void)json_object_set_new(out, "by", json_string(by));
    if (out && *job)
        (void)json_object_set_new(out, "job", json_string(job));
    if (out && *project)
        (void)json_object_set_new(out, "project", json_string(project));
    return out;
}

static int compare_ids(const void *a, const void *b)
{
    const struct rg_pool_entry *const *one = a, *const *other = b;
    return strcmp((*one)->id, (*other)->id);
}

/* A page of leases; *next: the id behind which more are, "" if there are none. NULL: no memory. */
static json_t *leases_json(const struct rg_agent *agent, const char *key, bool is_operator, const char *after,
                           char next[RG_POOL_ID])
{
    const struct rg_pool_mirror *mirror = &agent->mirror;
    RG_CLEANUP_FREE const struct rg_pool_entry **found = calloc(mirror->n_leases + 1, sizeof *found);
    json_t *out = found ? json_array() : NULL;
    uint32_t n = 0;
    *next = '\0';
    for (uint32_t i = 0; i < mirror->n_leases && out; i++)
        if (is_own(mirror->leases[i]->value, key, is_operator) && strcmp(mirror->leases[i]->id, after) > 0)
            found[n++] = mirror->leases[i];
    if (n)
        qsort(found, n, sizeof *found, compare_ids);
    for (uint32_t i = 0; i < n && i < A_PAGE; i++)
        json_array_append_new(out, lease_json(found[i]));
    if (n > A_PAGE)
        memcpy(next, found[A_PAGE - 1]->id, RG_POOL_ID);
    return out;
}

json_t *rg_listing_leases(const struct rg_agent *agent, const char *key, bool is_operator, const char *after)
{
    char next[RG_POOL_ID];
    json_t *leases = leases_json(agent, key, is_operator, after, next);
    return json_pack("{s:s, s:o, s:s*}", "state", "leases", "leases", leases, "more_leases",
                     *next ? next : NULL);
}

json_t *rg_listing_pool(const struct rg_agent *agent, const char *key, bool is_operator, uint64_t from,
                        const char *machine)
{
    const char *why = agent->membership.why;
    if (!*why && agent->mirror.revision && !rg_scope_is_whole(agent))
        why = "what there is besides this server has not been read yet";
    const json_t *links = *machine && !from ? rg_links_of(&agent->mirror, key, machine) : NULL;
    json_t *members = json_array();
    size_t used = 0;
    uint64_t at = from;
    for (; at < agent->mirror.n_members && used < LIST_ROOM; at++) {
        const struct rg_pool_member *member = agent->mirror.members[at];
        json_t *one = member->value ? member_json(agent, member, key, is_operator) : NULL;
        RG_CLEANUP_FREE char *text = one ? json_dumps(one, JSON_COMPACT) : NULL;
        used += text ? strlen(text) : 0;
        if (one && used <= LIST_ROOM + 8192)
            json_array_append_new(members, one);
        else
            json_decref(one);
    }
    const bool more = at < agent->mirror.n_members;
    char next[RG_POOL_ID] = "";
    json_t *leases = from ? NULL : leases_json(agent, key, is_operator, "", next);
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:i, s:o*, s:o*, s:O*, s:O*, s:o*, s:s*, s:o}", "state",
                     "list", "self", agent->id, "pool", agent->settings.pool, "etcd", why, "servers", members,
                     "waiting", (int)agent->mirror.n_requests, "requests",
                     from ? NULL : requests_json(agent, key, is_operator), "history",
                     from ? NULL : rg_agent_history_json(agent), "links", json_object_get(links, "servers"),
                     "measured", json_object_get(links, "as_of"), "leases", leases, "more_leases",
                     *next ? next : NULL, "next", more ? json_integer((json_int_t)at) : json_null());
}
