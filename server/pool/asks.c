/*
 * asks.c - clients that ask something of the pool: what there is, GPUs, that a lease is given back.
 *
 * A question and each answer is a JSON object (docs/pool.md). One that wants GPUs is written under requests/, comes back by the
 * watch, and is decided on with all the others (grants.c). The client is told of its waiting, then of its lease, and holds that
 * by staying connected; if the lease is to be kept, it goes. Who leaves earlier leaves nothing behind: what is under way is undone
 * when its answer comes.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIST_ROOM    (RG_ANSWER_SIZE_MAX - 16384) /* a member more fits behind it */
#define KEPT_DEFAULT (8 * 3600)
#define KEPT_MOST    (30 * 86400)

/* --- telling ------------------------------------------------------------------------------------------------------ */

bool rg_ask_tell(struct rg_agent_ask *ask, const json_t *answer)
{
    RG_CLEANUP_FREE char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (ask->socket < 0 || !text || strlen(text) > RG_ANSWER_SIZE_MAX)
        return false;
    return send(ask->socket, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

void rg_ask_end(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i] == ask) {
            agent->asks[i] = agent->asks[--agent->n_asks];
            break;
        }
    if (ask->socket >= 0)
        close(ask->socket);
    json_decref(ask->request);
    json_decref(ask->grant);
    free(ask);
}

void rg_ask_refuse(struct rg_agent_ask *ask, const char *why)
{
    json_t *answer = json_pack("{s:s, s:s}", "state", "refused", "why", why);
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

static void undo_request(const struct rg_agent_ask *ask)
{
    char key[40];
    snprintf(key, sizeof key, "requests/%s", ask->id);
    rg_agent_undo(ask->agent, key);
}

void rg_ask_leave(struct rg_agent_ask *ask)
{
    char key[40];
    switch (ask->state) {
    case RG_ASK_WAITING:
        undo_request(ask);
        break;
    case RG_ASK_HOLDING:
        snprintf(key, sizeof key, "leases/%s", ask->lease);
        rg_agent_undo(ask->agent, key);
        break;
    default: /* its answer comes */
        close(ask->socket);
        ask->socket = -1;
        return;
    }
    rg_ask_end(ask);
}

/* --- what there is -------------------------------------------------------------------------------------------------- */

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
        const struct rg_pool_held *held = rg_pool_mirror_lease(&agent->mirror, share->lease);
        const bool own = held && is_own(held->value, key, is_operator);
        free_bytes -= share->memory < free_bytes ? share->memory : free_bytes;
        json_array_append_new(leases,
                              json_pack("{s:s*, s:s*, s:I}", "lease", own ? share->lease : NULL, "name",
                                        held ? rg_pool_get_text(held->value, "name", "") : NULL, "memory",
                                        (json_int_t)share->memory));
    }
    return json_pack("{s:i, s:s, s:s, s:I, s:I, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid, "name",
                     gpu->name, "memory", (json_int_t)gpu->memory, "free", (json_int_t)free_bytes, "granted",
                     leases);
}

static json_t *member_json(const struct rg_agent *agent, const struct rg_pool_member *member, const char *key,
                           bool is_operator)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < member->n_gpus; i++)
        json_array_append_new(gpus, gpu_json(agent, member->gpus[i], key, is_operator));
    json_t *labels = json_object_get(member->value, "labels");
    return json_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:b, s:b, s:O*, s:o}", "id", member->id, "address",
                     member->address, "host", member->host, "cuda", member->cuda, "driver", member->driver,
                     "rdma", (int)member->rdma, "draining", (int)member->draining, "labels", labels, "gpus",
                     gpus);
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

/* Kept leases of whoever asks: they may have no GPU of the members that are told of. */
static json_t *leases_json(const struct rg_agent *agent, const char *key, bool is_operator)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < agent->mirror.n_leases && json_array_size(out) < 64; i++) {
        const json_t *value = agent->mirror.leases[i]->value;
        const uint64_t seconds = rg_pool_get_number(value, "seconds", 0);
        if (is_own(value, key, is_operator))
            json_array_append_new(out, json_pack("{s:s, s:s, s:b, s:i, s:I, s:I}", "lease",
                                                 agent->mirror.leases[i]->id, "name",
                                                 rg_pool_get_text(value, "name", ""), "kept",
                                                 json_is_true(json_object_get(value, "kept")), "gpus",
                                                 (int)json_array_size(json_object_get(value, "gpus")),
                                                 "since", (json_int_t)rg_pool_get_number(value, "since", 0),
                                                 "seconds", (json_int_t)seconds));
    }
    return out;
}

json_t *rg_asks_list(const struct rg_agent *agent, const char *key, bool is_operator, uint64_t from)
{
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
    return json_pack("{s:s, s:s, s:s, s:o, s:i, s:o*, s:o*, s:o}", "state", "list", "pool",
                     agent->settings.pool, "etcd", agent->membership.why, "servers", members, "waiting",
                     (int)agent->mirror.n_requests, "requests",
                     from ? NULL : requests_json(agent, key, is_operator), "leases",
                     from ? NULL : leases_json(agent, key, is_operator), "next",
                     more ? json_integer((json_int_t)at) : json_null());
}

/* --- giving back ------------------------------------------------------------------------------------------------------- */

static void released(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK) {
        char text[RG_ETCD_WHY + 64];
        snprintf(text, sizeof text, "the lease could not be given back: %s", why);
        rg_ask_refuse(ask, text);
        return;
    }
    json_t *answer = json_pack("{s:s, s:s}", "state", "released", "lease", ask->lease);
    if (rg_etcd_get_number(reply, "deleted") > 0)
        (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    if (rg_etcd_get_number(reply, "deleted") > 0)
        rg_ask_end(ask);
    else
        rg_ask_refuse(ask, "there is no such lease any more: it was given back, or its time was over");
}

static void release(struct rg_agent_ask *ask, const json_t *question)
{
    const char *id = rg_pool_get_text(question, "lease", "");
    const struct rg_pool_held *held =
        rg_pool_is_id(id) ? rg_pool_mirror_lease(&ask->agent->mirror, id) : NULL;
    char key[40];
    if (!held) {
        rg_ask_refuse(
            ask, "there is no such lease: it was given back, its time is over, or a server of it is gone");
        return;
    }
    if (!is_own(held->value, ask->key, ask->is_operator)) {
        rg_ask_refuse(ask, "the lease is somebody else's");
        return;
    }
    snprintf(ask->lease, sizeof ask->lease, "%s", id);
    snprintf(key, sizeof key, "leases/%s", id);
    ask->state = RG_ASK_ENDING;
    rg_etcd_call(ask->agent->etcd, "/v3/kv/deleterange",
                 json_pack("{s:o}", "key", rg_agent_key(ask->agent, "%s", key)), released, ask);
}

/* Where the servers of a kept lease are. */
static void find(struct rg_agent_ask *ask, const json_t *question)
{
    const struct rg_agent *agent = ask->agent;
    const char *id = rg_pool_get_text(question, "lease", "");
    const struct rg_pool_held *held = rg_pool_is_id(id) ? rg_pool_mirror_lease(&agent->mirror, id) : NULL;
    if (!held || !is_own(held->value, ask->key, ask->is_operator)) {
        rg_ask_refuse(
            ask, "you have no such lease: it was given back, its time is over, or a server of it is gone; "
                 "remote-gpu list shows those that you have");
        return;
    }
    json_t *answer = json_pack("{s:s, s:s, s:O}", "state", "granted", "lease", held->id, "gpus",
                               json_object_get(held->value, "gpus"));
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

/* --- asking for GPUs ---------------------------------------------------------------------------------------------------- */

static void queued(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    char text[RG_ETCD_WHY + 64];
    (void)reply;
    ask->state = RG_ASK_WAITING;
    if (status != RG_OK) {
        undo_request(ask); /* it may have arrived */
        snprintf(text, sizeof text, "the pool cannot grant GPUs now: %s; try again later", why);
        rg_ask_refuse(ask, text);
    } else if (ask->socket < 0) {
        undo_request(ask);
        rg_ask_end(ask);
    }
    /* the watch brings it back, and with it the decision */
}

static json_t *filters_of(const json_t *question)
{
    json_t *given = json_object_get(question, "filters");
    return json_is_array(given) && json_array_size(given) <= RG_POOL_FILTERS_MAX ? json_incref(given)
                                                                                 : json_array();
}

static uint64_t at_most(uint64_t number, uint64_t most)
{
    return number < most ? number : most;
}

/* What is written under requests/. */
static json_t *request_json(const struct rg_agent_ask *ask, const json_t *question)
{
    const bool kept = json_is_true(json_object_get(question, "kept"));
    const uint64_t seconds = rg_pool_get_number(question, "seconds", kept ? KEPT_DEFAULT : 0);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:b, s:b, s:I, s:I}", "user", ask->key, "name", ask->name,
        "project", rg_pool_get_text(question, "project", ""), "agent", ask->agent->run, "gpus",
        (json_int_t)at_most(rg_pool_get_number(question, "gpus", 1), RG_POOL_GPUS_MAX + 1), "memory",
        (json_int_t)at_most(rg_pool_get_number(question, "memory", 0), INT64_MAX), "fraction",
        (json_int_t)at_most(rg_pool_get_number(question, "fraction", 0), 1000000), "filters",
        filters_of(question), "spread", json_is_true(json_object_get(question, "spread")), "kept", (int)kept,
        "seconds", (json_int_t)at_most(seconds, KEPT_MOST), "since", (json_int_t)rg_agent_time(ask->agent));
}

static void request(struct rg_agent_ask *ask, const json_t *question, uint32_t max_gpus)
{
    struct rg_agent *agent = ask->agent;
    const json_t *wait = json_object_get(question, "wait");
    const uint64_t seconds = rg_pool_get_number(question, "wait", 0);
    char why[1024] = "", key[40];
    ask->request = request_json(ask, question);
    const uint64_t gpus = rg_pool_get_number(ask->request, "gpus", 0);
    if (gpus == 0 || gpus > RG_POOL_GPUS_MAX || (max_gpus && gpus > max_gpus)) {
        snprintf(why, sizeof why, "%" PRIu64 " GPUs were asked for, and you may have 1 to %u at once", gpus,
                 max_gpus && max_gpus < RG_POOL_GPUS_MAX ? max_gpus : RG_POOL_GPUS_MAX);
        rg_ask_refuse(ask, why);
        return;
    }
    if (!rg_agent_is_in(agent)) {
        snprintf(why, sizeof why, "the pool cannot grant GPUs now: %s; try again later",
                 agent->membership.why[0] ? agent->membership.why : "this server is not in it yet");
        rg_ask_refuse(ask, why);
        return;
    }
    if (!rg_grants_admissible(agent, ask->request, why, sizeof why)) {
        rg_ask_refuse(ask, why);
        return;
    }
    if (!rg_pool_make_id(ask->id)) {
        rg_ask_refuse(ask, "the server has no randomness; try again");
        return;
    }
    ask->waits = wait != NULL;
    ask->until_ns =
        json_is_integer(wait) ? rg_now_ns() + at_most(seconds, 365 * 86400) * 1000000000u : UINT64_MAX;
    ask->state = RG_ASK_QUEUEING;
    snprintf(key, sizeof key, "requests/%s", ask->id);
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o]}", "success",
                           rg_agent_put(agent, key, json_incref(ask->request), agent->membership.etcd_lease)),
                 queued, ask);
}

/* --- questions ------------------------------------------------------------------------------------------------------------- */

static json_t *read_question(int file, uint32_t size)
{
    RG_CLEANUP_FREE char *text = size && size <= RG_QUESTION_SIZE_MAX ? malloc(size) : NULL;
    if (!text || pread(file, text, size, 0) != (ssize_t)size)
        return NULL;
    json_t *question = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(question))
        return question;
    json_decref(question);
    return NULL;
}

static void serve(struct rg_agent_ask *ask, const json_t *question, uint32_t max_gpus)
{
    const char *verb = rg_pool_get_text(question, "ask", "");
    if (strcmp(verb, "list") == 0) {
        json_t *answer =
            rg_asks_list(ask->agent, ask->key, ask->is_operator, rg_pool_get_number(question, "from", 0));
        (void)rg_ask_tell(ask, answer);
        json_decref(answer);
        rg_ask_end(ask);
    } else if (strcmp(verb, "request") == 0) {
        request(ask, question, max_gpus);
    } else if (strcmp(verb, "find") == 0) {
        find(ask, question);
    } else if (strcmp(verb, "release") == 0) {
        release(ask, question);
    } else {
        rg_ask_refuse(
            ask, "the server does not understand the question: it is of another version than the client");
    }
}

void rg_asks_take(struct rg_agent *agent, const struct rg_agent_word *word, int socket, int file)
{
    struct rg_agent_ask **grown = agent->n_asks < RG_POOL_CLIENTS_MAX
                                      ? realloc(agent->asks, (agent->n_asks + 1) * sizeof *grown)
                                      : NULL;
    struct rg_agent_ask *ask = grown ? calloc(1, sizeof *ask) : NULL;
    if (grown)
        agent->asks = grown;
    if (!ask) {
        close(socket);
        return;
    }
    *ask = (struct rg_agent_ask){
        .agent = agent, .socket = socket, .state = RG_ASK_ENDING, .is_operator = word->ask.is_operator != 0};
    snprintf(ask->key, sizeof ask->key, "%.*s", (int)sizeof ask->key - 1, word->ask.key);
    snprintf(ask->name, sizeof ask->name, "%.*s", (int)sizeof ask->name - 1, word->ask.name);
    agent->asks[agent->n_asks++] = ask;
    json_t *question = read_question(file, word->ask.size);
    if (question)
        serve(ask, question, word->ask.max_gpus);
    else
        rg_ask_refuse(ask, "what was asked is not understood");
    json_decref(question);
}
