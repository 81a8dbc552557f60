/*
 * leases.c - what is done with leases that there are: found, renewed, given back, left to their sessions and held again; and whether quotas
 * allow them.
 *
 * All of it begins by asking etcd for the lease, not the mirror: another server may have granted it a moment ago. A renewal gets an
 * etcd lease of its own time and binds the lease to it in a transaction that compares the revision that was read, so the lease is never
 * without one; etcd's own keep-alive could only repeat the time that there was.
 *
 * The process of a client whose connection was lost may live, and start another program: it asks to hold its lease again, of this server or
 * another one. Each connection that holds a lease writes a number of its own to it (`hold`), so that one whose loss is noticed late does not
 * take it from the next.
 *
 * Quotas are the monitor's to know. It is told what the owner and the project hold in the whole pool, and answers by a word.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_NS 300000000ull

/* --- what there is ------------------------------------------------------------------------------------------------- */

static uint64_t expiry(const json_t *value)
{
    return rg_pool_get_number(value, "since", 0) + rg_pool_get_number(value, "seconds", 0);
}

json_t *rg_leases_granted(const char *id, const json_t *value)
{
    json_t *gpus = json_object_get(value, "gpus"); /* whoever may write to etcd may have written anything */
    json_t *answer = json_pack("{s:s, s:s, s:o, s:s}", "state", "granted", "lease", id, "gpus",
                               json_is_array(gpus) ? json_incref(gpus) : json_array(), "user",
                               rg_pool_get_text(value, "name", ""));
    if (answer && json_is_true(json_object_get(value, "kept")))
        (void)json_object_set_new(answer, "expires", json_integer((json_int_t)expiry(value)));
    return answer;
}

/* Has etcd asked for the lease that a question is about. */
static void look_up(struct rg_agent_ask *ask, const json_t *question, rg_etcd_done *done)
{
    const char *id = rg_pool_get_text(question, "lease", "");
    char key[40];
    if (!rg_pool_is_id(id)) {
        rg_ask_refuse_as(ask, "lease-id", "an id of a lease has 16 hexadecimal digits in lower case");
        return;
    }
    memcpy(ask->lease, id, sizeof ask->lease - 3);
    snprintf(key, sizeof key, "leases/%s", id);
    ask->state = RG_ASK_ENDING;
    rg_etcd_call(ask->agent->etcd, "/v3/kv/range",
                 json_pack("{s:o}", "key", rg_agent_key(ask->agent, "%s", key)), done, ask);
}

/* The lease that was looked up, if whoever asks may know it. NULL: it was refused. */
static json_t *looked_up(struct rg_agent_ask *ask, enum rg_status status, const json_t *reply,
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

static void tell_and_end(struct rg_agent_ask *ask, json_t *answer)
{
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

/* --- finding ---------------------------------------------------------------------------------------------------------- */

static void found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = looked_up(ask, status, reply, why);
    if (!value)
        return;
    tell_and_end(ask, rg_leases_granted(ask->lease, value));
    json_decref(value);
}

void rg_leases_find(struct rg_agent_ask *ask, const json_t *question)
{
    look_up(ask, question, found);
}

/* --- giving back ------------------------------------------------------------------------------------------------------ */

static void released(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK)
        rg_ask_refuse_as(ask, "pool-unreachable", "the lease could not be given back: %s; try again later",
                         why);
    else if (rg_etcd_get_number(reply, "deleted") == 0)
        rg_ask_refuse_as(ask, "lease-gone",
                         "there is no such lease any more: it was given back, or its time was over");
    else
        tell_and_end(ask, json_pack("{s:s, s:s}", "state", "released", "lease", ask->lease));
}

static void release_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = looked_up(ask, status, reply, why);
    char key[40];
    if (!value)
        return;
    json_decref(value);
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    rg_etcd_call(ask->agent->etcd, "/v3/kv/deleterange",
                 json_pack("{s:o}", "key", rg_agent_key(ask->agent, "%s", key)), released, ask);
}

void rg_leases_release(struct rg_agent_ask *ask, const json_t *question)
{
    look_up(ask, question, release_found);
}

/* --- quotas ------------------------------------------------------------------------------------------------------------- */

/* What leases of the pool hold whose member `name` is `text`. */
static void count_held(const struct rg_agent *agent, const char *name, const char *text, const char *except,
                       uint64_t *gpus, uint64_t *memory)
{
    for (uint32_t i = 0; i < agent->mirror.n_leases && *text; i++) {
        const struct rg_pool_entry *held = agent->mirror.leases[i];
        const json_t *one;
        size_t j;
        if (strcmp(rg_pool_get_text(held->value, name, ""), text) != 0 || strcmp(held->id, except) == 0)
            continue;
        json_array_foreach(json_object_get(held->value, "gpus"), j, one)
        {
            ++*gpus;
            *memory += rg_pool_get_number(one, "memory", 0);
        }
    }
}

void rg_leases_judge(struct rg_agent_ask *ask, bool renews, void (*judged)(struct rg_agent_ask *ask))
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_JUDGE};
    struct rg_agent_judge *out = &answer.judge;
    const json_t *wanted = ask->request;
    const char *user = rg_pool_get_text(wanted, "user", ""),
               *project = rg_pool_get_text(wanted, "project", "");
    out->number = ask->number = ++ask->agent->judgements;
    ask->judged = judged;
    ask->state = RG_ASK_JUDGING;
    snprintf(out->key, sizeof out->key, "%s", user);
    snprintf(out->project, sizeof out->project, "%.*s", (int)sizeof out->project - 1, project);
    snprintf(out->name, sizeof out->name, "%s", rg_pool_get_text(wanted, "name", ""));
    snprintf(out->by, sizeof out->by, "%s", ask->name);
    out->lease = strtoull(ask->lease, NULL, 16);
    out->renews = renews;
    out->project_alone = !renews && !json_is_true(json_object_get(wanted, "kept"));
    const json_t *gpus = json_object_get(wanted, "gpus");
    out->gpus = json_is_array(gpus) ? (uint32_t)json_array_size(gpus) : (uint32_t)json_integer_value(gpus);
    const uint64_t memory = rg_pool_get_number(wanted, "memory", 0);
    out->memory = out->gpus && memory > UINT64_MAX / out->gpus ? UINT64_MAX : memory * out->gpus;
    count_held(ask->agent, "user", user, ask->lease, &out->held_gpus, &out->held_memory);
    count_held(ask->agent, "project", project, ask->lease, &out->project_gpus, &out->project_memory);
    rg_agent_tell(ask->agent, &answer);
}

void rg_leases_judged(struct rg_agent *agent, const struct rg_agent_word *word)
{
    struct rg_agent_ask *ask = NULL;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->state == RG_ASK_JUDGING && agent->asks[i]->number == word->judged.number)
            ask = agent->asks[i];
    if (!ask)
        return;
    if (ask->socket < 0) /* it has gone, and nothing of it is there yet */
        rg_ask_end(ask);
    else if (word->judged.good)
        ask->judged(ask);
    else
        rg_ask_refuse(ask, word->judged.why);
}

/* --- renewing ----------------------------------------------------------------------------------------------------------- */

static void renewed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    const json_t *kvs = json_object_get(
        json_object_get(json_array_get(json_object_get(reply, "responses"), 0), "response_range"), "kvs");
    json_t *there = rg_agent_value(kvs, NULL);
    /* a try whose answer was lost may have done it: then the lease is bound to the new time */
    const bool done =
        status == RG_OK && (json_is_true(json_object_get(reply, "succeeded")) ||
                            strtoll(rg_pool_get_text(there, "etcd_lease", "0"), NULL, 10) == ask->etcd_lease);
    json_decref(there);
    if (done) {
        rg_agent_revoke(agent, ask->etcd_lease_before);
        ask->etcd_lease = 0; /* the lease's from now on */
        rg_info("%s has renewed lease %s", ask->name[0] ? ask->name : "somebody", ask->lease);
        tell_and_end(ask, json_pack("{s:s, s:s, s:I}", "state", "renewed", "lease", ask->lease, "expires",
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
    const uint64_t since = rg_pool_get_number(ask->request, "since", 0), now = (uint64_t)rg_agent_time(agent);
    char key[40];
    ask->etcd_lease = status == RG_OK ? rg_etcd_get_number(reply, "ID") : 0;
    if (!ask->etcd_lease) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the lease could not be renewed: %s; try again later", why);
        return;
    }
    ask->etcd_lease_before = (int64_t)strtoll(rg_pool_get_text(ask->request, "etcd_lease", "0"), NULL, 10);
    (void)json_object_set_new(ask->request, "seconds",
                              json_integer((json_int_t)((now > since ? now - since : 0) + ask->seconds)));
    (void)json_object_set_new(ask->request, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o], s:[{s:{s:o}}]}", "compare",
                           rg_agent_compare(agent, ask->changed, key), "success",
                           rg_agent_put(agent, key, json_incref(ask->request), ask->etcd_lease), "failure",
                           "request_range", "key", rg_agent_key(agent, "%s", key)),
                 renewed, ask);
}

static void renew_judged(struct rg_agent_ask *ask)
{
    ask->state = RG_ASK_ENDING;
    rg_etcd_call(ask->agent->etcd, "/v3/lease/grant",
                 json_pack("{s:o}", "TTL", rg_etcd_number((int64_t)ask->seconds)), renew_timed, ask);
}

static void renew_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = looked_up(ask, status, reply, why);
    if (!value)
        return;
    ask->request = value;
    const uint64_t now = (uint64_t)rg_agent_time(ask->agent);
    const uint64_t last = rg_pool_get_number(value, "since", now) + RG_POOL_KEPT_MAX_S;
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
        rg_leases_judge(ask, true, renew_judged);
    }
}

void rg_leases_renew(struct rg_agent_ask *ask, const json_t *question)
{
    ask->seconds = rg_pool_get_number(question, "seconds", 0);
    if (ask->seconds == 0 || ask->seconds > RG_POOL_KEPT_MAX_S)
        rg_ask_refuse_as(ask, "lease-time",
                         "a lease is renewed for 1 s to %u days, and %" PRIu64 " s were asked for",
                         RG_POOL_KEPT_MAX_S / 86400, ask->seconds);
    else
        look_up(ask, question, renew_found);
}

/* --- a client that is lost ---------------------------------------------------------------------------------------------- */

/* Writes a lease as it is to be from now on, if it is still as it was read; it stays bound to what it is bound to. */
static void rewrite(struct rg_agent_ask *ask, const json_t *value, rg_etcd_done *done)
{
    struct rg_agent *agent = ask->agent;
    char key[40];
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    json_t *put = rg_agent_put(agent, key, json_copy((json_t *)(uintptr_t)value), 0),
           *request = json_object_get(put, "request_put");
    (void)json_object_del(request, "lease");
    (void)json_object_set_new(request, "ignore_lease", json_true());
    rg_etcd_call(
        agent->etcd, "/v3/kv/txn",
        json_pack("{s:[o], s:[o]}", "compare", rg_agent_compare(agent, ask->changed, key), "success", put),
        done, ask);
}

static void look_at_lost(struct rg_agent_ask *ask);

static void entrusted(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK) { /* meanwhile its client may hold it by another server: nothing is undone */
        rg_debug("lease %s: that its client's connection was lost is not told yet: %s", ask->lease, why);
        ask->state = RG_ASK_LOST;
        ask->since_ns = rg_now_ns();
        rg_agent_changed(ask->agent);
    } else if (!json_is_true(json_object_get(reply, "succeeded"))) {
        look_at_lost(ask); /* it has changed meanwhile */
    } else {
        rg_ask_end(ask);
    }
}

/* It is left to its sessions if no other connection holds it by now. */
static void lost_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = status == RG_OK ? rg_agent_value(json_object_get(reply, "kvs"), &ask->changed) : NULL;
    if (status != RG_OK) {
        entrusted(ask, status, NULL, why);
    } else if (value && strcmp(rg_pool_get_text(value, "hold", ""), ask->hold) == 0) {
        (void)json_object_set_new(value, "holder", json_string(""));
        rewrite(ask, value, entrusted);
    } else {
        rg_ask_end(ask); /* it is over, or its client has come back */
    }
    json_decref(value);
}

static void look_at_lost(struct rg_agent_ask *ask)
{
    rg_etcd_call(ask->agent->etcd, "/v3/kv/range",
                 json_pack("{s:o}", "key", rg_agent_key(ask->agent, "leases/%s", ask->lease)), lost_found,
                 ask);
}

uint64_t rg_leases_look(struct rg_agent_ask *ask)
{
    if (rg_now_ns() < ask->since_ns + AGAIN_NS)
        return ask->since_ns + AGAIN_NS;
    ask->state = RG_ASK_ENDING;
    look_at_lost(ask);
    return UINT64_MAX;
}

void rg_leases_entrust(struct rg_agent_ask *ask)
{
    rg_info(
        "lease %s: the connection of its client was lost; it lasts as long as sessions run by it, and %d s",
        ask->lease, RG_RECONNECT_S);
    if (ask->socket >= 0)
        close(ask->socket);
    ask->socket = -1;
    ask->state = RG_ASK_ENDING;
    look_at_lost(ask);
}

/* --- one that comes back ------------------------------------------------------------------------------------------------- */

/* The connection by which its client held it before, if that was to this server: it is lost, whether that has been noticed or not. */
static void forget_others(const struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *other = agent->asks[i];
        if (other != ask && other->state == RG_ASK_HOLDING && strcmp(other->lease, ask->lease) == 0)
            rg_ask_end(other); /* another takes its place in the list */
        else
            i++;
    }
}

static void held_again(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK) {
        rg_ask_refuse_as(ask, "pool-unreachable",
                         "whether the lease is held is not known: %s; try again later", why);
    } else if (!json_is_true(json_object_get(reply, "succeeded"))) {
        rg_ask_refuse_as(ask, "lease-busy", "the lease has changed at this moment; try again");
    } else {
        json_t *answer = rg_leases_granted(ask->lease, ask->grant);
        const bool told = rg_ask_tell(ask, answer);
        json_decref(answer);
        forget_others(ask);
        rg_info("lease %s: its client has come back", ask->lease);
        ask->state = RG_ASK_HOLDING;
        if (!told)
            rg_leases_entrust(ask);
    }
}

static void hold_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = looked_up(ask, status, reply, why);
    if (!value)
        return;
    if (ask->socket < 0) { /* it may hold it by another connection meanwhile, which keeps it */
        json_decref(value);
        rg_ask_end(ask);
        return;
    }
    if (json_is_true(json_object_get(value, "kept")) || !rg_pool_make_id(ask->hold)) {
        json_decref(value);
        rg_ask_refuse_as(ask, "lease-question", "the lease has a time, and needs nobody who holds it");
        return;
    }
    (void)json_object_set_new(value, "holder", json_string(ask->agent->run));
    (void)json_object_set_new(value, "holder_server", json_string(ask->agent->id));
    (void)json_object_set_new(value, "hold", json_string(ask->hold));
    ask->grant = value;
    rewrite(ask, value, held_again);
}

void rg_leases_hold(struct rg_agent_ask *ask, const json_t *question)
{
    look_up(ask, question, hold_found);
}
