/*
 * hold.c - leases whose client's connection was lost, and clients that come back for theirs.
 *
 * The process of such a client may live, and start another program: it asks to hold its lease again, of this server or another one. Each
 * connection that holds a lease writes a number of its own to it (`hold`), so that one whose loss is noticed late does not take it from the
 * next. Until somebody comes back, the lease is left to the sessions that run by it (own.c).
 *
 * What etcd does not answer is tried again: nothing is undone, as the client may hold its lease by another server meanwhile. One thread.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <string.h>
#include <unistd.h>

#define AGAIN_NS 300000000ull

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

uint64_t rg_hold_look(struct rg_agent_ask *ask)
{
    if (rg_now_ns() < ask->since_ns + AGAIN_NS)
        return ask->since_ns + AGAIN_NS;
    ask->state = RG_ASK_ENDING;
    look_at_lost(ask);
    return UINT64_MAX;
}

void rg_hold_entrust(struct rg_agent_ask *ask)
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
            rg_hold_entrust(ask);
    }
}

static void hold_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = rg_leases_looked_up(ask, status, reply, why);
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

void rg_hold_resume(struct rg_agent_ask *ask, const json_t *question)
{
    rg_leases_look_up(ask, question, hold_found);
}
