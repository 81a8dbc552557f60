/*
 * hold.c - leases that last as long as their client is connected: what becomes of one whose connection has ended or was lost, and clients
 * that come back for theirs.
 *
 * The process of a client whose connection was lost may live, and start another program: it asks to hold its lease again, of this server or
 * another one. Each connection that holds a lease writes a number of its own to it (`hold`), so that one whose loss or end is noticed late
 * does not take it from the next. Its client is told that number, and asks by it: a lease that another process holds by now is not taken
 * from that. Until somebody comes back, the lease is left to the sessions that run by it (own.c).
 *
 * What etcd does not answer is tried again: nothing is undone, as the client may hold its lease by another server meanwhile. One thread.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_NS 300000000ull

json_t *rg_hold_granted(const struct rg_agent_ask *ask, const json_t *value)
{
    json_t *answer = rg_leases_granted(ask->lease, value);
    if (answer && *ask->hold)
        (void)json_object_set_new(answer, "hold", json_string(ask->hold));
    return answer;
}

/* --- a client that is lost, or has ended ------------------------------------------------------------------------------- */

/* Writes a lease as it is to be from now on, if it is still as it was read; it stays bound to what it is bound to. */
static void rewrite(struct rg_agent_ask *ask, const json_t *value, rg_etcd_done *done)
{
    struct rg_agent *agent = ask->agent;
    json_t *put = rg_agent_put(rg_agent_key(agent, "leases/%s", ask->lease),
                               json_copy((json_t *)(uintptr_t)value), 0),
           *request = json_object_get(put, "request_put");
    (void)json_object_del(request, "lease");
    (void)json_object_set_new(request, "ignore_lease", json_true());
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o]}", "compare",
                           rg_agent_compare(ask->changed, rg_agent_key(agent, "leases/%s", ask->lease)),
                           "success", put),
                 done, ask);
}

static void look_at_lost(struct rg_agent_ask *ask);

/* It is left to its sessions, or removed. */
static void left(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK) { /* meanwhile its client may hold it by another server: nothing is undone */
        rg_debug("lease %s: that its client has gone is not told yet: %s", ask->lease, why);
        ask->state = RG_ASK_LOST;
        ask->since_ns = rg_now_ns();
        rg_agent_changed(ask->agent);
    } else if (!json_is_true(json_object_get(reply, "succeeded"))) {
        look_at_lost(ask); /* it has changed meanwhile */
    } else {
        rg_ask_end(ask);
    }
}

static void remove_lease(struct rg_agent_ask *ask)
{
    const struct rg_agent *agent = ask->agent;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o]}", "compare",
                           rg_agent_compare(ask->changed, rg_agent_key(agent, "leases/%s", ask->lease)),
                           "success", rg_agent_remove(rg_agent_key(agent, "leases/%s", ask->lease))),
                 left, ask);
}

/* If no other connection holds it by now. */
static void lost_found(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    json_t *value = status == RG_OK ? rg_agent_value(json_object_get(reply, "kvs"), &ask->changed) : NULL;
    if (status != RG_OK) {
        left(ask, status, NULL, why);
    } else if (!value || strcmp(rg_json_get_text(value, "hold"), ask->hold) != 0) {
        rg_debug("lease %s: it is over, or is held elsewhere", ask->lease);
        rg_ask_end(ask);
    } else if (ask->gives_back) {
        remove_lease(ask);
    } else {
        (void)json_object_set_new(value, "holder", json_string(""));
        rewrite(ask, value, left);
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

static void hang_up(struct rg_agent_ask *ask)
{
    if (ask->socket >= 0)
        close(ask->socket);
    ask->socket = -1;
    ask->state = RG_ASK_ENDING;
}

void rg_hold_entrust(struct rg_agent_ask *ask, const char *why)
{
    rg_info("lease %s: %s; it lasts as long as sessions run by it, and %d s", ask->lease, why,
            RG_RECONNECT_S);
    hang_up(ask);
    look_at_lost(ask);
}

void rg_hold_give_back(struct rg_agent_ask *ask)
{
    hang_up(ask);
    ask->gives_back = true;
    remove_lease(ask);
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
        json_t *answer = rg_hold_granted(ask, ask->grant);
        const bool told = rg_ask_tell(ask, answer);
        ask->changed = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        json_decref(answer);
        forget_others(ask);
        rg_info("lease %s: its client has come back", ask->lease);
        ask->state = RG_ASK_HOLDING;
        if (!told)
            rg_hold_entrust(ask, RG_HOLD_LOST);
    }
}

/* By what its client says that it held it last, it is another's by now. A client of a version before says nothing. */
static bool is_held_by_another(const struct rg_agent_ask *ask, const json_t *value)
{
    return *ask->hold && *rg_json_get_text(value, "holder") &&
           strcmp(rg_json_get_text(value, "hold"), ask->hold) != 0;
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
    if (is_held_by_another(ask, value)) {
        json_decref(value);
        rg_ask_refuse_as(ask, "lease-busy", "another process, or another connection, holds the lease");
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
    snprintf(ask->hold, sizeof ask->hold, "%.16s", rg_json_get_text(question, "hold"));
    rg_leases_look_up(ask, question, hold_found);
}
