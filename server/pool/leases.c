/*
 * leases.c - what is done with leases that there are: found, renewed, given back (held again: hold.c).
 *
 * All of it begins by asking etcd for the lease, not the mirror: another server may have granted it a moment ago. A renewal gets an
 * etcd lease of its own time and binds the lease to it in a transaction that compares the revision that was read, so the lease is never
 * without one; etcd's own keep-alive could only repeat the time that there was. Where etcd does not answer, the client is told so. One
 * thread.
 */
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 4u /* of giving a lease back that changes */

/* --- what there is ------------------------------------------------------------------------------------------------- */

static uint64_t expiry(const json_t *value)
{
    return rg_json_get_number(value, "since", 0) + rg_json_get_number(value, "seconds", 0);
}

uint32_t rg_leases_there(const struct rg_agent *agent, const json_t *value, uint64_t *memory)
{
    const json_t *one;
    size_t i;
    uint32_t n = 0;
    *memory = 0;
    json_array_foreach(json_object_get(value, "gpus"), i, one)
    {
        const uint64_t bytes = rg_json_get_number(one, "memory", 0);
        if (!rg_pool_mirror_member(&agent->mirror, rg_json_get_text(one, "server")))
            continue;
        n++;
        *memory += bytes < UINT64_MAX - *memory ? bytes : UINT64_MAX - *memory;
    }
    return n;
}

json_t *rg_leases_granted(const char *id, const json_t *value)
{
    json_t *gpus = json_object_get(value, "gpus"); /* whoever may write to etcd may have written anything */
    json_t *answer = json_pack("{s:s, s:s, s:o, s:s}", "state", "granted", "lease", id, "gpus",
                               json_is_array(gpus) ? json_incref(gpus) : json_array(), "user",
                               rg_json_get_text(value, "name"));
    if (answer && json_is_true(json_object_get(value, "kept")))
        (void)json_object_set_new(answer, "expires", json_integer((json_int_t)expiry(value)));
    return answer;
}

void rg_leases_look_up(struct rg_agent_ask *ask, const json_t *question, rg_etcd_done *done)
{
    const char *id = rg_json_get_text(question, "lease");
    if (!rg_pool_is_id(id)) {
        rg_ask_refuse_as(ask, "lease-id", "an id of a lease has 16 hexadecimal digits in lower case");
        return;
    }
    memcpy(ask->lease, id, sizeof ask->lease - 3);
    ask->state = RG_ASK_ENDING;
    rg_etcd_call(ask->agent->etcd, "/v3/kv/range",
                 json_pack("{s:o}", "key", rg_agent_key(ask->agent, "leases/%s", id)), done, ask);
}

json_t *rg_leases_looked_up(struct rg_agent_ask *ask, enum rg_status status, const json_t *reply,
                            const char *why)
{
    json_t *value = status == RG_OK ? rg_agent_value(json_object_get(reply, "kvs"), &ask->changed) : NULL;
    if (status != RG_OK) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot be reached: %s; try again later", why);
    } else if (!value) {
        rg_ask_refuse_as(
            ask, "lease-gone",
            "there is no such lease: it was given back, its time is over, or a server of it is gone; "
            "remote-gpu list shows those that you have");
    } else if (!rg_ask_may(ask, value)) {
        json_decref(value);
        value = NULL;
        rg_ask_refuse_as(
            ask, "lease-not-yours",
            "you have no such lease: it is somebody else's; remote-gpu list shows those that you "
            "have");
    }
    return value;
}

/* --- finding ---------------------------------------------------------------------------------------------------------- */

static void found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = rg_leases_looked_up(ask, status, reply, why);
    if (!value)
        return;
    rg_ask_answer(ask, rg_leases_granted(ask->lease, value));
    json_decref(value);
}

void rg_leases_find(struct rg_agent_ask *ask, const json_t *question)
{
    rg_leases_look_up(ask, question, found);
}

/* --- giving back ------------------------------------------------------------------------------------------------------ */

/* Of the lease that etcd has answered: a lease of an id that was used before is another one. */
static int64_t created_of(const json_t *range)
{
    return rg_etcd_get_number(json_array_get(json_object_get(range, "kvs"), 0), "create_revision");
}

static void released(void *data, enum rg_status status, const json_t *reply, const char *why);

/* The lease whose revision was read is removed, and no other that has come to its id meanwhile. */
static void release(struct rg_agent_ask *ask)
{
    const struct rg_agent *agent = ask->agent;
    ask->tries++;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o], s:[{s:{s:o}}]}", "compare",
                           rg_agent_compare(ask->changed, rg_agent_key(agent, "leases/%s", ask->lease)),
                           "success", rg_agent_remove(rg_agent_key(agent, "leases/%s", ask->lease)),
                           "failure", "request_range", "key", rg_agent_key(agent, "leases/%s", ask->lease)),
                 released, ask);
}

/* It has changed since it was read: who may have it is asked of what it is now. */
static void release_changed(struct rg_agent_ask *ask, const json_t *reply)
{
    const json_t *range =
        json_object_get(json_array_get(json_object_get(reply, "responses"), 0), "response_range");
    json_t *value = rg_leases_looked_up(ask, RG_OK, range, "");
    if (!value)
        return;
    json_decref(value);
    if (created_of(range) != ask->created)
        rg_ask_refuse_as(
            ask, "lease-gone",
            "the lease was given back, or its time was over, and there is another one of its id now");
    else if (ask->tries >= TRIES_MAX)
        rg_ask_refuse_as(ask, "lease-busy", "the lease has changed at this moment; try again");
    else
        release(ask);
}

static void released(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK)
        rg_ask_refuse_as(ask, "pool-unreachable", "the lease could not be given back: %s; try again later",
                         why);
    else if (json_is_true(json_object_get(reply, "succeeded")))
        rg_ask_answer(ask, json_pack("{s:s, s:s}", "state", "released", "lease", ask->lease));
    else
        release_changed(ask, reply);
}

static void release_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = rg_leases_looked_up(ask, status, reply, why);
    if (!value)
        return;
    json_decref(value);
    ask->created = created_of(reply);
    release(ask);
}

void rg_leases_release(struct rg_agent_ask *ask, const json_t *question)
{
    rg_leases_look_up(ask, question, release_found);
}

/* --- renewing ----------------------------------------------------------------------------------------------------------- */

void rg_leases_bind(struct rg_agent_ask *ask, json_t *value, rg_etcd_done *done)
{
    const struct rg_agent *agent = ask->agent;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o], s:[{s:{s:o}}]}", "compare",
                           rg_agent_compare(ask->changed, rg_agent_key(agent, "leases/%s", ask->lease)),
                           "success",
                           rg_agent_put(rg_agent_key(agent, "leases/%s", ask->lease), json_incref(value),
                                        ask->etcd_lease),
                           "failure", "request_range", "key", rg_agent_key(agent, "leases/%s", ask->lease)),
                 done, ask);
}

bool rg_leases_is_bound(const struct rg_agent_ask *ask, const json_t *reply)
{
    const json_t *kvs = json_object_get(
        json_object_get(json_array_get(json_object_get(reply, "responses"), 0), "response_range"), "kvs");
    json_t *there = rg_agent_value(kvs, NULL);
    /* a try whose answer was lost may have done it */
    const bool bound = json_is_true(json_object_get(reply, "succeeded")) ||
                       strtoll(rg_json_get_text(there, "etcd_lease"), NULL, 10) == ask->etcd_lease;
    json_decref(there);
    return bound;
}

static void renewed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    if (status == RG_OK && rg_leases_is_bound(ask, reply)) {
        rg_agent_revoke(agent, ask->etcd_lease_before);
        ask->etcd_lease = 0; /* the lease's from now on */
        rg_info("%s has renewed lease %s", ask->name[0] ? ask->name : "somebody", ask->lease);
        rg_ask_answer(ask, json_pack("{s:s, s:s, s:I}", "state", "renewed", "lease", ask->lease, "expires",
                                     (json_int_t)expiry(ask->request)));
        return;
    }
    if (status != RG_OK) {
        ask->etcd_lease = 0; /* it may be the lease's by now: then nothing ends it but its time */
        rg_ask_refuse_as(ask, "pool-unreachable",
                         "whether the lease was renewed is not known: %s; try again later", why);
    } else {
        rg_ask_refuse_as(ask, "lease-busy",
                         "the lease was renewed or given back by somebody else at this moment; try again");
    }
}

/* The lease as it was, which lasts longer, bound to the time that etcd has given. */
static void renew_timed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    const uint64_t since = rg_json_get_number(ask->request, "since", 0), now = (uint64_t)rg_agent_time(agent);
    ask->etcd_lease = status == RG_OK ? rg_etcd_get_number(reply, "ID") : 0;
    if (!ask->etcd_lease) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the lease could not be renewed: %s; try again later", why);
        return;
    }
    ask->etcd_lease_before = (int64_t)strtoll(rg_json_get_text(ask->request, "etcd_lease"), NULL, 10);
    (void)json_object_set_new(ask->request, "seconds",
                              json_integer((json_int_t)((now > since ? now - since : 0) + ask->seconds)));
    (void)json_object_set_new(ask->request, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    rg_leases_bind(ask, ask->request, renewed);
}

static void renew_judged(struct rg_agent_ask *ask)
{
    ask->state = RG_ASK_ENDING;
    rg_agent_get_time(ask->agent, ask->seconds, renew_timed, ask);
}

static void renew_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = rg_leases_looked_up(ask, status, reply, why);
    if (!value)
        return;
    ask->request = value;
    const uint64_t now = (uint64_t)rg_agent_time(ask->agent);
    const uint64_t last = rg_json_get_number(value, "since", now) + RG_POOL_KEPT_MAX_S;
    if (!json_is_true(json_object_get(value, "kept"))) {
        rg_ask_refuse_as(
            ask, "lease-not-kept",
            "the lease ends with the command that holds it; only leases of remote-gpu request have a "
            "time");
    } else if (!ask->is_operator && now + ask->seconds > last) {
        rg_ask_refuse_as(
            ask, "lease-time",
            "a lease lasts %u days at most from its beginning, so this one may be renewed for %" PRIu64
            " s; ask for GPUs anew when it is over",
            RG_POOL_KEPT_MAX_S / 86400, last > now ? last - now : 0);
    } else if (ask->socket < 0) {
        rg_ask_end(ask);
    } else {
        rg_quotas_judge(ask, true, renew_judged);
    }
}

void rg_leases_renew(struct rg_agent_ask *ask, const json_t *question)
{
    ask->seconds = rg_json_get_number(question, "seconds", 0);
    if (ask->seconds == 0 || ask->seconds > RG_POOL_KEPT_MAX_S)
        rg_ask_refuse_as(ask, "lease-time",
                         "a lease is renewed for 1 s to %u days, and %" PRIu64 " s were asked for",
                         RG_POOL_KEPT_MAX_S / 86400, ask->seconds);
    else
        rg_leases_look_up(ask, question, renew_found);
}
