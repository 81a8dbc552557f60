/*
 * history.c - the pool in the last hour, as this server saw it, a point a minute: how much of its GPUs' memory was granted, and how many
 * requests waited. For whoever lists the pool; nothing is decided by it.
 *
 * Kept by the agent alone, so that it costs etcd nothing; an agent that was started less than an hour ago has fewer points. While the server
 * is cut off from etcd there are none.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#define PERIOD_S  60
#define PERIOD_NS (PERIOD_S * 1000000000ull)

static uint8_t granted_percent(const struct rg_pool_mirror *mirror)
{
    double memory = 0, granted = 0;
    for (uint32_t i = 0; i < mirror->n_members; i++)
        for (uint32_t j = 0; j < mirror->members[i]->n_gpus; j++) {
            const struct rg_pool_gpu *gpu = mirror->members[i]->gpus[j];
            double taken = 0;
            for (uint32_t k = 0; k < gpu->n_shares; k++)
                taken += (double)gpu->shares[k].memory;
            memory += (double)gpu->memory;
            granted += taken < (double)gpu->memory ? taken : (double)gpu->memory;
        }
    return memory > 0 ? (uint8_t)(100 * granted / memory + 0.5) : 0;
}

uint64_t rg_agent_history_look(struct rg_agent *agent)
{
    struct rg_agent_history *history = &agent->history;
    const uint64_t now = rg_now_ns();
    if (!rg_agent_is_in(agent))
        return UINT64_MAX; /* coming back wakes the agent */
    if (now < history->due_ns)
        return history->due_ns;
    struct rg_agent_history_point *point = &history->points[history->n++ % RG_AGENT_HISTORY];
    point->granted = granted_percent(&agent->mirror);
    point->waiting = agent->mirror.n_requests;
    history->due_ns = now + PERIOD_NS;
    return history->due_ns;
}

json_t *rg_agent_history_json(const struct rg_agent *agent)
{
    const struct rg_agent_history *history = &agent->history;
    json_t *granted = json_array(), *waiting = json_array();
    const uint32_t n = history->n < RG_AGENT_HISTORY ? history->n : RG_AGENT_HISTORY;
    for (uint32_t i = history->n - n; i < history->n; i++) {
        const struct rg_agent_history_point *point = &history->points[i % RG_AGENT_HISTORY];
        json_array_append_new(granted, json_integer(point->granted));
        json_array_append_new(waiting, json_integer(point->waiting));
    }
    return json_pack("{s:i, s:o, s:o}", "seconds", PERIOD_S, "granted_percent", granted, "waiting", waiting);
}
