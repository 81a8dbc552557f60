/*
 * preemption.c - leases that are suspended for requests of higher priority, and come back.
 *
 * Whoever decides about a request that does not fit, and may preempt, marks the leases of lower priority that the policy proposes
 * (pool/schedule/preempt.c) as SUSPENDING, all their parts at once, in a transaction that compares their GPUs, their server and the
 * request. The server that has them tells its monitor, which suspends the sessions. When all are, that server writes SUSPENDED: from then
 * on the parts are others' to have, and the request is granted as any. If one cannot be suspended the lease is ACTIVE again, with the reason.
 *
 * A lease that is suspended is in the queue of every decision as a request for its own GPUs, the first of its priority. Its server alone
 * carries out that it comes back: it is ACTIVE again, by a transaction that compares its GPUs, and then its sessions are. So what is
 * active of a GPU is never more than the GPU has, in what etcd has at any revision.
 *
 * Nothing needs to be undone. A request that has gone leaves a lease that is, or will be, suspended, and comes back at once, as nobody is
 * before it. A server that goes takes its leases with it; its agent's successor finds all in etcd, and asks the monitor what has come of
 * it. A transaction that was not answered may have been done, and the watch tells. One thread.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_NS 300000000ull
#define LATELY_S                                                                                             \
    330u /* what could not be suspended is tried again before, as long as somebody waits for it */

/* --- what is so -------------------------------------------------------------------------------------------------------- */

/* The states of a lease's parts of a server's GPUs, as bits. */
static unsigned states_of(const struct rg_pool_member *member, const char *lease)
{
    unsigned states = 0;
    for (uint32_t i = 0; member && i < member->n_gpus; i++)
        for (uint32_t j = 0; j < member->gpus[i]->n_shares; j++)
            if (strcmp(member->gpus[i]->shares[j].lease, lease) == 0)
                states |= 1u << member->gpus[i]->shares[j].state;
    return states;
}

bool rg_preemption_is_wanted(const struct rg_agent *agent, const char *lease)
{
    return (states_of(rg_pool_mirror_member(&agent->mirror, agent->id), lease) &
            ~(1u << RG_POOL_SHARE_ACTIVE)) != 0;
}

enum rg_pool_share_state rg_preemption_state(const struct rg_agent *agent, const char *lease,
                                             const json_t *value)
{
    unsigned states = 0;
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(value, "gpus"), i, one) states |=
        states_of(rg_pool_mirror_member(&agent->mirror, rg_json_get_text(one, "server")), lease);
    return states & 1u << RG_POOL_SHARE_SUSPENDED    ? RG_POOL_SHARE_SUSPENDED
           : states & 1u << RG_POOL_SHARE_SUSPENDING ? RG_POOL_SHARE_SUSPENDING
                                                     : RG_POOL_SHARE_ACTIVE;
}

bool rg_preemption_waits(const struct rg_agent *agent)
{
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    for (uint32_t i = 0; self && i < self->n_gpus; i++)
        for (uint32_t j = 0; j < self->gpus[i]->n_shares; j++)
            if (self->gpus[i]->shares[j].state == RG_POOL_SHARE_SUSPENDED)
                return true;
    return false;
}

bool rg_preemption_is_under_way(const struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        for (uint32_t j = 0; j < agent->mirror.members[i]->n_gpus; j++) {
            const struct rg_pool_gpu *gpu = agent->mirror.members[i]->gpus[j];
            for (uint32_t k = 0; k < gpu->n_shares; k++)
                if (gpu->shares[k].state != RG_POOL_SHARE_ACTIVE)
                    return true;
        }
    return false;
}

/* --- changing it --------------------------------------------------------------------------------------------------------- */

/* Leases whose parts get another state. */
struct change {
    const char *const *leases;
    uint32_t n;
    struct rg_pool_share as; /* what the parts become, but for lease and memory */
};

static bool is_of(const struct change *change, const char *lease)
{
    for (uint32_t i = 0; i < change->n; i++)
        if (strcmp(change->leases[i], lease) == 0)
            return true;
    return false;
}

/* A GPU with what changes. False: nothing does. */
static bool change_gpu(struct rg_pool_gpu *gpu, const struct change *change)
{
    bool any = false;
    for (uint32_t i = 0; i < gpu->n_shares; i++) {
        struct rg_pool_share *share = &gpu->shares[i];
        if (share->state == change->as.state || !is_of(change, share->lease))
            continue;
        share->state = change->as.state;
        share->refused = change->as.refused;
        share->since = change->as.since;
        any = true;
    }
    return any;
}

/* Adds that to a transaction. False: nothing changes, or more would be active of a GPU than it has. */
static bool add_change(const struct rg_agent *agent, const struct rg_pool_member *member,
                       const struct change *change, json_t *compare, json_t *puts)
{
    for (uint32_t i = 0; i < member->n_gpus; i++) {
        struct rg_pool_gpu gpu = *member->gpus[i];
        const uint64_t held = rg_pool_gpu_held(&gpu);
        if (!change_gpu(&gpu, change))
            continue;
        if (rg_pool_gpu_held(&gpu) > held && rg_pool_gpu_held(&gpu) > gpu.memory)
            return false;
        json_array_append_new(compare, rg_agent_compare(gpu.changed, rg_agent_key(agent, "servers/%s/gpus/%u",
                                                                                  member->id, gpu.index)));
        json_array_append_new(puts,
                              rg_agent_put(rg_agent_key(agent, "servers/%s/gpus/%u", member->id, gpu.index),
                                           rg_pool_gpu_json(&gpu), member->etcd_lease));
    }
    return json_array_size(puts) > 0;
}

static struct change change_to(const struct rg_agent *agent, enum rg_pool_share_state state,
                               const char *const *leases, uint32_t n)
{
    return (struct change){
        .leases = leases, .n = n, .as = {.state = state, .since = (uint64_t)rg_agent_time(agent)}};
}

/* --- for a request --------------------------------------------------------------------------------------------------------- */

static void proposed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    agent->granting--;
    rg_agent_changed(agent);
    if (status != RG_OK) {
        rg_debug("leases are not suspended yet: %s", why);
        agent->look_ns = rg_now_ns() + AGAIN_NS;
    } else if (json_is_true(json_object_get(reply, "succeeded"))) {
        const int64_t revision = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        agent->granted = revision > agent->granted ? revision : agent->granted;
    }
}

void rg_preemption_propose(struct rg_agent *agent, const struct rg_picture *picture,
                           const struct rg_pool_outcome *outcome, const struct rg_pool_proposal *proposal)
{
    const struct rg_pool_entry *request = picture->queued[proposal->request];
    const char *leases[RG_POOL_SHARES_MAX];
    const uint32_t n = proposal->n < RG_POOL_SHARES_MAX ? proposal->n : RG_POOL_SHARES_MAX;
    const struct rg_pool_lease *first = &picture->leases[outcome->suspend[proposal->first]];
    const struct rg_pool_member *member = picture->members[picture->devices[first->parts->device].server];
    json_t *compare = json_array(), *puts = json_array();
    for (uint32_t i = 0; i < n; i++)
        leases[i] = picture->leases[outcome->suspend[proposal->first + i]].id;
    const struct change change = change_to(agent, RG_POOL_SHARE_SUSPENDING, leases, n);
    if (n < proposal->n || !add_change(agent, member, &change, compare, puts)) {
        json_decref(compare);
        json_decref(puts);
        return;
    }
    json_array_append_new(
        compare, rg_agent_compare(request->changed, rg_agent_key(agent, "requests/%s", request->id)));
    json_array_append_new(compare,
                          rg_agent_compare(member->changed, rg_agent_key(agent, "servers/%s", member->id)));
    const char *name = rg_json_get_text(request->value, "name");
    rg_info("%u lease%s on %s to be suspended for the request %s of %s", n, n == 1 ? " is" : "s are",
            member->address ? member->address : member->id, request->id, *name ? name : "somebody");
    agent->granting++;
    rg_etcd_call(agent->etcd, "/v3/kv/txn", json_pack("{s:o, s:o}", "compare", compare, "success", puts),
                 proposed, agent);
}

/* --- leases here ----------------------------------------------------------------------------------------------------------- */

static void written(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    agent->preemption.writing = false;
    rg_agent_changed(agent);
    if (status != RG_OK) {
        rg_debug("what has come of suspending leases is not written yet: %s", why);
        agent->preemption.again_ns = rg_now_ns() + AGAIN_NS;
    } else if (json_is_true(json_object_get(reply, "succeeded"))) {
        agent->preemption.written = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
    }
}

/* Writes another state of a lease here. False: it cannot be. */
static bool write_state(struct rg_agent *agent, const struct rg_pool_member *self,
                        const struct change *change)
{
    json_t *compare = json_array(), *puts = json_array();
    if (!add_change(agent, self, change, compare, puts)) {
        json_decref(compare);
        json_decref(puts);
        return false;
    }
    agent->preemption.writing = true;
    rg_etcd_call(agent->etcd, "/v3/kv/txn", json_pack("{s:o, s:o}", "compare", compare, "success", puts),
                 written, agent);
    return true;
}

/* Whether what is written is under way, or not known yet. */
static bool is_writing(const struct rg_agent *agent)
{
    return agent->preemption.writing || agent->mirror.revision < agent->preemption.written;
}

void rg_preemption_return(struct rg_agent *agent, const char *lease)
{
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    const char *const leases[] = {lease};
    const struct change change = change_to(agent, RG_POOL_SHARE_ACTIVE, leases, 1);
    if (!self || is_writing(agent) || !states_of(self, lease))
        return;
    if (write_state(agent, self, &change))
        rg_info("lease %s: it has its GPUs again", lease);
}

/* What the monitor has said of a lease whose sessions are to be suspended. */
static bool conclude(struct rg_agent *agent, const struct rg_pool_member *self,
                     const struct rg_own_lease *lease)
{
    static const enum rg_pool_share_refusal refusals[] = {[RG_AGENT_BUSY] = RG_POOL_SHARE_BUSY,
                                                          [RG_AGENT_SHARED] = RG_POOL_SHARE_SHARED,
                                                          [RG_AGENT_DRIVER] = RG_POOL_SHARE_DRIVER};
    const char *const leases[] = {lease->id};
    const bool good = lease->suspension == RG_AGENT_SUSPENDED;
    struct change change = change_to(agent, good ? RG_POOL_SHARE_SUSPENDED : RG_POOL_SHARE_ACTIVE, leases, 1);
    if (!good)
        change.as.refused = refusals[lease->suspension];
    rg_info("lease %s: %s", lease->id,
            good ? "it is suspended for a request of higher priority"
                 : "it cannot be suspended for a request of higher priority, and goes on");
    return write_state(agent, self, &change);
}

uint64_t rg_preemption_look(struct rg_agent *agent)
{
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    const unsigned suspended = 1u << RG_POOL_SHARE_SUSPENDED;
    if (!self || !rg_agent_is_in(agent) || !rg_scope_is_settled(agent) || rg_scope_is_settling(agent) ||
        is_writing(agent))
        return UINT64_MAX; /* each of them brings it on */
    if (rg_now_ns() < agent->preemption.again_ns)
        return agent->preemption.again_ns;
    for (uint32_t i = 0; i < agent->own.n; i++) {
        const struct rg_own_lease *lease = agent->own.leases[i];
        if (lease->preempted && lease->answered == lease->preempted && lease->suspension &&
            states_of(self, lease->id) != suspended && conclude(agent, self, lease))
            return UINT64_MAX;
    }
    return UINT64_MAX;
}

/* --- for those who wait ------------------------------------------------------------------------------------------------------ */

void rg_preemption_explain(const struct rg_picture *picture, const struct rg_pool_request *request,
                           uint64_t now, char *why, size_t size)
{
    static const char *const reasons[RG_POOL_SHARE_REFUSALS] = {
        [RG_POOL_SHARE_BUSY] = "what it has begun does not come to its end",
        [RG_POOL_SHARE_SHARED] =
            "it shares memory or events with other sessions, or a network adapter or NCCL "
            "has a part in its memory",
        [RG_POOL_SHARE_DRIVER] = "its driver cannot do that, or refuses"};
    const size_t used = strlen(why);
    for (uint32_t i = 0; i < picture->snapshot.n_devices && !request->spares; i++)
        for (uint32_t j = 0; j < picture->gpus[i]->n_shares; j++) {
            const struct rg_pool_share *share = &picture->gpus[i]->shares[j];
            if (!share->refused || share->since + LATELY_S < now / 1000000000u)
                continue;
            snprintf(why + used, size - used,
                     "; a lease on %s could not be suspended for it: %s, and it is tried again",
                     picture->servers[picture->devices[i].server].hostname, reasons[share->refused]);
            return;
        }
}
