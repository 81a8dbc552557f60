/*
 * scope.c - what of the pool this server is told: all of it while it decides or shows, else what concerns it alone.
 *
 * A server at rest watches its own keys, the leases of its GPUs, the keys of the servers that hold these for their clients, and what it has
 * handed on (decider.c): what it is told does not grow with the pool. When a client asks something that takes more (what there is, quotas
 * that are about what is held; GPUs, where no other server decides), or a lease of its GPUs waits to come back to them, everything is read at one revision and watched from there on, until nobody waits and as many changes have come for nothing as keys were read: a server that is
 * asked now and then reads the pool no more often than that costs. A server that comes into the pool anew reads everything as well, since
 * leases may name GPUs of it that etcd has forgotten.
 *
 * While something is being read anew, the mirror is what it was, and nothing is concluded from it: each part of the agent asks
 * rg_scope_is_settled or rg_scope_is_whole first. Where there are too many leases to watch each (RG_SCOPE_KEYS), or a server of a
 * version before holds one without saying where it is, everything is watched. Where leases come one after the other, what is watched is
 * changed for several of them at once (TOGETHER_NS), unless a session is to begin.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <string.h>

#define LINGER      256u /* changes, at least */
#define TOGETHER_NS 300000000ull

/* --- what etcd tells --------------------------------------------------------------------------------------------------- */

void rg_scope_reset(void *data)
{
    struct rg_agent *agent = data;
    agent->granted = agent->own.freed = 0; /* all is told as it is now, by an etcd that may count anew */
    agent->scope.begun = agent->scope.own = true;
    agent->scope.changes = 0;
    rg_decider_told(agent, NULL);
    rg_pool_mirror_reset(&agent->mirror);
}

/*
 * Whether a key may matter to what this server does with its own GPUs: they, leases that it knows of, and servers, which may hold such
 * leases. One that it does not know of comes with the GPU that is granted to it.
 */
static bool is_own(const struct rg_agent *agent, const char *key)
{
    const char *rest = strchr(key, '/');
    if (!rest)
        return false;
    rest++;
    if (strncmp(key, "servers/", 8) == 0)
        return !strchr(rest, '/') || strncmp(rest, agent->id, strlen(agent->id)) == 0;
    if (strncmp(key, "leases/", 7) == 0)
        return rg_own_find(&agent->own, rest) != NULL;
    return strncmp(key, "usage/", 6) == 0 && strcmp(rest, agent->id) == 0;
}

static const char *take_key(struct rg_agent *agent, const char *key)
{
    const char *own = key + strlen(agent->prefix);
    agent->scope.changes++;
    agent->scope.own = agent->scope.own || is_own(agent, own);
    return own;
}

void rg_scope_put(void *data, const struct rg_etcd_pair *pair)
{
    struct rg_agent *agent = data;
    const char *key = take_key(agent, pair->key);
    if (strcmp(key, RG_DECIDER_KEY) == 0)
        rg_decider_told(agent, pair);
    else
        rg_pool_mirror_put(&agent->mirror, key, pair->value, pair->created, pair->changed);
}

void rg_scope_removed(void *data, const char *key)
{
    struct rg_agent *agent = data;
    const char *own = take_key(agent, key);
    if (strcmp(own, RG_DECIDER_KEY) == 0)
        rg_decider_told(agent, NULL);
    else
        rg_pool_mirror_remove(&agent->mirror, own);
}

void rg_scope_told(void *data, int64_t revision)
{
    struct rg_agent *agent = data;
    struct rg_agent_scope *scope = &agent->scope;
    scope->read = scope->begun;
    if (scope->begun) {
        scope->begun = scope->reading = false;
        scope->changes = 0;
    }
    rg_pool_mirror_whole(&agent->mirror, revision);
    agent->changes++;
    agent->own_changes += scope->own;
    scope->own = false;
}

/* What is known is of another past: nothing is concluded from it, or granted, until each server has had the time to say what it has. */
void rg_scope_rewound(void *data)
{
    struct rg_agent *agent = data;
    agent->rewound = agent->scope.reading = true;
    agent->settles_ns = rg_now_ns() + RG_AGENT_TTL_NS;
    rg_agent_changed(agent);
    for (uint32_t i = 0; i < agent->n_asks; i++)
        agent->asks[i]->written = 0;
    for (struct rg_agent_check *check = agent->checks; check; check = check->next)
        check->revision = check->revision ? 1 : 0;
}

bool rg_scope_is_settling(const struct rg_agent *agent)
{
    return rg_now_ns() < agent->settles_ns;
}

bool rg_scope_is_settled(const struct rg_agent *agent)
{
    return !agent->scope.reading && !agent->scope.behind && agent->mirror.revision;
}

bool rg_scope_is_whole(const struct rg_agent *agent)
{
    return !agent->scope.narrow && rg_scope_is_settled(agent);
}

void rg_scope_again(struct rg_agent *agent)
{
    agent->scope.again = true;
}

/* --- all of it ------------------------------------------------------------------------------------------------------------ */

/* Whether a client's question takes all of the pool. */
static bool is_asked(const struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->whole && agent->asks[i]->state != RG_ASK_HOLDING)
            return true;
    return rg_decider_is_asked(agent);
}

/* Whether it is to come into the pool, and etcd knows no GPU of it: which leases name them is found by looking at all. */
static bool is_new(const struct rg_agent *agent)
{
    const struct rg_membership *membership = &agent->membership;
    if (membership->state != RG_MEMBER_OUT)
        return false;
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        if (strcmp(agent->mirror.members[i]->id, agent->id) == 0)
            return agent->mirror.members[i]->n_gpus == 0;
    return true;
}

/* About as many changes as all of the pool has keys: to be told of them has cost what reading it again costs. */
static uint32_t linger(const struct rg_pool_mirror *mirror)
{
    uint32_t keys =
        mirror->n_leases + mirror->n_requests + mirror->n_usage + mirror->n_links + mirror->n_members;
    for (uint32_t i = 0; i < mirror->n_members; i++)
        keys += mirror->members[i]->n_gpus;
    return keys > LINGER ? keys : LINGER;
}

static bool wants_whole(struct rg_agent *agent)
{
    struct rg_agent_scope *scope = &agent->scope;
    if (is_asked(agent)) {
        scope->changes = 0;
        scope->lingers = true;
        return true;
    }
    if (scope->lingers && scope->changes < linger(&agent->mirror))
        return true;
    scope->lingers = false;
    return rg_decider_is_us(agent) || rg_preemption_waits(agent) || agent->history.asks || is_new(agent) ||
           (!scope->narrow && agent->membership.state != RG_MEMBER_IN);
}

/* --- what concerns this server ---------------------------------------------------------------------------------------------- */

/* Keys of leases and of who holds them. */
struct wanted {
    char keys[RG_SCOPE_KEYS][RG_SCOPE_KEY];
    uint32_t n;
    bool too_many; /* or it cannot be said which */
};

static void want(struct wanted *wanted, const char *folder, const char *id)
{
    char key[RG_SCOPE_KEY];
    snprintf(key, sizeof key, "%s/%.*s", folder, RG_POOL_ID, id);
    for (uint32_t i = 0; i < wanted->n; i++)
        if (strcmp(wanted->keys[i], key) == 0)
            return;
    if (wanted->n == RG_SCOPE_KEYS)
        wanted->too_many = true;
    else
        memcpy(wanted->keys[wanted->n++], key, sizeof key);
}

static void want_lease(const struct rg_agent *agent, struct wanted *wanted, const char *id)
{
    const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, id);
    const char *run = rg_json_get_text(held ? held->value : NULL, "holder"),
               *server = rg_json_get_text(held ? held->value : NULL, "holder_server");
    want(wanted, "leases", id);
    if (!held || !*run || strcmp(run, agent->run) == 0 || json_is_true(json_object_get(held->value, "kept")))
        return;
    if (!rg_pool_is_id(server))
        wanted->too_many = true; /* of a version before */
    else if (strcmp(server, agent->id) != 0)
        want(wanted, "servers", server);
}

static void want_own(const struct rg_agent *agent, struct wanted *wanted)
{
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    for (uint32_t i = 0; self && i < self->n_gpus; i++)
        for (uint32_t j = 0; j < self->gpus[i]->n_shares; j++)
            want_lease(agent, wanted, self->gpus[i]->shares[j].lease);
    for (uint32_t i = 0; i < agent->own.n; i++)
        want_lease(agent, wanted, agent->own.leases[i]->id);
}

static bool is_watched(const struct rg_agent_scope *scope, const char *key)
{
    for (uint32_t i = 0; i < scope->n; i++)
        if (strcmp(scope->keys[i], key) == 0)
            return true;
    return false;
}

/* What is watched beyond what is wanted goes when something else changes. */
static bool has_all(const struct rg_agent_scope *scope, const struct wanted *wanted)
{
    for (uint32_t i = 0; i < wanted->n; i++)
        if (!is_watched(scope, wanted->keys[i]))
            return false;
    return true;
}

static void watch_whole(struct rg_agent *agent)
{
    if (!rg_etcd_watch_ranges(agent->etcd, NULL, 0))
        return;
    agent->scope.narrow = agent->scope.again = agent->scope.behind = false;
    agent->scope.reading = true;
}

/* Where what this server has handed on begins and ends, by its ids. */
static void handed(const struct rg_agent *agent, const char *folder, char first[RG_SCOPE_KEY],
                   char end[RG_SCOPE_KEY])
{
    snprintf(first, RG_SCOPE_KEY, "%s/%.*s", folder, (int)RG_POOL_ID_START, agent->id);
    snprintf(end, RG_SCOPE_KEY, "%s/%.*sg", folder, (int)RG_POOL_ID_START, agent->id); /* behind all digits */
}

static void watch_own(struct rg_agent *agent, const struct wanted *wanted)
{
    struct rg_agent_scope *scope = &agent->scope;
    struct rg_etcd_range ranges[RG_ETCD_RANGES_MAX];
    char first[3][RG_SCOPE_KEY], end[3][RG_SCOPE_KEY], usage[RG_SCOPE_KEY];
    snprintf(first[0], sizeof first[0], "servers/%s", agent->id);
    snprintf(end[0], sizeof end[0], "servers/%s0", agent->id); /* behind all that begin with "servers/ID/" */
    handed(agent, "requests", first[1], end[1]);
    handed(agent, "leases", first[2], end[2]);
    snprintf(usage, sizeof usage, "usage/%s", agent->id);
    for (uint32_t i = 0; i < 3; i++)
        ranges[i] = (struct rg_etcd_range){first[i], end[i]};
    ranges[3] = (struct rg_etcd_range){usage, NULL};
    ranges[4] = (struct rg_etcd_range){RG_DECIDER_KEY, NULL};
    for (uint32_t i = 0; i < wanted->n; i++)
        ranges[RG_SCOPE_OWN + i] = (struct rg_etcd_range){wanted->keys[i], NULL};
    if (!rg_etcd_watch_ranges(agent->etcd, ranges, RG_SCOPE_OWN + wanted->n)) {
        scope->behind = true;
        return;
    }
    memcpy(scope->keys, wanted->keys, sizeof scope->keys);
    scope->n = wanted->n;
    scope->narrow = scope->reading = true;
    scope->again = scope->behind = false;
    scope->watched_ns = rg_now_ns();
}

/* What is missing can wait for more that is. */
static bool can_wait(const struct rg_agent *agent)
{
    const struct rg_agent_scope *scope = &agent->scope;
    return scope->narrow && !scope->again && !agent->checks && rg_now_ns() < scope->watched_ns + TOGETHER_NS;
}

uint64_t rg_scope_look(struct rg_agent *agent)
{
    struct rg_agent_scope *scope = &agent->scope;
    struct wanted wanted;
    bool whole = wants_whole(agent);
    if (!agent->mirror.revision || (scope->reading && (!scope->narrow || !whole)))
        return UINT64_MAX; /* it comes, and then it is seen what else is needed */
    if (!whole && scope->narrow && !scope->again && !scope->behind && scope->seen == agent->own_changes)
        return UINT64_MAX; /* it concerns nothing else than before */
    scope->seen = agent->own_changes;
    scope->behind = false;
    wanted.n = wanted.too_many = 0;
    if (!whole) {
        want_own(agent, &wanted);
        whole = wanted.too_many;
    }
    if (whole && (scope->narrow || scope->again)) {
        watch_whole(agent);
    } else if (!whole && (!scope->narrow || scope->again || !has_all(scope, &wanted))) {
        if (can_wait(agent)) {
            scope->behind = true;
            return scope->watched_ns + TOGETHER_NS;
        }
        watch_own(agent, &wanted);
    }
    return UINT64_MAX;
}
