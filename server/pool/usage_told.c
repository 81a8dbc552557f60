/*
 * usage_told.c - what the pool remembers of use (usage.c), as a client may know it: of itself and of the project that it names; as an operator
 * of everybody.
 *
 * An answer has a limited size, and a pool may have thousands of users: names come in their order, as many as fit, and those behind them are
 * asked for by the last that was told.
 */
#include "common/base/cleanup.h"
#include "server/pool/agent.h"

#include <stdlib.h>
#include <string.h>

#define SECOND    1000000000ull
#define PAGE_SIZE 24576u /* of users, and of projects */
#define ONE_SIZE  26u    /* of one, beside its name: a colon, a comma, and a number */

void rg_agent_user_name(const char *key, char *out, size_t size)
{
    if (strncmp(key, "3 ", 2) == 0)
        snprintf(out, size, "%s", key + 2);
    else if (strncmp(key, "2 ", 2) == 0)
        snprintf(out, size, "uid:%s", key + 2);
    else
        snprintf(out, size, "%s", key);
}

/* Of numbers that other servers have written: at most the largest that there is. */
static json_int_t sum_of(json_int_t sum, uint64_t more)
{
    const uint64_t room = INT64_MAX - (uint64_t)(sum < 0 ? 0 : sum);
    return INT64_MAX - (json_int_t)(more < room ? room - more : 0);
}

static json_t *sums_of(const struct rg_agent *agent, const char *kind, const char *alone)
{
    const uint64_t now = (uint64_t)rg_agent_time(agent) * SECOND;
    const bool users = strcmp(kind, "users") == 0;
    struct rg_pool_policy policy;
    json_t *sums = json_object();
    rg_pool_policy_default(&policy);
    for (uint32_t i = 0; i < agent->mirror.n_usage && sums; i++) {
        const json_t *value = agent->mirror.usage[i]->value;
        const uint64_t as_of = rg_json_get_number(value, "as_of", 0) * SECOND;
        const char *name;
        json_t *used;
        json_object_foreach(json_object_get(value, kind), name, used)
        {
            char shown[RG_AGENT_WHO];
            if (alone && strcmp(name, alone) != 0)
                continue;
            if (users)
                rg_agent_user_name(name, shown, sizeof shown);
            else
                snprintf(shown, sizeof shown, "%s", name);
            const uint64_t left = rg_pool_usage_decayed((uint64_t)json_integer_value(used),
                                                        now > as_of ? now - as_of : 0, policy.half_life);
            (void)json_object_set_new(
                sums, shown, json_integer(sum_of(json_integer_value(json_object_get(sums, shown)), left)));
        }
    }
    return sums;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Those behind `after`, as many as fit; *more: there are others. The sums become the function's. NULL: no memory. */
static json_t *page_of(json_t *sums, const char *after, bool *more)
{
    RG_CLEANUP_FREE const char **names = calloc(json_object_size(sums) + 1, sizeof *names);
    json_t *page = names ? json_object() : NULL, *used;
    const char *name;
    size_t n = 0, told = 0;
    json_object_foreach(sums, name, used) if (page && strcmp(name, after) > 0) names[n++] = name;
    if (n)
        qsort(names, n, sizeof *names, compare_names);
    for (size_t size = 0; told < n && size < PAGE_SIZE; told++) {
        json_t *text = json_string(names[told]);
        size += json_dumpb(text, NULL, 0, JSON_ENCODE_ANY) + ONE_SIZE;
        json_decref(text);
        (void)json_object_set(page, names[told], json_object_get(sums, names[told]));
    }
    *more = *more || told < n;
    json_decref(sums);
    return page;
}

/* What leases of whoever asks hold now. */
static json_t *held_json(const struct rg_agent *agent, const char *key)
{
    json_int_t gpus = 0, memory = 0, leases = 0;
    for (uint32_t i = 0; i < agent->mirror.n_leases; i++) {
        const json_t *value = agent->mirror.leases[i]->value;
        uint64_t bytes;
        if (strcmp(rg_json_get_text(value, "user"), key) != 0)
            continue;
        leases++;
        gpus += rg_leases_there(agent, value, &bytes);
        memory = sum_of(memory, bytes);
    }
    return json_pack("{s:I, s:I, s:I}", "leases", leases, "gpus", gpus, "memory", memory);
}

json_t *rg_agent_usage_json(const struct rg_agent *agent, const char *key, bool is_operator,
                            const json_t *question)
{
    const char *project = rg_json_get_text(question, "project");
    struct rg_pool_policy policy;
    bool more = false;
    rg_pool_policy_default(&policy);
    json_t *users = page_of(sums_of(agent, "users", is_operator ? NULL : key),
                            rg_json_get_text(question, "users_after"), &more),
           *projects = page_of(sums_of(agent, "projects", is_operator ? NULL : project),
                               rg_json_get_text(question, "projects_after"), &more);
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:b}", "state", "usage", "pool", agent->settings.pool,
                     "half_life", (json_int_t)(policy.half_life / SECOND), "held", held_json(agent, key),
                     "users", users, "projects", projects, "more", (int)more);
}
