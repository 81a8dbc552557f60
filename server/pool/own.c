/*
 * own.c - leases of this server's own GPUs: the monitor is told of them, and what nobody has any more is freed.
 *
 * A GPU's key says what is granted of it, and only its own server takes that back: when the lease is no more and no session runs
 * by it here. A lease is no more when its key is gone (given back, its time over, its client's end, its first server's end), or
 * when the agent that held it for a client is gone, or that client's connection was lost, no session runs, and the client has been waited
 * for. So what a GPU is granted to may outlast the lease by the time that a session takes to end, and never ends before.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS  300000000ull
#define IDLE_NS   (RG_RECONNECT_S * 1000000000ull)
#define ORPHAN_NS 5000000000ull

struct rg_own_lease *rg_own_find(const struct rg_own *own, const char *id)
{
    for (uint32_t i = 0; i < own->n; i++)
        if (strcmp(own->leases[i]->id, id) == 0)
            return own->leases[i];
    return NULL;
}

static struct rg_own_lease *lease_of(struct rg_own *own, const char *id)
{
    struct rg_own_lease *lease = rg_own_find(own, id);
    struct rg_own_lease **grown = lease ? NULL : realloc(own->leases, (own->n + 1) * sizeof *grown);
    if (grown)
        own->leases = grown;
    if (lease || !grown || !(lease = calloc(1, sizeof *lease)))
        return lease;
    snprintf(lease->id, sizeof lease->id, "%s", id);
    own->leases[own->n++] = lease;
    return lease;
}

/* What is known of a lease of which the monitor alone knows: an agent before this one has seen it. */
static json_t *value_of(const struct rg_agent *agent, const struct rg_agent_lease *told)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < RG_DEVICES_MAX; i++) {
        json_t *one =
            told->gpus >> i & 1 ? json_pack("{s:s, s:i}", "server", agent->id, "index", (int)i) : NULL;
        if (one && told->memory)
            (void)json_object_set_new(one, "memory", json_integer((json_int_t)told->memory));
        if (one)
            (void)json_array_append_new(gpus, one);
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:b, s:o}", "job", told->job, "user", told->key, "name",
                     told->name, "memory", (json_int_t)told->memory, "bearer", told->bearer != 0, "gpus",
                     gpus);
}

void rg_own_sessions(struct rg_agent *agent, const struct rg_agent_lease *told, uint32_t n,
                     enum rg_agent_suspension suspension)
{
    char id[RG_POOL_ID];
    snprintf(id, sizeof id, "%016" PRIx64, told->lease);
    struct rg_own_lease *lease = lease_of(&agent->own, id);
    if (!lease)
        return;
    lease->sessions = n;
    lease->answered = told->preempted;
    lease->suspension = suspension <= RG_AGENT_DRIVER ? suspension : RG_AGENT_PENDING;
    if (!lease->value)
        lease->value = value_of(agent, told);
    rg_agent_changed(agent);
}

/* Whether an agent of the pool holds it for its client, or it needs none. */
static bool is_held(const struct rg_agent *agent, const json_t *value)
{
    const char *holder = rg_json_get_text(value, "holder");
    if (json_is_true(json_object_get(value, "kept")))
        return true;
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        if (agent->mirror.members[i]->agent && strcmp(agent->mirror.members[i]->agent, holder) == 0)
            return true;
    return false;
}

/* Numbers tell one time from the next: what the monitor answers late is of another one. */
static uint32_t preemption_of(struct rg_agent *agent, struct rg_own_lease *lease)
{
    if (!rg_preemption_is_wanted(agent, lease->id)) {
        lease->suspension = RG_AGENT_PENDING;
        return 0;
    }
    if (!lease->preempted && ++agent->preemption.number == 0)
        agent->preemption.number = 1;
    return lease->preempted ? lease->preempted : agent->preemption.number;
}

static void tell_lease(struct rg_agent *agent, struct rg_own_lease *lease)
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_LEASE};
    struct rg_agent_lease *out = &answer.lease;
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(lease->value, "gpus"), i, one)
    {
        const uint64_t index = rg_json_get_number(one, "index", RG_DEVICES_MAX);
        if (strcmp(rg_json_get_text(one, "server"), agent->id) == 0 && index < RG_DEVICES_MAX)
            out->gpus |= 1ull << index;
    }
    out->lease = strtoull(lease->id, NULL, 16);
    out->memory = rg_json_get_number(lease->value, "memory", 0);
    out->preempted = lease->preempted = preemption_of(agent, lease);
    out->bearer = json_is_true(json_object_get(lease->value, "bearer"));
    snprintf(out->key, sizeof out->key, "%s", rg_json_get_text(lease->value, "user"));
    snprintf(out->name, sizeof out->name, "%s", rg_json_get_text(lease->value, "name"));
    snprintf(out->job, sizeof out->job, "%s", rg_json_get_text(lease->value, "job"));
    lease->told = true;
    lease->gone_told = false;
    rg_agent_tell(agent, &answer);
}

static void tell_gone(struct rg_agent *agent, struct rg_own_lease *lease)
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_GONE};
    answer.gone.lease = strtoull(lease->id, NULL, 16);
    lease->gone_told = true;
    rg_agent_tell(agent, &answer);
}

/* What the mirror says of leases here. */
static void take_over(struct rg_agent *agent, const struct rg_pool_member *self)
{
    for (uint32_t i = 0; i < agent->own.n; i++)
        agent->own.leases[i]->here = false;
    for (uint32_t i = 0; i < self->n_gpus; i++)
        for (uint32_t j = 0; j < self->gpus[i]->n_shares; j++) {
            struct rg_own_lease *lease = lease_of(&agent->own, self->gpus[i]->shares[j].lease);
            const struct rg_pool_entry *held =
                rg_pool_mirror_lease(&agent->mirror, self->gpus[i]->shares[j].lease);
            if (!lease)
                continue;
            lease->here = true;
            if (held && held->value != lease->value) {
                json_decref(lease->value);
                lease->value = json_incref(held->value);
            }
        }
}

/*
 * How long the client of a lease is waited for that nobody holds and no session runs by: it may hold it by another connection, and begin
 * the next of its programs. Where the connection was lost, as long as a session's client is; where the agent has gone that held it,
 * clients that are left notice at once.
 */
static uint64_t patience_ns(const struct rg_pool_entry *held)
{
    const char *holder = json_string_value(json_object_get(held->value, "holder"));
    return holder && !*holder ? IDLE_NS : ORPHAN_NS;
}

static bool is_waited_for(const struct rg_own_lease *lease, const struct rg_pool_entry *held)
{
    return lease && lease->idle_ns && rg_now_ns() < lease->idle_ns + patience_ns(held);
}

/* Since when leases have been like that. Returns when the first has been so for long enough. */
static uint64_t count_idle(struct rg_agent *agent)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < agent->own.n; i++) {
        struct rg_own_lease *lease = agent->own.leases[i];
        const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, lease->id);
        const bool idle =
            held && lease->here && lease->sessions == 0 && !lease->preempted && !is_held(agent, held->value);
        lease->idle_ns = !idle ? 0 : lease->idle_ns ? lease->idle_ns : rg_now_ns();
        if (idle && is_waited_for(lease, held) && lease->idle_ns + patience_ns(held) < due)
            due = lease->idle_ns + patience_ns(held);
    }
    return due;
}

/* Whether nobody has what is granted to it any more. */
static bool is_free(const struct rg_agent *agent, const char *id)
{
    const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, id);
    const struct rg_own_lease *lease = rg_own_find(&agent->own, id);
    /* as long as it is suspended no program of it can begin */
    return (!lease || lease->sessions == 0) &&
           (!held ||
            (!(lease && lease->preempted) && !is_held(agent, held->value) && !is_waited_for(lease, held)));
}

static void free_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)why;
    agent->own.freeing = false;
    /* what is done, or failed by a change of others, comes back by the watch; an etcd that does not answer is asked again */
    if (status == RG_OK) {
        if (json_is_true(json_object_get(reply, "succeeded")))
            agent->own.freed = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        return;
    }
    agent->own.again_ns = rg_now_ns() + AGAIN_NS;
    rg_agent_changed(agent);
}

/* Takes what nobody has back, of all GPUs in one transaction. */
static void free_shares(struct rg_agent *agent, const struct rg_pool_member *self)
{
    json_t *compare = json_array(), *changes = json_array();
    bool any = false;
    for (uint32_t i = 0; i < self->n_gpus; i++) {
        struct rg_pool_gpu left = *self->gpus[i];
        left.n_shares = 0;
        for (uint32_t j = 0; j < self->gpus[i]->n_shares; j++)
            if (!is_free(agent, self->gpus[i]->shares[j].lease))
                left.shares[left.n_shares++] = self->gpus[i]->shares[j];
        if (left.n_shares == self->gpus[i]->n_shares)
            continue;
        any = true;
        json_array_append_new(
            compare,
            rg_agent_compare(left.changed, rg_agent_key(agent, "servers/%s/gpus/%u", agent->id, left.index)));
        json_array_append_new(changes,
                              rg_agent_put(rg_agent_key(agent, "servers/%s/gpus/%u", agent->id, left.index),
                                           rg_pool_gpu_json(&left), agent->membership.etcd_lease));
    }
    for (uint32_t i = 0; i < agent->own.n; i++) {
        const struct rg_own_lease *lease = agent->own.leases[i];
        const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, lease->id);
        if (!lease->here || !held || !is_free(agent, lease->id))
            continue;
        /* its client may come back to it at this moment */
        json_array_append_new(compare,
                              rg_agent_compare(held->changed, rg_agent_key(agent, "leases/%s", lease->id)));
        json_array_append_new(changes, rg_agent_remove(rg_agent_key(agent, "leases/%s", lease->id)));
    }
    if (!any) {
        json_decref(compare);
        json_decref(changes);
        return;
    }
    agent->own.freeing = true;
    rg_etcd_call(agent->etcd, "/v3/kv/txn", json_pack("{s:o, s:o}", "compare", compare, "success", changes),
                 free_done, agent);
}

/* Those that nobody needs to know of any more. */
static void forget(struct rg_own *own)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < own->n; i++) {
        struct rg_own_lease *lease = own->leases[i];
        if (lease->here || lease->sessions > 0 || (lease->told && !lease->gone_told)) {
            own->leases[n++] = lease;
        } else {
            json_decref(lease->value);
            free(lease);
        }
    }
    own->n = n;
}

uint64_t rg_own_look(struct rg_agent *agent)
{
    struct rg_own *own = &agent->own;
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    /* who is not in the pool knows nothing of its leases: what runs goes on */
    if (!self || !rg_agent_is_in(agent) || !rg_scope_is_settled(agent))
        return UINT64_MAX;
    if (own->seen == agent->own_changes && rg_now_ns() < own->due_ns)
        return own->due_ns;
    const bool settling =
        rg_scope_is_settling(agent); /* other servers may have leases yet that etcd has lost */
    take_over(agent, self);
    for (uint32_t i = 0; i < own->n; i++) {
        struct rg_own_lease *lease = own->leases[i];
        const bool there = lease->here && rg_pool_mirror_lease(&agent->mirror, lease->id);
        const bool preempted = there && rg_preemption_is_wanted(agent, lease->id);
        if (there && (!lease->told || preempted != (lease->preempted != 0)))
            tell_lease(agent, lease);
        else if (!there && !settling && !lease->gone_told && (lease->told || lease->sessions > 0))
            tell_gone(agent, lease);
    }
    forget(own);
    if (settling)
        return agent->settles_ns;
    if (own->freeing || agent->mirror.revision < own->freed)
        return UINT64_MAX;
    if (rg_now_ns() < own->again_ns)
        return own->again_ns;
    own->seen = agent->own_changes;
    own->due_ns = count_idle(agent);
    free_shares(agent, self);
    return own->due_ns;
}

void rg_own_fini(struct rg_own *own)
{
    for (uint32_t i = 0; i < own->n; i++) {
        json_decref(own->leases[i]->value);
        free(own->leases[i]);
    }
    free(own->leases);
    *own = (struct rg_own){0};
}
