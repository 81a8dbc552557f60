/*
 * quotas.c - whether quotas and rules allow that somebody gets a lease, with which priority, or keeps it for longer.
 *
 * They are the monitor's to know. It is told what the owner and the project hold in the whole pool, and answers by a word; meanwhile the
 * client may have gone, of which nothing is there yet. A server at rest does not know what is held: where a quota is about that, all of the
 * pool is read first. One thread.
 */
#include "server/pool/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What leases of the pool hold whose member `name` is `text`. */
static void count_held(const struct rg_agent *agent, const char *name, const char *text, const char *except,
                       uint64_t *gpus, uint64_t *memory)
{
    for (uint32_t i = 0; i < agent->mirror.n_leases && *text; i++) {
        const struct rg_pool_entry *held = agent->mirror.leases[i];
        uint64_t bytes;
        if (strcmp(rg_json_get_text(held->value, name), text) != 0 || strcmp(held->id, except) == 0)
            continue;
        *gpus += rg_leases_there(agent, held->value, &bytes);
        *memory += bytes < UINT64_MAX - *memory ? bytes : UINT64_MAX - *memory;
    }
}

void rg_quotas_judge(struct rg_agent_ask *ask, bool renews, void (*judged)(struct rg_agent_ask *ask))
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_JUDGE};
    struct rg_agent_judge *out = &answer.judge;
    const json_t *wanted = ask->request;
    const char *user = rg_json_get_text(wanted, "user"), *project = rg_json_get_text(wanted, "project");
    out->number = ask->number = ++ask->agent->judgements;
    ask->judged = judged;
    ask->state = RG_ASK_JUDGING;
    snprintf(out->key, sizeof out->key, "%s", user);
    snprintf(out->project, sizeof out->project, "%.*s", (int)sizeof out->project - 1, project);
    snprintf(out->name, sizeof out->name, "%s", rg_json_get_text(wanted, "name"));
    snprintf(out->by, sizeof out->by, "%s", ask->name);
    out->lease = strtoull(ask->lease, NULL, 16);
    out->renews = renews;
    out->priority = ask->priority;
    out->project_alone = !renews && !json_is_true(json_object_get(wanted, "kept"));
    const json_t *gpus = json_object_get(wanted, "gpus");
    out->gpus = json_is_array(gpus) ? (uint32_t)json_array_size(gpus) : (uint32_t)json_integer_value(gpus);
    const uint64_t memory = rg_json_get_number(wanted, "memory", 0);
    out->memory = out->gpus && memory > UINT64_MAX / out->gpus ? UINT64_MAX : memory * out->gpus;
    out->uncounted = ask->handed;
    if (!ask->handed) {
        count_held(ask->agent, "user", user, ask->lease, &out->held_gpus, &out->held_memory);
        count_held(ask->agent, "project", project, ask->lease, &out->project_gpus, &out->project_memory);
    }
    rg_agent_tell(ask->agent, &answer);
}

void rg_quotas_judged(struct rg_agent *agent, const struct rg_agent_word *word)
{
    struct rg_agent_ask *ask = NULL;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->state == RG_ASK_JUDGING && agent->asks[i]->number == word->judged.number)
            ask = agent->asks[i];
    if (!ask)
        return;
    if (word->judged.priority) {
        (void)json_object_set_new(ask->request, "priority",
                                  json_string(rg_share_priority_name(word->judged.priority)));
        (void)json_object_set_new(ask->request, "preempts", json_boolean(word->judged.preempts));
    }
    if (ask->socket < 0) /* it has gone, and nothing of it is there yet */
        rg_ask_end(ask);
    else if (word->judged.good)
        ask->judged(ask);
    else if (word->judged.counts && ask->handed)
        rg_ask_read(ask);
    else
        rg_ask_refuse(ask, word->judged.why);
}
