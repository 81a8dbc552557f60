/*
 * listing.c - what there is in the pool, as a client may know it: servers and GPUs are everybody's to see, requests and leases their
 * owner's and the operators' alone.
 *
 * An answer has a limited size, so there are pages: the first has requests, as many leases as fit into LEASES_SIZE, and as many servers as
 * there is room for beside them, each with what was measured of it; then servers alone. A server whose GPUs so many leases share that it does
 * not fit even so is told with less of them (enum detail).
 */
#include "common/base/cleanup.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE     (RG_ANSWER_SIZE_MAX - 2048u) /* of what is listed, beside names and reasons */
#define LEASES_SIZE   16384u                       /* of a page of leases */
#define REQUESTS_TOLD 32u

/* Bytes that it takes in an answer. */
static size_t size_of(const json_t *value)
{
    return value ? json_dumpb(value, NULL, 0, JSON_COMPACT) + 1 : 0;
}

/* A text as far as it is shown. NULL: no memory. */
static json_t *text_json(const json_t *value, const char *name)
{
    char text[RG_CONTROL_TEXT];
    snprintf(text, sizeof text, "%s", rg_json_get_text(value, name));
    rg_printable_clean(text); /* which may have been cut within a character */
    return json_string(text);
}

static bool is_own(const json_t *value, const char *key, bool is_operator)
{
    return is_operator || strcmp(rg_json_get_text(value, "user"), key) == 0;
}

/* Who a list is for. */
struct reader {
    const struct rg_agent *agent;
    const char *key;
    bool is_operator;
};

/* What is told of the leases that have parts of a GPU: whose they are, which they are, or how much they have together. */
enum detail { NAMES, IDS, SUMS };

/* A lease's part of a GPU: which lease that is, is told of one's own alone. */
static json_t *share_json(const struct reader *reader, const struct rg_pool_share *share, enum detail detail)
{
    const struct rg_pool_entry *held = rg_pool_mirror_lease(&reader->agent->mirror, share->lease);
    const bool own = held && is_own(held->value, reader->key, reader->is_operator);
    return json_pack("{s:s*, s:o*, s:I, s:s*}", "lease", own ? share->lease : NULL, "name",
                     held && detail == NAMES ? text_json(held->value, "name") : NULL, "memory",
                     (json_int_t)share->memory, "state",
                     share->state ? rg_pool_share_state_name(share->state) : NULL);
}

/* A GPU with what is granted of it. */
static json_t *gpu_json(const struct reader *reader, const struct rg_pool_gpu *gpu, enum detail detail)
{
    const uint64_t held = rg_pool_gpu_held(gpu), free_bytes = held < gpu->memory ? gpu->memory - held : 0;
    json_t *leases = json_array();
    for (uint32_t i = 0; i < gpu->n_shares && detail != SUMS; i++)
        json_array_append_new(leases, share_json(reader, &gpu->shares[i], detail));
    if (detail == SUMS && gpu->n_shares)
        json_array_append_new(leases, json_pack("{s:I}", "memory", (json_int_t)(gpu->memory - free_bytes)));
    json_t *out = json_pack("{s:i, s:s, s:s, s:I, s:I, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid,
                            "name", gpu->name, "memory", (json_int_t)gpu->memory, "free",
                            (json_int_t)free_bytes, "granted", leases);
    rg_pool_gpu_places(gpu, out);
    return out;
}

static json_t *member_json(const struct reader *reader, const struct rg_pool_member *member,
                           enum detail detail)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < member->n_gpus; i++)
        json_array_append_new(gpus, gpu_json(reader, member->gpus[i], detail));
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
    for (uint32_t i = 0; i < agent->mirror.n_requests && json_array_size(out) < REQUESTS_TOLD; i++) {
        const json_t *value = agent->mirror.requests[i]->value;
        if (is_own(value, key, is_operator))
            json_array_append_new(out, json_pack("{s:i, s:o, s:I, s:I}", "place", (int)i + 1, "name",
                                                 text_json(value, "name"), "gpus",
                                                 (json_int_t)rg_json_get_number(value, "gpus", 0), "since",
                                                 (json_int_t)rg_json_get_number(value, "since", 0)));
    }
    return out;
}

/* When a lease ends by itself; 0: with its client. */
static uint64_t expiry(const json_t *value)
{
    return json_is_true(json_object_get(value, "kept"))
               ? rg_json_get_number(value, "since", 0) + rg_json_get_number(value, "seconds", 0)
               : 0;
}

/* `whole`: all of the pool is known. */
static json_t *lease_json(const struct rg_agent *agent, const struct rg_pool_entry *held, bool whole)
{
    static const char *const texts[] = {"by", "job", "project", "priority"};
    const json_t *value = held->value;
    json_t *out = json_pack("{s:s, s:o, s:b, s:i, s:I, s:I}", "lease", held->id, "name",
                            text_json(value, "name"), "kept", json_is_true(json_object_get(value, "kept")),
                            "gpus", (int)json_array_size(json_object_get(value, "gpus")), "since",
                            (json_int_t)rg_json_get_number(value, "since", 0), "seconds",
                            (json_int_t)rg_json_get_number(value, "seconds", 0));
    if (out && expiry(value))
        (void)json_object_set_new(out, "expires", json_integer((json_int_t)expiry(value)));
    uint64_t memory;
    const size_t gone =
        json_array_size(json_object_get(value, "gpus")) - rg_leases_there(agent, value, &memory);
    const enum rg_pool_share_state state = rg_preemption_state(agent, held->id, value);
    if (out && state)
        (void)json_object_set_new(out, "state", json_string(rg_pool_share_state_name(state)));
    if (out && gone && whole)
        (void)json_object_set_new(out, "gone", json_integer((json_int_t)gone));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && out; i++)
        if (*rg_json_get_text(value, texts[i]))
            (void)json_object_set_new(out, texts[i], text_json(value, texts[i]));
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
    uint32_t told = 0;
    for (size_t used = 0; told < n && used < LEASES_SIZE; told++) {
        json_t *one = lease_json(agent, found[told], rg_scope_is_whole(agent));
        used += size_of(one);
        json_array_append_new(out, one);
    }
    if (told && told < n)
        memcpy(next, found[told - 1]->id, RG_POOL_ID);
    return out;
}

json_t *rg_listing_leases(const struct rg_agent *agent, const char *key, bool is_operator, const char *after)
{
    char next[RG_POOL_ID];
    json_t *leases = leases_json(agent, key, is_operator, after, next);
    return json_pack("{s:s, s:o, s:s*}", "state", "leases", "leases", leases, "more_leases",
                     *next ? next : NULL);
}

/* A page of servers that is being made. */
struct page {
    json_t *members;
    json_t *links; /* what was measured of each, by address; NULL: nothing of any is known */
    size_t used;
};

/* False: it has no room on this page. One that has none on any, as no server of ours says so much of itself, is left out. */
static bool add_member(struct page *page, const struct reader *reader, const struct rg_pool_member *member,
                       const json_t *measured)
{
    json_t *figures = member->address ? json_object_get(measured, member->address) : NULL;
    const size_t link = figures ? strlen(member->address) + 2 * size_of(figures) : 0;
    const bool first = json_array_size(page->members) == 0;
    json_t *one;
    size_t size;
    for (enum detail detail = NAMES;; detail++) {
        one = member_json(reader, member, detail);
        size = size_of(one) + link;
        if (page->used + size <= PAGE_SIZE)
            break;
        json_decref(one);
        if (!first || detail == SUMS)
            return first;
    }
    page->used += size;
    json_array_append_new(page->members, one);
    if (figures)
        (void)json_object_set(page->links, member->address, figures);
    return true;
}

/* What is not told: that the server may know less than there is. */
static const char *what_is_wrong(const struct rg_agent *agent)
{
    if (!agent->membership.why[0] && agent->mirror.revision && !rg_scope_is_whole(agent))
        return "what there is besides this server has not been read yet";
    return agent->membership.why;
}

json_t *rg_listing_pool(const struct rg_agent *agent, const char *key, bool is_operator, uint64_t from,
                        const char *machine)
{
    const struct reader reader = {agent, key, is_operator};
    const json_t *links = *machine ? rg_links_of(&agent->mirror, key, machine) : NULL;
    char next[RG_POOL_ID] = "";
    json_t *leases = from ? NULL : leases_json(agent, key, is_operator, "", next),
           *requests = from ? NULL : requests_json(agent, key, is_operator),
           *history = from ? NULL : rg_agent_history_json(agent);
    struct page page = {.members = json_array(),
                        .links = links ? json_object() : NULL,
                        .used = size_of(leases) + size_of(requests) + size_of(history)};
    uint64_t at = from;
    while (at < agent->mirror.n_members &&
           (!agent->mirror.members[at]->value ||
            add_member(&page, &reader, agent->mirror.members[at], json_object_get(links, "servers"))))
        at++;
    const bool more = at < agent->mirror.n_members;
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:i, s:o*, s:o*, s:o*, s:O*, s:o*, s:s*, s:o}", "state",
                     "list", "self", agent->id, "pool", agent->settings.pool, "etcd", what_is_wrong(agent),
                     "servers", page.members, "waiting", (int)agent->mirror.n_requests, "requests", requests,
                     "history", history, "links", page.links, "measured", json_object_get(links, "as_of"),
                     "leases", leases, "more_leases", *next ? next : NULL, "next",
                     more ? json_integer((json_int_t)at) : json_null());
}
