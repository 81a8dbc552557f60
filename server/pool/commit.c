/*
 * commit.c - one decision of the scheduling policy carried out: the transaction by which a client gets its GPUs.
 *
 * Happy path: rg_commit_grant compares the revisions of the GPUs, of their servers and of the request, writes the GPUs with the new lease
 * and the lease, and removes the request; rg_commit_finish tells the client, which holds the lease from then on. Whoever comes second
 * with a GPU fails the comparison, changes nothing, and decides anew once the watch has brought what it did not know. A lease that is
 * kept has a time of its own, which is asked for first. A transaction that was not answered may have succeeded, and grants.c finds out.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS 200000000ull

void rg_commit_finish(struct rg_agent_ask *ask, const json_t *value)
{
    struct rg_agent *agent = ask->agent;
    const bool kept = json_is_true(json_object_get(value, "kept"));
    const size_t n = json_array_size(json_object_get(value, "gpus"));
    if (ask->keeps && !kept) {
        rg_keeping_begin(ask, value);
        return;
    }
    json_t *answer = kept ? rg_leases_granted(ask->lease, value) : rg_hold_granted(ask, value);
    if (strtoll(rg_json_get_text(value, "etcd_lease"), NULL, 10) != ask->etcd_lease)
        rg_agent_revoke(agent, ask->etcd_lease); /* the lease was there already, by the same id */
    ask->etcd_lease = 0;                         /* the lease's from now on */
    rg_info("%s gets %zu GPU%s of the pool: lease %s%s%s", ask->owner_name[0] ? ask->owner_name : "somebody",
            n, n == 1 ? "" : "s", ask->lease, strcmp(ask->owner, ask->key) == 0 ? "" : ", asked for by ",
            strcmp(ask->owner, ask->key) == 0 ? "" : ask->name);
    const bool told = rg_ask_tell(ask, answer);
    json_decref(answer);
    if (!told && !ask->chosen) /* by an id of its choice it comes back to it */
        rg_ask_undo_lease(ask);
    if (!told || kept)
        rg_ask_end(ask);
    else
        ask->state = RG_ASK_HOLDING;
}

/* Nothing was granted, or it is not known: it is decided again; what is not known, in the queue. */
static void try_again(struct rg_agent_ask *ask, enum rg_status status, int64_t revision, const char *why)
{
    struct rg_agent *agent = ask->agent;
    agent->look_ns = rg_now_ns() + AGAIN_NS; /* or as soon as the watch brings something */
    rg_debug("request %s: not granted yet: %s", ask->id, status == RG_OK ? "the pool has changed" : why);
    ask->state = RG_ASK_WAITING;
    if (status == RG_OK || status == RG_ERR_NOT_FOUND) { /* its time may be over before its turn comes */
        rg_agent_revoke(agent, ask->etcd_lease);
        ask->etcd_lease = 0;
        ask->unsure = ask->handed;
    } else {
        ask->unsure = true;
    }
    const bool queues = ask->at_once;
    ask->at_once = false;
    if (ask->socket < 0)
        rg_ask_leave(ask);
    else if (queues && status == RG_OK)
        rg_ask_again(ask, revision);
    else if (queues)
        rg_ask_queue(ask);
}

/* What was carried out for a server at rest: the watch tells it, or brings the request to the next decision. */
static void granted_to_another(struct rg_agent_ask *ask, bool good, const char *why)
{
    if (good)
        rg_debug("request %s: granted for server %s", ask->id,
                 rg_json_get_text(ask->request, "holder_server"));
    else
        rg_debug("request %s of another server: not granted yet: %s", ask->id,
                 *why ? why : "the pool has changed");
    if (!good)
        ask->agent->look_ns = rg_now_ns() + AGAIN_NS;
    rg_ask_end(ask);
}

static void granted(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    const bool good = status == RG_OK && json_is_true(json_object_get(reply, "succeeded"));
    agent->granting--;
    const json_t *kvs = json_object_get(
        json_object_get(json_array_get(json_object_get(reply, "responses"), 0), "response_range"), "kvs");
    if (good) {
        const int64_t revision = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        agent->granted = revision > agent->granted ? revision : agent->granted;
        ask->changed = revision;
    }
    if (ask->stands_in) {
        granted_to_another(ask, good, why);
        return;
    }
    if (good) {
        rg_commit_finish(ask, ask->grant);
        return;
    }
    /* a try whose answer was lost may have done it: then the lease is there */
    json_t *there = status == RG_OK ? rg_agent_value(kvs, &ask->changed) : NULL;
    if (there && (!ask->chosen || rg_wish_is_same(there, ask->request)))
        rg_commit_finish(ask, there);
    else
        try_again(ask, status, rg_etcd_get_number(json_object_get(reply, "header"), "revision"), why);
    json_decref(there);
}

/* The GPUs as the client is told of them, and as the lease has them: in the order of the servers' GPUs. */
static json_t *gpus_json(const struct rg_picture *picture, const struct rg_pool_part *parts, uint32_t n)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < n; i++) {
        const struct rg_pool_member *member = picture->members[picture->devices[parts[i].device].server];
        const struct rg_pool_gpu *gpu = picture->gpus[parts[i].device];
        json_array_append_new(gpus, json_pack("{s:s, s:s*, s:i, s:s, s:I}", "server", member->id, "address",
                                              member->address, "index", (int)gpu->index, "uuid", gpu->uuid,
                                              "memory", (json_int_t)parts[i].memory));
    }
    return gpus;
}

static json_t *lease_json(const struct rg_agent_ask *ask, json_t *gpus, uint64_t memory)
{
    json_t *value = json_copy(ask->request);
    const char *holder = json_string_value(json_object_get(value, "agent"));
    json_object_del(value, "filters");
    json_object_del(value, "devices");
    if (ask->etcd_lease)
        (void)json_object_set_new(value, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    (void)json_object_set_new(value, "holder", json_string(holder ? holder : ask->agent->run));
    if (!ask->stands_in) /* else its request says where it is held */
        (void)json_object_set_new(value, "holder_server", json_string(ask->agent->id));
    if (*ask->hold)
        (void)json_object_set_new(value, "hold", json_string(ask->hold));
    (void)json_object_set_new(value, "memory", json_integer((json_int_t)memory));
    (void)json_object_set_new(value, "since", json_integer((json_int_t)rg_agent_time(ask->agent)));
    (void)json_object_set_new(value, "gpus", gpus);
    return value;
}

/* Each GPU with its new part, and the server that it is on as it was. */
static void add_gpus(const struct rg_agent *agent, const struct rg_picture *picture, const char *lease,
                     const struct rg_pool_part *parts, uint32_t n, json_t *compare, json_t *changes)
{
    const struct rg_pool_member *last = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct rg_pool_member *member = picture->members[picture->devices[parts[i].device].server];
        struct rg_pool_gpu gpu = *picture->gpus[parts[i].device];
        if (member != last) {
            json_array_append_new(
                compare, rg_agent_compare(member->changed, rg_agent_key(agent, "servers/%s", member->id)));
            last = member;
        }
        json_array_append_new(compare, rg_agent_compare(gpu.changed, rg_agent_key(agent, "servers/%s/gpus/%u",
                                                                                  member->id, gpu.index)));
        if (gpu.n_shares < RG_POOL_SHARES_MAX) {
            struct rg_pool_share *share = &gpu.shares[gpu.n_shares++];
            snprintf(share->lease, sizeof share->lease, "%s", lease);
            share->memory = parts[i].memory;
        }
        json_array_append_new(changes,
                              rg_agent_put(rg_agent_key(agent, "servers/%s/gpus/%u", member->id, gpu.index),
                                           rg_pool_gpu_json(&gpu), member->etcd_lease));
    }
}

static void commit(struct rg_agent_ask *ask, json_t *compare, json_t *changes, json_t *lease,
                   int64_t etcd_lease)
{
    struct rg_agent *agent = ask->agent;
    json_array_append_new(compare, rg_agent_compare(0, rg_agent_key(agent, "leases/%s", ask->lease)));
    json_array_append_new(
        changes, rg_agent_put(rg_agent_key(agent, "leases/%s", ask->lease), json_incref(lease), etcd_lease));
    if (!ask->at_once)
        json_array_append_new(changes, rg_agent_remove(rg_agent_key(agent, "requests/%s", ask->id)));
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:o, s:o, s:[{s:{s:o}}]}", "compare", compare, "success", changes, "failure",
                           "request_range", "key", rg_agent_key(agent, "leases/%s", ask->lease)),
                 granted, ask);
}

/* The queue as it was decided on: with the request as it is there; at once, with nobody in it. */
static void add_queue(const struct rg_agent_ask *ask, const struct rg_pool_entry *queued, json_t *compare)
{
    const struct rg_agent *agent = ask->agent;
    json_array_append_new(
        compare, rg_agent_compare(queued ? queued->changed : 0, rg_agent_key(agent, "requests/%s", ask->id)));
    if (queued)
        return;
    /* of a range without keys, any comparison is true */
    json_array_append_new(compare,
                          json_pack("{s:o, s:o, s:s, s:s, s:s}", "key", rg_agent_key(agent, "requests/"),
                                    "range_end", rg_agent_key(agent, "requests0"), "target", "CREATE",
                                    "result", "LESS", "create_revision", "1"));
}

/* A lease that is kept has a time of its own, which etcd counts: it is asked for first, and the decision comes again. */
static void timed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    agent->granting--;
    rg_agent_changed(agent);
    ask->state = RG_ASK_WAITING;
    ask->etcd_lease = rg_etcd_get_number(reply, "ID");
    if (status != RG_OK) {
        agent->look_ns = rg_now_ns() + AGAIN_NS;
        rg_debug("request %s: no time for a lease: %s", ask->id, why);
    }
    const bool at_once = ask->at_once;
    ask->at_once = false;
    if (ask->socket < 0)
        rg_ask_leave(ask);
    else if (at_once && status == RG_OK)
        rg_ask_go(ask);
    else if (at_once)
        rg_ask_queue(ask);
}

/* False: it needs no time, or has it. */
static bool begin_time(struct rg_agent_ask *ask)
{
    if (!json_is_true(json_object_get(ask->request, "kept")) || ask->etcd_lease)
        return false;
    ask->agent->granting++;
    ask->state = RG_ASK_GRANTING;
    rg_agent_get_time(ask->agent, rg_json_get_number(ask->request, "seconds", 1), timed, ask);
    return true;
}

void rg_commit_grant(struct rg_agent_ask *ask, const struct rg_picture *picture,
                     const struct rg_pool_outcome *outcome, const struct rg_pool_grant *decided)
{
    struct rg_agent *agent = ask->agent;
    const struct rg_pool_part *parts = &outcome->parts[decided->first];
    const struct rg_pool_entry *queued = picture->queued[decided->request];
    const struct rg_pool_request *wanted = &picture->requests[decided->request];
    const bool kept = json_is_true(json_object_get(ask->request, "kept"));
    if (begin_time(ask))
        return;
    memcpy(ask->lease, ask->id, sizeof ask->lease); /* who asks again by the same id finds the lease */
    agent->granting++;
    ask->state = RG_ASK_GRANTING;
    json_t *compare = json_array(), *changes = json_array();
    json_t *gpus = gpus_json(picture, parts, decided->n);
    const bool whole = !wanted->memory && !wanted->fraction;
    if (!kept && !ask->handed && !rg_pool_make_id(ask->hold))
        ask->hold[0] = '\0'; /* no other connection can take it over then */
    add_queue(ask, queued, compare);
    add_gpus(agent, picture, ask->lease, parts, decided->n, compare, changes);
    json_decref(ask->grant);
    ask->grant = lease_json(ask, gpus, whole ? 0 : parts[0].memory);
    const struct rg_pool_member *first = picture->members[picture->devices[parts[0].device].server];
    commit(ask, compare, changes, ask->grant, kept ? ask->etcd_lease : first->etcd_lease);
}
