/*
 * request.c - a client that wants GPUs, from its question until it has a place in the queue; and what is undone of it when it goes.
 *
 * It gets them at once where nobody waits and they are free (grants.c). Else its request is written under requests/, by a transaction that
 * compares that neither that nor a lease of this id is there; the watch brings it back, and it is decided on with all the others.
 *
 * A server at rest hands the request to another that decides (handing.c).
 *
 * Without etcd it is refused. A transaction that is not answered may have been done: its answer comes later, or it is undone. One thread.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <string.h>
#include <unistd.h>

#define TRIES_MAX 4u /* of a grant at once, until it has a place in the queue */

void rg_ask_undo_lease(const struct rg_agent_ask *ask)
{
    rg_agent_undo(ask->agent, rg_agent_key(ask->agent, "leases/%s", ask->lease));
}

void rg_ask_undo(const struct rg_agent_ask *ask)
{
    rg_agent_undo(ask->agent, rg_agent_key(ask->agent, "requests/%s", ask->id));
    if (ask->unsure && !ask->chosen)
        rg_ask_undo_lease(ask);
}

void rg_ask_leave(struct rg_agent_ask *ask)
{
    switch (ask->state) {
    case RG_ASK_LOOKING:
    case RG_ASK_AGAIN:
        break;
    case RG_ASK_WAITING:
        rg_ask_undo(ask);
        break;
    case RG_ASK_HOLDING:
        rg_hold_give_back(ask);
        return;
    default: /* its answer comes */
        close(ask->socket);
        ask->socket = -1;
        return;
    }
    rg_ask_end(ask);
}

/* Whether the request that is there is the one that was to be written. */
static bool is_ours(struct rg_agent_ask *ask, const json_t *responses)
{
    const struct rg_agent *agent = ask->agent;
    json_t *request = rg_agent_value(
        json_object_get(json_object_get(json_array_get(responses, 1), "response_range"), "kvs"),
        &ask->written);
    bool ours = request && strcmp(rg_json_get_text(request, "agent"), agent->run) == 0;
    json_decref(request);
    for (uint32_t i = 0; i < agent->n_asks && ours; i++)
        ours = agent->asks[i] == ask || strcmp(agent->asks[i]->id, ask->id) != 0;
    return ours;
}

/* Its request is there already, or its lease: somebody has asked by the same id. */
static void asked_before(struct rg_agent_ask *ask, const json_t *reply)
{
    const json_t *responses = json_object_get(reply, "responses");
    json_t *lease = rg_agent_value(
        json_object_get(json_object_get(json_array_get(responses, 0), "response_range"), "kvs"),
        &ask->changed);
    if (!lease && is_ours(ask, responses)) {
        if (ask->socket < 0) /* a try whose answer was lost has written it */
            rg_ask_leave(ask);
    } else if (lease && ask->unsure) {
        ask->unsure = false; /* the transaction that was not answered has made it */
        rg_commit_finish(ask, lease);
    } else if (!lease) {
        rg_ask_refuse_as(
            ask, "lease-busy",
            "the lease of this id is being asked for by another connection at this moment; try again");
    } else if (!rg_wish_is_same(lease, ask->request)) {
        rg_ask_refuse_as(
            ask, "lease-taken",
            "there is a lease of this id with another wish (user, project, GPUs, memory, filters or "
            "spread); choose another id, or release it");
    } else {
        rg_ask_answer(ask, rg_leases_granted(ask->lease, lease));
    }
    json_decref(lease);
}

static void queued(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    ask->state = RG_ASK_WAITING;
    rg_agent_changed(ask->agent); /* the watch may have been faster, and been looked at without it */
    if (status != RG_OK) {
        rg_ask_undo(ask); /* it may have arrived */
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later", why);
    } else if (!json_is_true(json_object_get(reply, "succeeded"))) {
        asked_before(ask, reply);
    } else if (ask->socket < 0) {
        rg_ask_leave(ask);
    } else {
        ask->written = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        ask->since_ns = rg_now_ns();
    }
    /* the watch brings it back, and with it the decision */
}

static uint64_t at_most(uint64_t number, uint64_t most)
{
    return number < most ? number : most;
}

bool rg_ask_is_one_too_many(const struct rg_agent_ask *ask)
{
    const struct rg_pool_mirror *mirror = &ask->agent->mirror;
    uint32_t n = 0;
    for (uint32_t i = 0; i < mirror->n_requests && strcmp(mirror->requests[i]->id, ask->id) != 0; i++)
        n += strcmp(rg_json_get_text(mirror->requests[i]->value, "user"), ask->owner) == 0;
    return n >= RG_POOL_REQUESTS_OF_ONE_MAX;
}

void rg_ask_refuse_one_too_many(struct rg_agent_ask *ask)
{
    rg_ask_refuse_as(ask, "lease-requests",
                     "%u requests of %s wait in the pool, and of one user there are no more: ask again when "
                     "some of them have been granted",
                     RG_POOL_REQUESTS_OF_ONE_MAX, ask->owner_name[0] ? ask->owner_name : "this address");
}

void rg_ask_queue(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    /* of an id that its client has chosen, or of one whose transaction was not answered, the lease may be there */
    if (!ask->chosen && !ask->unsure && rg_ask_is_one_too_many(ask)) {
        rg_ask_refuse_one_too_many(ask);
        return;
    }
    ask->state = RG_ASK_QUEUEING;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o, o], s:[o], s:[{s:{s:o}}, {s:{s:o}}]}", "compare",
                           rg_agent_compare(0, rg_agent_key(agent, "requests/%s", ask->id)),
                           rg_agent_compare(0, rg_agent_key(agent, "leases/%s", ask->id)), "success",
                           rg_agent_put(rg_agent_key(agent, "requests/%s", ask->id),
                                        json_incref(ask->request), agent->membership.etcd_lease),
                           "failure", "request_range", "key", rg_agent_key(agent, "leases/%s", ask->id),
                           "request_range", "key", rg_agent_key(agent, "requests/%s", ask->id)),
                 queued, ask);
}

void rg_ask_go(struct rg_agent_ask *ask)
{
    if (!rg_grants_at_once(ask))
        rg_ask_queue(ask);
}

void rg_ask_again(struct rg_agent_ask *ask, int64_t revision)
{
    if (++ask->tries >= TRIES_MAX) {
        rg_ask_queue(ask);
        return;
    }
    ask->state = RG_ASK_AGAIN;
    ask->written = revision;
    ask->since_ns = rg_now_ns();
}

void rg_request_take(struct rg_agent_ask *ask, const json_t *question)
{
    struct rg_agent *agent = ask->agent;
    const json_t *wait = json_object_get(question, "wait");
    const uint64_t seconds = rg_json_get_number(question, "wait", 0);
    char why[1024] = "";
    if (!rg_wish_read(ask, question, ask->max_gpus))
        return;
    if (!rg_agent_is_in(agent)) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later",
                         agent->membership.why[0] ? agent->membership.why : "this server is not in it yet");
        return;
    }
    if (!ask->handed && !rg_grants_admissible(agent, ask->request, why, sizeof why)) {
        rg_ask_refuse_as(ask, "lease-impossible", "%s", why);
        return;
    }
    ask->waits = wait != NULL;
    ask->until_ns =
        json_is_integer(wait) ? rg_now_ns() + at_most(seconds, 365 * 86400) * 1000000000u : UINT64_MAX;
    void (*go)(struct rg_agent_ask *) = ask->handed ? rg_handing_begin : rg_ask_go;
    /* else its sessions are judged, and it lasts as long as they; but what it holds counts to its project from now on */
    if (json_is_true(json_object_get(ask->request, "kept")) || *rg_json_get_text(ask->request, "project") ||
        ask->priority || agent->settings.rules)
        rg_quotas_judge(ask, false, go);
    else
        go(ask);
}
