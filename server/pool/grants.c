/*
 * grants.c - the scheduling policy over the pool as it stands, and what it decides about requests of this server's clients.
 *
 * Every member runs the same policy over the same state, and each carries out what concerns its own clients: one transaction
 * that compares the revisions of the GPUs, of their servers and of the request, writes the GPUs with the new lease and the lease, and
 * removes the request. Whoever comes second with a GPU fails the comparison, changes nothing, and decides anew.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS 200000000ull
#define SECOND   1000000000ull

bool rg_grants_admissible(const struct rg_agent *agent, const json_t *request, char *why, size_t why_size)
{
    struct rg_picture picture = {0};
    struct rg_pool_policy policy;
    rg_pool_policy_default(&policy);
    bool good = rg_picture_draw(&agent->mirror, request, &picture, why, why_size);
    if (good) {
        picture.snapshot.n_requests = 0;
        good = rg_pool_admissible(&picture.snapshot, &policy, &picture.requests[0], why, why_size) == RG_OK;
    }
    rg_picture_fini(&picture);
    return good;
}

/* --- carrying out ----------------------------------------------------------------------------------------------- */

static struct rg_agent_ask *ask_of(const struct rg_agent *agent, const char *request)
{
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (strcmp(agent->asks[i]->id, request) == 0)
            return agent->asks[i];
    return NULL;
}

/* Its lease is there: the client is told, and holds it from now on, unless it is kept. */
static void finish(struct rg_agent_ask *ask, const json_t *value)
{
    struct rg_agent *agent = ask->agent;
    const bool kept = json_is_true(json_object_get(value, "kept"));
    const size_t n = json_array_size(json_object_get(value, "gpus"));
    char key[40];
    json_t *answer = rg_leases_granted(ask->lease, value);
    ask->etcd_lease = 0; /* the lease's from now on */
    rg_info("%s gets %zu GPU%s of the pool: lease %s%s%s", ask->owner_name[0] ? ask->owner_name : "somebody",
            n, n == 1 ? "" : "s", ask->lease, strcmp(ask->owner, ask->key) == 0 ? "" : ", asked for by ",
            strcmp(ask->owner, ask->key) == 0 ? "" : ask->name);
    const bool told = rg_ask_tell(ask, answer);
    json_decref(answer);
    if (!told && !ask->chosen) { /* by an id of its choice it comes back to it */
        snprintf(key, sizeof key, "leases/%s", ask->lease);
        rg_agent_undo(agent, key);
    }
    if (!told || kept)
        rg_ask_end(ask);
    else
        ask->state = RG_ASK_HOLDING;
}

/* Nothing was granted, or it is not known: it is decided again. */
static void try_again(struct rg_agent_ask *ask, enum rg_status status, const char *why)
{
    struct rg_agent *agent = ask->agent;
    agent->look_ns = rg_now_ns() + (status == RG_OK ? 0 : AGAIN_NS);
    rg_debug("request %s: not granted yet: %s", ask->id, status == RG_OK ? "the pool has changed" : why);
    ask->state = RG_ASK_WAITING;
    if (status == RG_OK || status == RG_ERR_NOT_FOUND) { /* its time may be over before its turn comes */
        rg_agent_revoke(agent, ask->etcd_lease);
        ask->etcd_lease = 0;
        ask->unsure = false;
    } else {
        ask->unsure = true;
    }
    if (ask->socket < 0)
        rg_ask_leave(ask);
}

static void granted(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    agent->granting = false;
    agent->changes++;
    const json_t *kvs = json_object_get(
        json_object_get(json_array_get(json_object_get(reply, "responses"), 0), "response_range"), "kvs");
    if (status == RG_OK && json_is_true(json_object_get(reply, "succeeded"))) {
        finish(ask, ask->grant);
        return;
    }
    /* a try whose answer was lost may have done it: then the lease is there */
    json_t *there = status == RG_OK ? rg_leases_value(kvs, NULL) : NULL;
    if (there && (!ask->chosen || rg_wish_is_same(there, ask->request)))
        finish(ask, there);
    else
        try_again(ask, status, why);
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
    json_object_del(value, "filters");
    json_object_del(value, "devices");
    if (ask->etcd_lease)
        (void)json_object_set_new(value, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    (void)json_object_set_new(value, "holder", json_string(ask->agent->run));
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
        char key[64];
        if (member != last) {
            snprintf(key, sizeof key, "servers/%s", member->id);
            json_array_append_new(compare, rg_agent_compare(agent, member->changed, key));
            last = member;
        }
        snprintf(key, sizeof key, "servers/%s/gpus/%u", member->id, gpu.index);
        json_array_append_new(compare, rg_agent_compare(agent, gpu.changed, key));
        if (gpu.n_shares < RG_POOL_SHARES_MAX) {
            struct rg_pool_share *share = &gpu.shares[gpu.n_shares++];
            snprintf(share->lease, sizeof share->lease, "%s", lease);
            share->memory = parts[i].memory;
        }
        json_array_append_new(changes, rg_agent_put(agent, key, rg_pool_gpu_json(&gpu), member->etcd_lease));
    }
}

static void commit(struct rg_agent_ask *ask, json_t *compare, json_t *changes, json_t *lease,
                   int64_t etcd_lease)
{
    struct rg_agent *agent = ask->agent;
    char key[40], request[40];
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    snprintf(request, sizeof request, "requests/%s", ask->id);
    json_array_append_new(compare, rg_agent_compare(agent, 0, key));
    json_array_append_new(changes, rg_agent_put(agent, key, json_incref(lease), etcd_lease));
    json_array_append_new(changes, rg_agent_remove(agent, request));
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:o, s:o, s:[{s:{s:o}}]}", "compare", compare, "success", changes, "failure",
                           "request_range", "key", rg_agent_key(agent, "%s", key)),
                 granted, ask);
}

/* A lease that is kept has a time of its own, which etcd counts: it is asked for first, and the decision comes again. */
static void timed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    agent->granting = false;
    agent->changes++;
    ask->state = RG_ASK_WAITING;
    ask->etcd_lease = rg_etcd_get_number(reply, "ID");
    if (status != RG_OK) {
        agent->look_ns = rg_now_ns() + AGAIN_NS;
        rg_debug("request %s: no time for a lease: %s", ask->id, why);
    }
    if (ask->socket < 0)
        rg_ask_leave(ask);
}

static void grant(struct rg_agent *agent, struct rg_agent_ask *ask, const struct rg_picture *picture,
                  const struct rg_pool_outcome *outcome, const struct rg_pool_grant *decided)
{
    const struct rg_pool_part *parts = &outcome->parts[decided->first];
    const struct rg_pool_queued *queued = picture->queued[decided->request];
    const struct rg_pool_request *wanted = &picture->requests[decided->request];
    const bool kept = json_is_true(json_object_get(ask->request, "kept"));
    char request[40];
    agent->granting = true;
    ask->state = RG_ASK_GRANTING;
    if (kept && !ask->etcd_lease) {
        rg_etcd_call(agent->etcd, "/v3/lease/grant",
                     json_pack("{s:o}", "TTL",
                               rg_etcd_number((int64_t)rg_pool_get_number(ask->request, "seconds", 1))),
                     timed, ask);
        return;
    }
    if (!ask->lease[0] && !rg_pool_make_id(ask->lease)) {
        agent->granting = false;
        ask->state = RG_ASK_WAITING;
        return;
    }
    json_t *compare = json_array(), *changes = json_array();
    json_t *gpus = gpus_json(picture, parts, decided->n);
    const bool whole = !wanted->memory && !wanted->fraction;
    snprintf(request, sizeof request, "requests/%s", ask->id);
    json_array_append_new(compare, rg_agent_compare(agent, queued->changed, request));
    add_gpus(agent, picture, ask->lease, parts, decided->n, compare, changes);
    json_decref(ask->grant);
    ask->grant = lease_json(ask, gpus, whole ? 0 : parts[0].memory);
    const struct rg_pool_member *first = picture->members[picture->devices[parts[0].device].server];
    commit(ask, compare, changes, ask->grant, kept ? ask->etcd_lease : first->etcd_lease);
}

/* --- waiting ---------------------------------------------------------------------------------------------------------- */

/* Where it stands and what it waits for, if that is not what the client was told last. */
static void tell_waiting(struct rg_agent_ask *ask, uint32_t position, uint32_t of, const char *why)
{
    char said[sizeof ask->said];
    snprintf(said, sizeof said, "%u %s", position, why);
    if (strcmp(said, ask->said) == 0)
        return;
    json_t *answer =
        json_pack("{s:s, s:i, s:i, s:s, s:I}", "state", "waiting", "position", (int)position, "of", (int)of,
                  "why", why, "since", (json_int_t)rg_pool_get_number(ask->request, "since", 0));
    if (rg_ask_tell(ask, answer))
        memcpy(ask->said, said, sizeof said);
    json_decref(answer);
}

static void give_up(struct rg_agent_ask *ask, const char *why)
{
    char key[40], text[1200];
    snprintf(text, sizeof text, "%s", why);
    snprintf(key, sizeof key, "requests/%s", ask->id);
    rg_agent_undo(ask->agent, key);
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    if (ask->unsure && !ask->chosen)
        rg_agent_undo(ask->agent, key);
    rg_ask_refuse(ask, text);
}

static void look_waiting(struct rg_agent *agent, const struct rg_picture *picture,
                         const struct rg_pool_outcome *outcome, uint64_t now, uint64_t *due)
{
    for (uint32_t i = 0; i < outcome->n_waiting; i++) {
        const struct rg_pool_waiting *waiting = &outcome->waiting[i];
        struct rg_agent_ask *ask = ask_of(agent, picture->requests[waiting->request].id);
        char why[480] = "", text[700];
        if (!ask || ask->state != RG_ASK_WAITING || ask->socket < 0)
            continue;
        rg_pool_explain(&picture->snapshot, outcome, i, now, why, sizeof why);
        if (rg_pool_reason_is_final(waiting->reason)) {
            snprintf(text, sizeof text, "%s [lease-impossible]", why);
            give_up(ask, text);
        } else if (!ask->waits) {
            snprintf(text, sizeof text, "%s; --wait-for waits for it [lease-not-free]", why);
            give_up(ask, text);
        } else if (rg_now_ns() >= ask->until_ns) {
            snprintf(text, sizeof text, "no GPUs in the time of --wait-for: %s [lease-waited]", why);
            give_up(ask, text);
        } else {
            *due = ask->until_ns < *due ? ask->until_ns : *due;
            tell_waiting(ask, waiting->position, outcome->n_waiting, why);
        }
    }
}

/* Who waits is told that nothing can be decided. */
static void look_cut_off(struct rg_agent *agent)
{
    char text[RG_ETCD_WHY + 64];
    snprintf(text, sizeof text, "the pool cannot be reached: %s [pool-unreachable]", agent->membership.why);
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        if (ask->state == RG_ASK_WAITING && ask->socket >= 0 &&
            (!ask->waits || rg_now_ns() >= ask->until_ns)) {
            give_up(ask, text); /* another takes its place in the list */
            continue;
        }
        if (ask->state == RG_ASK_WAITING)
            tell_waiting(ask, 0, 0, text);
        i++;
    }
}

/* A request that was lost with the etcd lease that it was bound to is written again. */
static void put_again_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)status;
    (void)reply;
    (void)why;
    agent->changes++;
}

static void look_lost(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks; i++) {
        const struct rg_agent_ask *ask = agent->asks[i];
        char key[40], lease[40];
        if (ask->state != RG_ASK_WAITING || agent->mirror.revision < ask->written ||
            rg_pool_mirror_request(&agent->mirror, ask->id))
            continue;
        snprintf(key, sizeof key, "requests/%s", ask->id);
        snprintf(lease, sizeof lease, "leases/%s", ask->lease[0] ? ask->lease : ask->id);
        rg_etcd_call(
            agent->etcd, "/v3/kv/txn",
            json_pack("{s:[o, o], s:[o]}", "compare", rg_agent_compare(agent, 0, key),
                      rg_agent_compare(agent, 0, lease), "success",
                      rg_agent_put(agent, key, json_incref(ask->request), agent->membership.etcd_lease)),
            put_again_done, agent);
    }
}

/*
 * What came of transactions that were not answered: the lease is there after all. If it is not, the request is decided on again, or was
 * written again: one that is still under way then fails, since it compares the request's revision.
 */
static void look_unsure(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        const struct rg_pool_held *held =
            ask->unsure ? rg_pool_mirror_lease(&agent->mirror, ask->lease) : NULL;
        if (ask->state != RG_ASK_WAITING || !held) {
            i++;
            continue;
        }
        ask->unsure = false;
        finish(ask, held->value); /* another may take its place in the list */
        if (i < agent->n_asks && agent->asks[i] == ask)
            i++;
    }
}

/* Whether GPUs are still being taken back from an earlier lease of the same id. */
static bool is_ending(const struct rg_agent *agent, const struct rg_agent_ask *ask)
{
    for (uint32_t i = 0; i < agent->mirror.n_members && ask->chosen; i++)
        for (uint32_t j = 0; j < agent->mirror.members[i]->n_gpus; j++) {
            const struct rg_pool_gpu *gpu = agent->mirror.members[i]->gpus[j];
            for (uint32_t k = 0; k < gpu->n_shares; k++)
                if (strcmp(gpu->shares[k].lease, ask->lease) == 0)
                    return true;
        }
    return false;
}

static uint64_t decide(struct rg_agent *agent)
{
    struct rg_picture picture = {0};
    struct rg_pool_outcome outcome = {0};
    struct rg_pool_policy policy;
    char why[512] = "";
    uint64_t due = UINT64_MAX;
    const uint64_t now = (uint64_t)rg_agent_time(agent) * SECOND;
    rg_pool_policy_default(&policy);
    if (!rg_picture_draw(&agent->mirror, NULL, &picture, why, sizeof why) ||
        rg_pool_schedule(&picture.snapshot, &policy, now, &outcome, why, sizeof why) != RG_OK) {
        rg_warn("pool %s: nothing can be decided: %s", agent->settings.pool, why);
        rg_picture_fini(&picture);
        return rg_now_ns() + SECOND;
    }
    for (uint32_t i = 0; i < outcome.n_grants && !agent->granting; i++) {
        struct rg_agent_ask *ask = ask_of(agent, picture.requests[outcome.grants[i].request].id);
        if (ask && ask->state == RG_ASK_WAITING && ask->socket >= 0 && !is_ending(agent, ask))
            grant(agent, ask, &picture, &outcome, &outcome.grants[i]);
    }
    look_waiting(agent, &picture, &outcome, now, &due);
    rg_pool_outcome_clear(&outcome);
    rg_picture_fini(&picture);
    return due;
}

static bool has_waiting(const struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->state == RG_ASK_WAITING)
            return true;
    return false;
}

uint64_t rg_grants_look(struct rg_agent *agent)
{
    const uint64_t now = rg_now_ns();
    if (!has_waiting(agent))
        return UINT64_MAX;
    if (!rg_agent_is_in(agent)) {
        look_cut_off(agent);
        return now + SECOND;
    }
    if (agent->granting || (agent->decided == agent->changes && now < agent->look_ns))
        return agent->granting ? UINT64_MAX : agent->look_ns;
    agent->decided = agent->changes;
    look_unsure(agent);
    look_lost(agent);
    agent->look_ns = decide(agent);
    return agent->look_ns;
}
