/*
 * usage.c - what users and projects have used of the pool over time, by which fair shares go.
 *
 * Each server accounts for its own GPUs alone: what of each is granted to whose lease, for how long. It keeps that in memory, decayed by
 * the policy's half-life, and writes it as one value, usage/ID, no more often than every WRITE_NS while GPUs are held, and soon after
 * a lease has ended: so etcd gets a bounded number of writes, whatever users do. Everybody who decides adds up all servers' values.
 *
 * A server that has gone leaves its value behind, which belongs to nobody; the first of those that are there (by id) takes it over in
 * a transaction. An agent that is started anew goes on with what the one before it has written: what is lost by a crash is at most
 * WRITE_NS of use.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <stdlib.h>
#include <string.h>

#define SECOND     1000000000ull
#define WRITE_NS   (60 * SECOND)
#define HURRIED_NS (3 * SECOND)
#define AGAIN_NS   (5 * SECOND)
#define ORPHAN_S   (2 * RG_AGENT_TTL_S) /* without a sign of life: no server of that id comes back */
#define MILLIONTHS 1000000u

struct rg_agent_rate {
    uint32_t account;
    uint64_t millionths; /* of GPUs */
};

/* --- accounts -------------------------------------------------------------------------------------------------------- */

static uint64_t now_of(const struct rg_agent *agent)
{
    return (uint64_t)rg_agent_time(agent) * SECOND;
}

/* UINT32_MAX: no memory, there are as many as there may be, or nobody has such a name. */
static uint32_t account_of(struct rg_agent_usage *usage, const char *name, bool project)
{
    if (strlen(name) >= RG_AGENT_WHO)
        return UINT32_MAX;
    for (uint32_t i = 0; i < usage->n; i++)
        if (usage->accounts[i].project == project && strcmp(usage->accounts[i].name, name) == 0)
            return i;
    struct rg_pool_account *grown =
        usage->n < RG_POOL_ACCOUNTS_MAX ? realloc(usage->accounts, (usage->n + 1) * sizeof *grown) : NULL;
    if (grown)
        usage->accounts = grown;
    char *copy = grown ? strdup(name) : NULL;
    if (!copy)
        return UINT32_MAX;
    grown[usage->n] =
        (struct rg_pool_account){.name = copy, .project = project, .weight = RG_POOL_WEIGHT_DEFAULT};
    return usage->n++;
}

static int compare_usage(const void *a, const void *b)
{
    const struct rg_pool_account *one = a, *other = b;
    return (one->usage < other->usage) - (one->usage > other->usage);
}

/* Forgets those that have used least, where there is no room for others. No rate must name one. */
static void make_room(struct rg_agent_usage *usage)
{
    if (usage->n < RG_POOL_ACCOUNTS_MAX)
        return;
    qsort(usage->accounts, usage->n, sizeof *usage->accounts, compare_usage);
    while (usage->n > RG_POOL_ACCOUNTS_MAX / 4 * 3)
        free((char *)(uintptr_t)usage->accounts[--usage->n].name);
}

static void forget_all(struct rg_agent_usage *usage)
{
    for (uint32_t i = 0; i < usage->n; i++)
        free((char *)(uintptr_t)usage->accounts[i].name);
    usage->n = usage->n_rates = 0;
}

void rg_agent_usage_fini(struct rg_agent_usage *usage)
{
    forget_all(usage);
    free(usage->accounts);
    free(usage->rates);
    *usage = (struct rg_agent_usage){0};
}

/* Adds what a value says, decayed until now. */
static void add_value(struct rg_agent *agent, const json_t *value)
{
    static const char *const kinds[] = {"users", "projects"};
    struct rg_pool_policy policy;
    const uint64_t as_of = rg_json_get_number(value, "as_of", 0) * SECOND, now = now_of(agent);
    rg_pool_policy_default(&policy);
    for (int kind = 0; kind < 2; kind++) {
        const char *name;
        json_t *used;
        json_object_foreach(json_object_get(value, kinds[kind]), name, used)
        {
            const uint32_t at =
                *name && json_is_integer(used) ? account_of(&agent->usage, name, kind == 1) : UINT32_MAX;
            if (at == UINT32_MAX)
                continue;
            struct rg_pool_account *account = &agent->usage.accounts[at];
            rg_pool_account_charge(account, 0, 0, now, policy.half_life);
            account->usage += rg_pool_usage_decayed((uint64_t)json_integer_value(used),
                                                    now > as_of ? now - as_of : 0, policy.half_life);
        }
    }
}

/* --- charging ---------------------------------------------------------------------------------------------------------- */

static void charge(struct rg_agent *agent)
{
    struct rg_agent_usage *usage = &agent->usage;
    const uint64_t ns = rg_now_ns(), held = usage->charged_ns ? ns - usage->charged_ns : 0,
                   now = now_of(agent);
    struct rg_pool_policy policy;
    rg_pool_policy_default(&policy);
    for (uint32_t i = 0; i < usage->n_rates; i++)
        rg_pool_account_charge(&usage->accounts[usage->rates[i].account], usage->rates[i].millionths, held,
                               now, policy.half_life);
    usage->dirty = usage->dirty || usage->n_rates > 0;
    usage->charged_ns = ns;
}

static void add_rate(struct rg_agent_usage *usage, const char *name, bool project, uint64_t millionths,
                     uint32_t most)
{
    const uint32_t at = *name && usage->n_rates < most ? account_of(usage, name, project) : UINT32_MAX;
    if (at != UINT32_MAX)
        usage->rates[usage->n_rates++] = (struct rg_agent_rate){at, millionths};
}

/* Who has how much from now on. */
static void look_at_rates(struct rg_agent *agent, const struct rg_pool_member *self)
{
    struct rg_agent_usage *usage = &agent->usage;
    uint32_t most = 0;
    const uint32_t before = usage->n_rates;
    for (uint32_t i = 0; i < self->n_gpus; i++)
        most += 2 * self->gpus[i]->n_shares;
    struct rg_agent_rate *grown = realloc(usage->rates, (most + 1) * sizeof *grown);
    usage->n_rates = 0;
    make_room(usage);
    if (!grown)
        return;
    usage->rates = grown;
    for (uint32_t i = 0; i < self->n_gpus; i++)
        for (uint32_t j = 0; j < self->gpus[i]->n_shares; j++) {
            const struct rg_pool_gpu *gpu = self->gpus[i];
            const struct rg_own_lease *lease = rg_own_find(&agent->own, gpu->shares[j].lease);
            const uint64_t part =
                gpu->memory ? (uint64_t)((unsigned __int128)gpu->shares[j].memory * MILLIONTHS / gpu->memory)
                            : MILLIONTHS;
            if (!lease || !lease->value || gpu->shares[j].state == RG_POOL_SHARE_SUSPENDED)
                continue;
            add_rate(usage, rg_json_get_text(lease->value, "user"), false, part, most);
            add_rate(usage, rg_json_get_text(lease->value, "project"), true, part, most);
        }
    usage->hurried = usage->hurried || usage->n_rates < before;
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static json_t *value_of(struct rg_agent *agent)
{
    struct rg_agent_usage *usage = &agent->usage;
    struct rg_pool_policy policy;
    const uint64_t now = now_of(agent);
    json_t *users = json_object(), *projects = json_object();
    rg_pool_policy_default(&policy);
    for (uint32_t i = 0; i < usage->n; i++) {
        struct rg_pool_account *account = &usage->accounts[i];
        rg_pool_account_charge(account, 0, 0, now, policy.half_life);
        if (account->usage)
            (void)json_object_set_new(account->project ? projects : users, account->name,
                                      json_integer((json_int_t)(account->usage & INT64_MAX)));
    }
    return json_pack("{s:I, s:o, s:o}", "as_of", (json_int_t)(now / SECOND), "users", users, "projects",
                     projects);
}

static void written(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_agent_usage *usage = &agent->usage;
    usage->writing = false;
    if (status == RG_OK && json_is_true(json_object_get(reply, "succeeded")))
        return;
    if (status != RG_OK)
        rg_debug("what the pool's users have used is not written yet: %s", why);
    else
        usage->loaded = false; /* it is not what we knew: a try that was not answered has written it */
    usage->dirty = true;
    usage->written_ns = rg_now_ns() + AGAIN_NS - WRITE_NS; /* it is tried again soon */
}

static void write_usage(struct rg_agent *agent)
{
    const struct rg_pool_entry *own = rg_pool_mirror_usage(&agent->mirror, agent->id);
    agent->usage.writing = true;
    agent->usage.dirty = agent->usage.hurried = false;
    agent->usage.written_ns = rg_now_ns();
    rg_etcd_call(
        agent->etcd, "/v3/kv/txn",
        json_pack("{s:[o], s:[o]}", "compare",
                  rg_agent_compare(own ? own->changed : 0, rg_agent_key(agent, "usage/%s", agent->id)),
                  "success", rg_agent_put(rg_agent_key(agent, "usage/%s", agent->id), value_of(agent), 0)),
        written, agent);
}

/* --- what servers have left behind --------------------------------------------------------------------------------------- */

static void taken_over(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)reply;
    agent->usage.writing = false;
    if (status == RG_OK)
        rg_debug("took over what a server that has gone had accounted, or another one did");
    else
        rg_debug("what a server that has gone had accounted is not taken over yet: %s", why);
    /* what etcd has now is what holds, whichever came of it */
    agent->usage.loaded = false;
    rg_agent_changed(agent);
}

static const struct rg_pool_entry *orphan_of(const struct rg_agent *agent)
{
    const struct rg_pool_mirror *mirror = &agent->mirror;
    if (!rg_scope_is_whole(agent))
        return NULL;
    for (uint32_t i = 0; i < mirror->n_members; i++)
        if (strcmp(mirror->members[i]->id, agent->id) < 0)
            return NULL; /* another one's to do, when it sees all of the pool */
    for (uint32_t i = 0; i < mirror->n_usage; i++) {
        const uint64_t as_of = rg_json_get_number(mirror->usage[i]->value, "as_of", 0);
        if (!rg_pool_mirror_member(mirror, mirror->usage[i]->id) &&
            strcmp(mirror->usage[i]->id, agent->id) != 0 && as_of + ORPHAN_S < (uint64_t)rg_agent_time(agent))
            return mirror->usage[i];
    }
    return NULL;
}

static void take_over(struct rg_agent *agent, const struct rg_pool_entry *orphan)
{
    const struct rg_pool_entry *own = rg_pool_mirror_usage(&agent->mirror, agent->id);
    add_value(agent, orphan->value);
    agent->usage.writing = true;
    rg_etcd_call(
        agent->etcd, "/v3/kv/txn",
        json_pack("{s:[o, o], s:[o, o]}", "compare",
                  rg_agent_compare(own ? own->changed : 0, rg_agent_key(agent, "usage/%s", agent->id)),
                  rg_agent_compare(orphan->changed, rg_agent_key(agent, "usage/%s", orphan->id)), "success",
                  rg_agent_put(rg_agent_key(agent, "usage/%s", agent->id), value_of(agent), 0),
                  rg_agent_remove(rg_agent_key(agent, "usage/%s", orphan->id))),
        taken_over, agent);
}

/* --- looking ------------------------------------------------------------------------------------------------------------- */

/* When something is to be written; UINT64_MAX: there is nothing, and nothing comes while all stays as it is. */
static uint64_t due_ns(const struct rg_agent_usage *usage)
{
    return usage->dirty || usage->n_rates ? usage->written_ns + (usage->hurried ? HURRIED_NS : WRITE_NS)
                                          : UINT64_MAX;
}

uint64_t rg_agent_usage_look(struct rg_agent *agent)
{
    struct rg_agent_usage *usage = &agent->usage;
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    if (!self || usage->writing || !rg_scope_is_settled(agent))
        return UINT64_MAX;
    const bool in = rg_agent_is_in(agent);
    const bool looks = !usage->loaded || usage->seen != agent->own_changes || rg_now_ns() >= due_ns(usage);
    if (!usage->loaded && in) {
        const struct rg_pool_entry *before = rg_pool_mirror_usage(&agent->mirror, agent->id);
        charge(agent);
        forget_all(usage);
        if (before)
            add_value(agent, before->value);
        usage->loaded = true;
    }
    if (looks) {
        charge(agent);
        look_at_rates(agent, self);
        usage->seen = agent->own_changes;
    }
    if (!usage->loaded || !in)
        return UINT64_MAX;
    if (usage->dirty && rg_now_ns() >= due_ns(usage)) {
        write_usage(agent);
        return UINT64_MAX;
    }
    const struct rg_pool_entry *orphan = usage->dirty ? NULL : orphan_of(agent);
    if (orphan)
        take_over(agent, orphan);
    return due_ns(usage);
}
