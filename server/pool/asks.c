/*
 * asks.c - clients that ask something of the pool: what there is (listing.c), GPUs, something about a lease (leases.c).
 *
 * A question and each answer is a JSON object (docs/pool.md). One that wants GPUs gets them at once where nobody waits and they are
 * free; else it is written under requests/, comes back by the watch, and is decided on with all the others (grants.c). The client is
 * told of its waiting, then of its lease, and holds that by staying connected; if the lease is to be kept, it goes. Who leaves earlier
 * leaves nothing behind: what is under way is undone when its answer comes.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_NS   5000000000ull
#define TRIES_MAX 4u          /* of a grant at once, until it has a place in the queue */
#define AGAIN_NS  50000000ull /* for what others have done: etcd's revision may be another pool's */

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
    if (!ask->unsure || !ask->chosen) /* then a lease may be bound to it, which its client comes back to */
        rg_agent_revoke(agent, ask->etcd_lease);
    json_decref(ask->question);
    json_decref(ask->request);
    json_decref(ask->grant);
    free(ask);
}

void rg_ask_refuse(struct rg_agent_ask *ask, const char *why)
{
    char text[1500];
    snprintf(text, sizeof text, "%s", why);
    rg_printable_clean(text);
    json_t *answer = json_pack("{s:s, s:s}", "state", "refused", "why", text);
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

void rg_ask_refuse_as(struct rg_agent_ask *ask, const char *code, const char *format, ...)
{
    char words[1400], text[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    rg_printable_clean(words); /* names that were cut within a character would be no JSON */
    snprintf(text, sizeof text, "%s [%s]", words, code);
    json_t *answer = json_pack("{s:s, s:s, s:s}", "state", "refused", "why", text, "code", code);
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

bool rg_ask_may(const struct rg_agent_ask *ask, const json_t *value)
{
    const bool bearer = json_is_true(json_object_get(value, "bearer")) && !ask->name[0];
    return ask->is_operator || bearer || strcmp(rg_pool_get_text(value, "user", ""), ask->key) == 0;
}

static void undo_request(const struct rg_agent_ask *ask)
{
    char key[40];
    snprintf(key, sizeof key, "requests/%s", ask->id);
    rg_agent_undo(ask->agent, key);
}

static void undo_lease(const struct rg_agent_ask *ask)
{
    char key[40];
    snprintf(key, sizeof key, "leases/%s", ask->lease);
    rg_agent_undo(ask->agent, key);
}

void rg_ask_leave(struct rg_agent_ask *ask)
{
    switch (ask->state) {
    case RG_ASK_LOOKING:
    case RG_ASK_AGAIN:
        break;
    case RG_ASK_WAITING:
        undo_request(ask);
        if (ask->unsure && !ask->chosen)
            undo_lease(ask);
        break;
    case RG_ASK_HOLDING:
        undo_lease(ask);
        break;
    default: /* its answer comes */
        close(ask->socket);
        ask->socket = -1;
        return;
    }
    rg_ask_end(ask);
}

/* --- asking for GPUs ---------------------------------------------------------------------------------------------------- */

/* Whether the request that is there is the one that was to be written. */
static bool is_ours(struct rg_agent_ask *ask, const json_t *responses)
{
    const struct rg_agent *agent = ask->agent;
    json_t *request = rg_agent_value(
        json_object_get(json_object_get(json_array_get(responses, 1), "response_range"), "kvs"),
        &ask->written);
    bool ours = request && strcmp(rg_pool_get_text(request, "agent", ""), agent->run) == 0;
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
        json_object_get(json_object_get(json_array_get(responses, 0), "response_range"), "kvs"), NULL);
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
        json_t *answer = rg_leases_granted(ask->lease, lease);
        (void)rg_ask_tell(ask, answer);
        json_decref(answer);
        rg_ask_end(ask);
    }
    json_decref(lease);
}

static void queued(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    ask->state = RG_ASK_WAITING;
    rg_agent_changed(ask->agent); /* the watch may have been faster, and been looked at without it */
    if (status != RG_OK) {
        undo_request(ask); /* it may have arrived */
        if (ask->unsure && !ask->chosen)
            undo_lease(ask);
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later", why);
    } else if (!json_is_true(json_object_get(reply, "succeeded"))) {
        asked_before(ask, reply);
    } else if (ask->socket < 0) {
        undo_request(ask);
        rg_ask_end(ask);
    } else {
        ask->written = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
    }
    /* the watch brings it back, and with it the decision */
}

static uint64_t at_most(uint64_t number, uint64_t most)
{
    return number < most ? number : most;
}

void rg_ask_queue(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    char request[40], lease[40];
    snprintf(request, sizeof request, "requests/%s", ask->id);
    snprintf(lease, sizeof lease, "leases/%s", ask->id);
    ask->state = RG_ASK_QUEUEING;
    rg_etcd_call(
        agent->etcd, "/v3/kv/txn",
        json_pack("{s:[o, o], s:[o], s:[{s:{s:o}}, {s:{s:o}}]}", "compare",
                  rg_agent_compare(agent, 0, request), rg_agent_compare(agent, 0, lease), "success",
                  rg_agent_put(agent, request, json_incref(ask->request), agent->membership.etcd_lease),
                  "failure", "request_range", "key", rg_agent_key(agent, "%s", lease), "request_range", "key",
                  rg_agent_key(agent, "%s", request)),
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

static void request(struct rg_agent_ask *ask, const json_t *question)
{
    struct rg_agent *agent = ask->agent;
    const json_t *wait = json_object_get(question, "wait");
    const uint64_t seconds = rg_pool_get_number(question, "wait", 0);
    char why[1024] = "";
    if (!rg_wish_read(ask, question, ask->max_gpus))
        return;
    if (!rg_agent_is_in(agent)) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later",
                         agent->membership.why[0] ? agent->membership.why : "this server is not in it yet");
        return;
    }
    if (!rg_grants_admissible(agent, ask->request, why, sizeof why)) {
        rg_ask_refuse_as(ask, "lease-impossible", "%s", why);
        return;
    }
    ask->waits = wait != NULL;
    ask->until_ns =
        json_is_integer(wait) ? rg_now_ns() + at_most(seconds, 365 * 86400) * 1000000000u : UINT64_MAX;
    /* else its sessions are judged, and it lasts as long as they; but what it holds counts to its project from now on */
    if (json_is_true(json_object_get(ask->request, "kept")) || *rg_pool_get_text(ask->request, "project", ""))
        rg_leases_judge(ask, false, rg_ask_go);
    else
        rg_ask_go(ask);
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

static void list(struct rg_agent_ask *ask, const json_t *question)
{
    json_t *answer =
        rg_listing_pool(ask->agent, ask->key, ask->is_operator, rg_pool_get_number(question, "from", 0),
                        rg_pool_get_text(question, "machine", ""));
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

static void list_leases(struct rg_agent_ask *ask, const json_t *question)
{
    json_t *answer =
        rg_listing_leases(ask->agent, ask->key, ask->is_operator, rg_pool_get_text(question, "after", ""));
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

static void usage(struct rg_agent_ask *ask, const json_t *question)
{
    json_t *answer = rg_agent_usage_json(ask->agent, ask->key, ask->is_operator,
                                         rg_pool_get_text(question, "project", ""));
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

/* What takes all of the pool, and what asks etcd itself. */
static const struct verb {
    const char *name;
    void (*serve)(struct rg_agent_ask *ask, const json_t *question);
    bool whole;
} verbs[] = {{"request", request, true},           {"list", list, true},
             {"leases", list_leases, true},        {"usage", usage, true},
             {"measured", rg_links_take, true},    {"renew", rg_leases_renew, true},
             {"find", rg_leases_find, false},      {"hold", rg_leases_hold, false},
             {"release", rg_leases_release, false}};

static const struct verb *verb_of(const json_t *question)
{
    const char *name = rg_pool_get_text(question, "ask", "");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(name, verbs[i].name) == 0)
            return &verbs[i];
    return NULL;
}

/* Whether the question has to wait until all of the pool has been read. */
static bool must_look(const struct rg_agent_ask *ask)
{
    const struct rg_agent *agent = ask->agent;
    const bool unreachable = agent->membership.why[0] || *rg_etcd_watch_why(agent->etcd);
    return ask->whole && agent->mirror.revision && !unreachable && !rg_scope_is_whole(agent) &&
           rg_now_ns() < ask->since_ns + LOOK_NS;
}

static void serve(struct rg_agent_ask *ask, const json_t *question)
{
    const struct verb *verb = verb_of(question);
    ask->whole = verb && verb->whole;
    if (must_look(ask)) {
        ask->state = RG_ASK_LOOKING;
        ask->question = json_incref((json_t *)(uintptr_t)question);
        return;
    }
    if (ask->whole && verb->serve != list && ask->agent->mirror.revision && !rg_scope_is_whole(ask->agent)) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot be reached: %s; try again later",
                         ask->agent->membership.why[0] ? ask->agent->membership.why
                                                       : "etcd takes too long to tell what there is");
        return;
    }
    if (verb) {
        verb->serve(ask, question);
        return;
    }
    rg_ask_refuse_as(ask, "lease-question",
                     "the server does not understand the question: it is of another version than the client");
}

/* Whether what others have done faster has been told, or does not come. */
static bool knows_others(const struct rg_agent_ask *ask, uint64_t *due)
{
    const uint64_t end = ask->since_ns + AGAIN_NS;
    if (ask->agent->mirror.revision >= ask->written || rg_now_ns() >= end)
        return true;
    *due = end < *due ? end : *due;
    return false;
}

uint64_t rg_asks_look(struct rg_agent *agent)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        if (ask->state == RG_ASK_AGAIN && knows_others(ask, &due)) {
            rg_ask_go(ask);
            i += i < agent->n_asks && agent->asks[i] == ask;
            continue;
        }
        if (ask->state == RG_ASK_LOST) {
            const uint64_t again = rg_leases_look(ask);
            due = again < due ? again : due;
        }
        if (ask->state != RG_ASK_LOOKING || must_look(ask)) {
            due =
                ask->state == RG_ASK_LOOKING && ask->since_ns + LOOK_NS < due ? ask->since_ns + LOOK_NS : due;
            i++;
            continue;
        }
        json_t *question = ask->question;
        ask->question = NULL;
        ask->state = RG_ASK_ENDING;
        serve(ask, question);
        json_decref(question);
        i += i < agent->n_asks && agent->asks[i] == ask; /* else another has taken its place in the list */
    }
    return due;
}

/* Whether another client can be answered. Else it is told why not, and gone. */
static bool has_room(struct rg_agent_ask *ask)
{
    const struct rg_agent *agent = ask->agent;
    uint32_t n = 0;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        n += agent->asks[i]->socket >= 0 && strcmp(agent->asks[i]->key, ask->key) == 0;
    if (agent->n_asks >= RG_POOL_CLIENTS_MAX)
        rg_ask_refuse_as(ask, "lease-clients",
                         "this server has too many clients of the pool; ask another of its servers");
    else if (n >= RG_POOL_CLIENTS_OF_ONE_MAX)
        rg_ask_refuse_as(ask, "lease-clients",
                         "this server has as many clients of the pool of yours as it takes of one user: ask "
                         "another of its "
                         "servers, or release leases");
    else
        return true;
    return false;
}

void rg_asks_take(struct rg_agent *agent, const struct rg_agent_word *word, int socket, int file)
{
    struct rg_agent_ask **grown = realloc(agent->asks, (agent->n_asks + 1) * sizeof *grown);
    struct rg_agent_ask *ask = grown ? calloc(1, sizeof *ask) : NULL;
    agent->asks = grown ? grown : agent->asks;
    if (!ask) {
        close(socket);
        return;
    }
    *ask = (struct rg_agent_ask){.agent = agent,
                                 .socket = socket,
                                 .state = RG_ASK_ENDING,
                                 .max_gpus = word->ask.max_gpus,
                                 .since_ns = rg_now_ns(),
                                 .is_operator = word->ask.is_operator != 0,
                                 .unproved = word->ask.unproved != 0};
    snprintf(ask->key, sizeof ask->key, "%.*s", (int)sizeof ask->key - 1, word->ask.key);
    snprintf(ask->name, sizeof ask->name, "%.*s", (int)sizeof ask->name - 1, word->ask.name);
    if (!has_room(ask))
        return;
    agent->asks[agent->n_asks++] = ask;
    json_t *question = read_question(file, word->ask.size);
    if (question)
        serve(ask, question);
    else
        rg_ask_refuse(ask, "what was asked is not understood");
    json_decref(question);
}
