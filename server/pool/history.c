/*
 * history.c - the pool in the last hour, a point a minute: how much of its GPUs' memory was granted, and how many requests waited. For
 * whoever lists the pool, and for the metrics; nothing is decided by it.
 *
 * The points are kept by each agent alone; one that was started less than an hour ago has fewer. A server that is told of all of the pool
 * counts by itself, and writes what it has counted for the others, the key `summary`, before that is a minute old. Where no server is told of
 * all, who finds it older than FORGOTTEN_S reads all of the pool once, and writes it. So the pool is read about once a minute at most,
 * whatever its size. While the server is cut off from etcd there are no points.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <string.h>

#define PERIOD_S    60
#define PERIOD_NS   (PERIOD_S * 1000000000ull)
#define AGAIN_NS    5000000000ull
#define RENEWED_S   (PERIOD_S / 2) /* by who is told of all */
#define FORGOTTEN_S (PERIOD_S * 3 / 2)
#define KEY         "summary"

/* --- counting -------------------------------------------------------------------------------------------------------- */

static uint8_t granted_percent(const struct rg_pool_mirror *mirror)
{
    double memory = 0, granted = 0;
    for (uint32_t i = 0; i < mirror->n_members; i++)
        for (uint32_t j = 0; j < mirror->members[i]->n_gpus; j++) {
            const struct rg_pool_gpu *gpu = mirror->members[i]->gpus[j];
            const double taken = (double)rg_pool_gpu_held(gpu);
            memory += (double)gpu->memory;
            granted += taken < (double)gpu->memory ? taken : (double)gpu->memory;
        }
    return memory > 0 ? (uint8_t)(100 * granted / memory + 0.5) : 0;
}

static struct rg_agent_queue count_queue(const struct rg_agent *agent)
{
    struct rg_agent_queue queue = {0};
    const uint64_t now = (uint64_t)rg_agent_time(agent);
    for (uint32_t i = 0; i < agent->mirror.n_requests; i++) {
        const json_t *value = agent->mirror.requests[i]->value;
        const uint64_t since = rg_json_get_number(value, "since", now);
        queue.requests++;
        queue.gpus += (uint32_t)rg_json_get_number(value, "gpus", 0);
        if (now > since && now - since > queue.longest_s)
            queue.longest_s = now - since;
    }
    return queue;
}

struct rg_agent_queue rg_agent_history_queue(const struct rg_agent *agent)
{
    return rg_scope_is_whole(agent) ? count_queue(agent) : agent->history.queue;
}

static void add_point(struct rg_agent *agent, const struct rg_agent_queue *queue, uint8_t granted)
{
    struct rg_agent_history *history = &agent->history;
    history->queue = *queue;
    history->points[history->n++ % RG_AGENT_HISTORY] =
        (struct rg_agent_history_point){.granted = granted, .waiting = queue->requests};
    history->due_ns = rg_now_ns() + PERIOD_NS;
}

static void add_own(struct rg_agent *agent)
{
    const struct rg_agent_queue queue = count_queue(agent);
    add_point(agent, &queue, granted_percent(&agent->mirror));
}

/* --- telling each other -------------------------------------------------------------------------------------------------- */

static void written(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    (void)data, (void)status, (void)reply,
        (void)why; /* or another was faster, or it is for the next minute */
}

static void count(struct rg_agent *agent)
{
    const struct rg_agent_queue queue = count_queue(agent);
    const uint8_t granted = granted_percent(&agent->mirror);
    add_point(agent, &queue, granted);
    json_t *value = json_pack("{s:I, s:i, s:I, s:I, s:I}", "as_of", (json_int_t)rg_agent_time(agent),
                              "granted_percent", (int)granted, "requests", (json_int_t)queue.requests, "gpus",
                              (json_int_t)queue.gpus, "longest", (json_int_t)queue.longest_s);
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o]}", "compare",
                           rg_agent_compare(agent->history.changed, rg_agent_key(agent, KEY)), "success",
                           rg_agent_put(rg_agent_key(agent, KEY), value, 0)),
                 written, agent);
}

static void answered(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_agent_history *history = &agent->history;
    (void)why;
    history->asking = false;
    if (status != RG_OK) {
        history->due_ns = rg_now_ns() + AGAIN_NS;
        return;
    }
    json_t *value = rg_agent_value(json_object_get(reply, "kvs"), &history->changed);
    const uint64_t as_of = rg_json_get_number(value, "as_of", 0), now = (uint64_t)rg_agent_time(agent);
    const struct rg_agent_queue queue = {.requests = (uint32_t)rg_json_get_number(value, "requests", 0),
                                         .gpus = (uint32_t)rg_json_get_number(value, "gpus", 0),
                                         .longest_s = rg_json_get_number(value, "longest", 0)};
    const bool whole = rg_scope_is_whole(agent);
    if (as_of > now + PERIOD_S || as_of + (whole ? RENEWED_S : FORGOTTEN_S) <= now)
        history->asks = true;
    else if (whole)
        add_own(agent);
    else
        add_point(agent, &queue, (uint8_t)(rg_json_get_number(value, "granted_percent", 0) % 101));
    json_decref(value);
}

uint64_t rg_agent_history_look(struct rg_agent *agent)
{
    struct rg_agent_history *history = &agent->history;
    if (!rg_agent_is_in(agent) || history->asking)
        return UINT64_MAX; /* coming back wakes the agent, and so does the answer */
    if (rg_now_ns() < history->due_ns)
        return history->due_ns;
    if (history->asks && rg_scope_is_whole(agent)) {
        history->asks = false;
        count(agent);
        return history->due_ns;
    }
    if (history->asks)
        return UINT64_MAX;
    if (!history->n && rg_scope_is_whole(agent)) {
        add_own(agent); /* there is something to show at once */
        return history->due_ns;
    }
    history->asking = true;
    rg_etcd_call(agent->etcd, "/v3/kv/range", json_pack("{s:o}", "key", rg_agent_key(agent, KEY)), answered,
                 agent);
    return UINT64_MAX;
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
