/*
 * asks.c - clients that ask something of the pool: what there is (listing.c), GPUs (request.c), something about a lease (leases.c, hold.c).
 *
 * A question and each answer is a JSON object (docs/pool.md). Most are answered once, and the connection ends. A client that wants GPUs is
 * told of its waiting, then of its lease, and holds that by staying connected; if the lease is to be kept, it goes. Who leaves earlier
 * leaves nothing behind: what is under way is undone when its answer comes.
 *
 * A question that takes all of the pool waits until that has been read, for five seconds at most; then it is refused. One thread.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS  5000000000ull
#define AGAIN_NS 50000000ull /* for what others have done: etcd's revision may be another pool's */

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
    rg_ask_answer(ask, rg_listing_pool(ask->agent, ask->key, ask->is_operator,
                                       rg_json_get_number(question, "from", 0),
                                       rg_json_get_text(question, "machine")));
}

static void list_leases(struct rg_agent_ask *ask, const json_t *question)
{
    rg_ask_answer(
        ask, rg_listing_leases(ask->agent, ask->key, ask->is_operator, rg_json_get_text(question, "after")));
}

static void list_links(struct rg_agent_ask *ask, const json_t *question)
{
    rg_ask_answer(ask,
                  rg_links_told(ask->agent, ask->key, ask->is_operator, rg_json_get_text(question, "after")));
}

static void usage(struct rg_agent_ask *ask, const json_t *question)
{
    rg_ask_answer(ask, rg_agent_usage_json(ask->agent, ask->key, ask->is_operator, question));
}

/* What takes all of the pool, and what asks etcd itself; of a lease that lasts longer only GPU hours are judged, which its server knows. */
static const struct verb {
    const char *name;
    void (*serve)(struct rg_agent_ask *ask, const json_t *question);
    bool whole;
} verbs[] = {{"request", rg_request_take, true}, {"list", list, true},
             {"leases", list_leases, true},      {"usage", usage, true},
             {"links", list_links, true},        {"measured", rg_links_take, true},
             {"renew", rg_leases_renew, false},  {"find", rg_leases_find, false},
             {"hold", rg_hold_resume, false},    {"release", rg_leases_release, false}};

static const struct verb *verb_of(const json_t *question)
{
    const char *name = rg_json_get_text(question, "ask");
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
    ask->handed = verb && verb->serve == rg_request_take && !ask->counts &&
                  rg_handing_can(ask->agent, question) && rg_pool_make_id(ask->hold);
    ask->whole = verb && verb->whole && !ask->handed;
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
        ask->question = ask->handed ? json_incref((json_t *)(uintptr_t)question) : NULL;
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
            const uint64_t again = rg_hold_look(ask);
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
    for (uint32_t i = 0; i < agent->n_asks;
         i++) /* also of those that have gone, and of which something is under way yet */
        n += strcmp(agent->asks[i]->key, ask->key) == 0;
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
    struct rg_agent_ask *ask = calloc(1, sizeof *ask);
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
                                 .unproved = word->ask.unproved != 0,
                                 .certificate = word->ask.certificate,
                                 .rechecked = agent->stays.rechecks};
    snprintf(ask->key, sizeof ask->key, "%.*s", (int)sizeof ask->key - 1, word->ask.key);
    snprintf(ask->name, sizeof ask->name, "%.*s", (int)sizeof ask->name - 1, word->ask.name);
    if (!has_room(ask))
        return;
    if (!rg_ask_add(agent, ask)) {
        rg_ask_end(ask);
        return;
    }
    json_t *question = read_question(file, word->ask.size);
    if (question)
        serve(ask, question);
    else
        rg_ask_refuse(ask, "what was asked is not understood");
    json_decref(question);
}
