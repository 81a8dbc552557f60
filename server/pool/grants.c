/*
 * grants.c - the scheduling policy over the pool as it stands, and what it decides about requests of this server's clients.
 *
 * Every member runs the same policy over the same state, and each carries out what concerns its own clients (commit.c): all of one
 * decision at once, before the next one is made on what has come of it. Where several are to have parts of the same GPU, the first in
 * the queue goes first, whosever client it is, since all but one would fail: members know that of each other without a word, for they
 * come to the same decision. Whoever waits is told where it stands, what it waits for, and when that is over.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND      1000000000ull
#define BEHIND_NS   100000000ull /* that a member is let go first which may have gone */
#define AT_ONCE_MAX 16u          /* transactions */
#define SUSPENDS_NS (25 * SECOND)

bool rg_grants_admissible(const struct rg_agent *agent, const json_t *request, char *why, size_t why_size)
{
    struct rg_picture picture = {0};
    struct rg_pool_policy policy;
    rg_pool_policy_default(&policy);
    bool good = rg_picture_draw(&agent->mirror, request, &picture, why, why_size);
    if (good) {
        picture.snapshot.n_requests = 0;
        good = rg_pool_admissible(&picture.snapshot, &policy, &picture.requests[0], why, why_size) == RG_OK;
    }
    rg_picture_fini(&picture);
    return good;
}

static struct rg_agent_ask *ask_of(const struct rg_agent *agent, const char *request)
{
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (strcmp(agent->asks[i]->id, request) == 0)
            return agent->asks[i];
    return NULL;
}

/* --- waiting ----------------------------------------------------------------------------------------------------- */

/* Where it stands and what it waits for, if that is not what the client was told last. */
static void tell_waiting(struct rg_agent_ask *ask, uint32_t position, uint32_t of, const char *why)
{
    char said[sizeof ask->said];
    snprintf(said, sizeof said, "%u %s", position, why);
    rg_printable_clean(said);
    if (strcmp(said, ask->said) == 0)
        return;
    json_t *answer = json_pack("{s:s, s:i, s:i, s:s, s:I}", "state", "waiting", "position", (int)position,
                               "of", (int)of, "why", strchr(said, ' ') + 1, "since",
                               (json_int_t)rg_json_get_number(ask->request, "since", 0));
    if (rg_ask_tell(ask, answer))
        memcpy(ask->said, said, sizeof said);
    json_decref(answer);
}

static void give_up(struct rg_agent_ask *ask, const char *why)
{
    char text[1200];
    snprintf(text, sizeof text, "%s", why);
    rg_ask_undo(ask);
    rg_ask_refuse(ask, text);
}

/* Whether room is being made for one that does not wait for others, which takes a moment. */
static bool is_made_room(struct rg_agent_ask *ask, const struct rg_pool_waiting *waiting, uint64_t *due)
{
    if (waiting->reason != RG_POOL_WAITS_FOR_SUSPENSION)
        return false;
    ask->suspends_ns = ask->suspends_ns ? ask->suspends_ns : rg_now_ns();
    const uint64_t end = ask->suspends_ns + SUSPENDS_NS;
    *due = end < *due ? end : *due;
    return rg_now_ns() < end;
}

static void look_waiting(struct rg_agent *agent, const struct rg_picture *picture,
                         const struct rg_pool_outcome *outcome, uint64_t now, uint64_t *due)
{
    for (uint32_t i = 0; i < outcome->n_waiting; i++) {
        const struct rg_pool_waiting *waiting = &outcome->waiting[i];
        struct rg_agent_ask *ask = ask_of(agent, picture->requests[waiting->request].id);
        char why[480] = "", text[700];
        if (!ask || ask->state != RG_ASK_WAITING || ask->socket < 0)
            continue;
        rg_pool_explain(&picture->snapshot, outcome, i, now, why, sizeof why);
        if (waiting->reason == RG_POOL_WAITS_FOR_GPUS)
            rg_preemption_explain(picture, &picture->requests[waiting->request], now, why, sizeof why);
        if (rg_pool_reason_is_final(waiting->reason)) {
            snprintf(text, sizeof text, "%s [lease-impossible]", why);
            give_up(ask, text);
        } else if (!ask->waits && !picture->requests[waiting->request].spares &&
                   is_made_room(ask, waiting, due)) {
            tell_waiting(ask, waiting->position, outcome->n_waiting, why);
        } else if (!ask->waits) {
            snprintf(text, sizeof text, "%s; --wait-for waits for it [lease-not-free]", why);
            give_up(ask, text);
        } else if (rg_now_ns() >= ask->until_ns) {
            snprintf(text, sizeof text, "no GPUs in the time of --wait-for: %s [lease-waited]", why);
            give_up(ask, text);
        } else {
            *due = ask->until_ns < *due ? ask->until_ns : *due;
            tell_waiting(ask, waiting->position, outcome->n_waiting, why);
        }
    }
}

/* Who waits is told that nothing can be decided. */
static void look_cut_off(struct rg_agent *agent)
{
    char text[RG_ETCD_WHY + 64];
    snprintf(text, sizeof text, "the pool cannot be reached: %s [pool-unreachable]", agent->membership.why);
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        if (ask->state == RG_ASK_WAITING && ask->socket >= 0 &&
            (!ask->waits || rg_now_ns() >= ask->until_ns)) {
            give_up(ask, text); /* another takes its place in the list */
            continue;
        }
        if (ask->state == RG_ASK_WAITING)
            tell_waiting(ask, 0, 0, text);
        i++;
    }
}

/* A request that was lost with the etcd lease that it was bound to is written again. */
static void put_again_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)status;
    (void)reply;
    (void)why;
    rg_agent_changed(agent);
}

static void look_lost(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks; i++) {
        const struct rg_agent_ask *ask = agent->asks[i];
        if (ask->state != RG_ASK_WAITING || agent->mirror.revision < ask->written ||
            rg_pool_mirror_request(&agent->mirror, ask->id))
            continue;
        rg_etcd_call(agent->etcd, "/v3/kv/txn",
                     json_pack("{s:[o, o], s:[o]}", "compare",
                               rg_agent_compare(0, rg_agent_key(agent, "requests/%s", ask->id)),
                               rg_agent_compare(
                                   0, rg_agent_key(agent, "leases/%s", ask->lease[0] ? ask->lease : ask->id)),
                               "success",
                               rg_agent_put(rg_agent_key(agent, "requests/%s", ask->id),
                                            json_incref(ask->request), agent->membership.etcd_lease)),
                     put_again_done, agent);
    }
}

/*
 * What came of transactions that were not answered: the lease is there after all. If it is not, the request is decided on again, or was
 * written again: one that is still under way then fails, since it compares the request's revision.
 */
static void look_unsure(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        const struct rg_pool_entry *held =
            ask->unsure ? rg_pool_mirror_lease(&agent->mirror, ask->lease) : NULL;
        if (ask->state != RG_ASK_WAITING || !held) {
            i++;
            continue;
        }
        ask->unsure = false;
        ask->changed = held->changed;
        rg_commit_finish(ask, held->value); /* another may take its place in the list */
        if (i < agent->n_asks && agent->asks[i] == ask)
            i++;
    }
}

/* Those that are in the queue for the first time, and of whose owner others were faster: once, as there are only fewer before it later. */
static void look_crowded(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        const bool is_new = ask->state == RG_ASK_WAITING && ask->socket >= 0 && !ask->counted &&
                            rg_pool_mirror_request(&agent->mirror, ask->id);
        ask->counted = ask->counted || is_new;
        if (is_new && rg_ask_is_one_too_many(ask)) {
            rg_ask_undo(ask);
            rg_ask_refuse_one_too_many(ask); /* another takes its place in the list */
        } else {
            i++;
        }
    }
}

/* --- deciding ---------------------------------------------------------------------------------------------------- */

/* Whether GPUs are still being taken back from an earlier lease of the same id. */
static bool is_ending(const struct rg_agent *agent, const struct rg_agent_ask *ask)
{
    for (uint32_t i = 0; i < agent->mirror.n_members && ask->chosen; i++)
        for (uint32_t j = 0; j < agent->mirror.members[i]->n_gpus; j++) {
            const struct rg_pool_gpu *gpu = agent->mirror.members[i]->gpus[j];
            for (uint32_t k = 0; k < gpu->n_shares; k++)
                if (strcmp(gpu->shares[k].lease, ask->lease) == 0)
                    return true;
        }
    return false;
}

/* Whether each GPU takes one more lease, beside those that are suspended. */
static bool has_places(const struct rg_picture *picture, const struct rg_pool_part *wanted, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (picture->gpus[wanted[i].device]->n_shares >= RG_POOL_SHARES_MAX)
            return false;
    return true;
}

/* Who has a part of a GPU by the decision that is being carried out. */
enum part_of { NOBODY, ANOTHER, OURS };

/*
 * Whether a grant may be carried out now, or others go first; `handed`: it is of a server at rest. *due: when to look again. Its GPUs are
 * its own from then on.
 */
static bool may_go(struct rg_agent_ask *ask, bool handed, enum part_of *parts,
                   const struct rg_pool_part *wanted, uint32_t n, uint64_t *due)
{
    const uint64_t now = rg_now_ns();
    enum part_of before = NOBODY;
    for (uint32_t i = 0; i < n; i++)
        before = parts[wanted[i].device] > before ? parts[wanted[i].device] : before;
    const bool go = (before == NOBODY && (ask || handed)) ||
                    (before == ANOTHER && ask && ask->behind_ns && now - ask->behind_ns >= BEHIND_NS);
    for (uint32_t i = 0; i < n; i++)
        if (parts[wanted[i].device] != OURS)
            parts[wanted[i].device] = go ? OURS : ANOTHER;
    if (!ask || go)
        return go;
    ask->behind_ns = ask->behind_ns ? ask->behind_ns : now;
    if (before == ANOTHER)
        *due = ask->behind_ns + BEHIND_NS < *due ? ask->behind_ns + BEHIND_NS : *due;
    return false;
}

/* Carries out what was decided for this server's clients. */
static void carry_out(struct rg_agent *agent, const struct rg_picture *picture,
                      const struct rg_pool_outcome *outcome, uint64_t *due)
{
    RG_CLEANUP_FREE enum part_of *parts = calloc(picture->snapshot.n_devices + 1u, sizeof *parts);
    for (uint32_t i = 0; i < outcome->n_grants && parts && agent->granting < AT_ONCE_MAX; i++) {
        const struct rg_pool_grant *grant = &outcome->grants[i];
        const struct rg_pool_entry *request = picture->queued[grant->request];
        if (!request) {
            const char *lease = picture->requests[grant->request].id;
            if (may_go(NULL, rg_own_find(&agent->own, lease) != NULL, parts, &outcome->parts[grant->first],
                       grant->n, due))
                rg_preemption_return(agent, lease);
            continue;
        }
        struct rg_agent_ask *ask = ask_of(agent, request->id);
        const bool handed = !ask && rg_decider_decides(agent, request);
        if (ask && (ask->state != RG_ASK_WAITING || ask->socket < 0 || is_ending(agent, ask)))
            ask = NULL;
        if (!has_places(picture, &outcome->parts[grant->first], grant->n) ||
            !may_go(ask, handed, parts, &outcome->parts[grant->first], grant->n, due))
            continue;
        ask = handed ? rg_handing_stand_in(agent, request) : ask;
        if (!ask)
            continue;
        ask->behind_ns = 0;
        rg_commit_grant(ask, picture, outcome, grant);
    }
}

/* Has leases suspended for requests that this server decides. */
static void make_room(struct rg_agent *agent, const struct rg_picture *picture,
                      const struct rg_pool_outcome *outcome)
{
    for (uint32_t i = 0; i < outcome->n_proposals && agent->granting < AT_ONCE_MAX; i++) {
        const struct rg_pool_entry *request = picture->queued[outcome->proposals[i].request];
        const struct rg_agent_ask *ask = request ? ask_of(agent, request->id) : NULL;
        if (ask ? ask->state == RG_ASK_WAITING && ask->socket >= 0
                : request && rg_decider_decides(agent, request))
            rg_preemption_propose(agent, picture, outcome, &outcome->proposals[i]);
    }
}

/* When the first lease may be suspended that is spared until then. */
static void look_spared(const struct rg_picture *picture, uint64_t now, uint64_t *due)
{
    for (uint32_t i = 0; i < picture->snapshot.n_leases; i++) {
        const struct rg_pool_lease *lease = &picture->leases[i];
        if (!lease->suspendable || lease->suspended || lease->spared_until <= now)
            continue;
        const uint64_t then = rg_now_ns() + (lease->spared_until - now);
        *due = then < *due ? then : *due;
    }
}

static void policy_of(struct rg_pool_policy *policy)
{
    rg_pool_policy_default(policy);
    policy->preempt = true;
    policy->preempt_after = 0; /* each server says for its leases */
}

static uint64_t decide(struct rg_agent *agent)
{
    struct rg_picture picture = {0};
    struct rg_pool_outcome outcome = {0};
    struct rg_pool_policy policy;
    char why[512] = "";
    uint64_t due = UINT64_MAX;
    const uint64_t now = (uint64_t)rg_agent_time(agent) * SECOND;
    policy_of(&policy);
    if (!rg_picture_draw(&agent->mirror, NULL, &picture, why, sizeof why) ||
        rg_pool_schedule(&picture.snapshot, &policy, now, &outcome, why, sizeof why) != RG_OK) {
        rg_warn("pool %s: nothing can be decided: %s", agent->settings.pool, why);
        rg_picture_fini(&picture);
        return rg_now_ns() + SECOND;
    }
    carry_out(agent, &picture, &outcome, &due);
    make_room(agent, &picture, &outcome);
    look_spared(&picture, now, &due);
    look_waiting(agent, &picture, &outcome, now, &due);
    rg_pool_outcome_clear(&outcome);
    rg_picture_fini(&picture);
    return due;
}

/* Whether others are, or are about to be, in the queue, or what was granted last is not known yet. */
static bool has_queue(const struct rg_agent *agent, const struct rg_agent_ask *except)
{
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i] != except &&
            (agent->asks[i]->state == RG_ASK_WAITING || agent->asks[i]->state == RG_ASK_QUEUEING))
            return true;
    return agent->mirror.n_requests || agent->granting || rg_preemption_is_under_way(agent) ||
           rg_scope_is_settling(agent) || agent->mirror.revision < agent->granted || !rg_agent_is_in(agent) ||
           !rg_scope_is_whole(agent);
}

bool rg_grants_at_once(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    struct rg_picture picture = {0};
    struct rg_pool_outcome outcome = {0};
    struct rg_pool_policy policy;
    char why[512] = "";
    bool begun = false;
    if (ask->socket < 0 || has_queue(agent, ask) || is_ending(agent, ask))
        return false;
    rg_pool_policy_default(&policy);
    if (rg_picture_draw(&agent->mirror, ask->request, &picture, why, sizeof why) &&
        rg_pool_schedule(&picture.snapshot, &policy, (uint64_t)rg_agent_time(agent) * SECOND, &outcome, why,
                         sizeof why) == RG_OK &&
        outcome.n_grants == 1) {
        begun = ask->at_once = true; /* the ask may be no more afterwards */
        rg_commit_grant(ask, &picture, &outcome, &outcome.grants[0]);
    }
    rg_pool_outcome_clear(&outcome);
    rg_picture_fini(&picture);
    return begun;
}

static bool has_waiting(const struct rg_agent *agent)
{
    if (rg_decider_is_asked(agent) || rg_preemption_waits(agent))
        return true;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->state == RG_ASK_WAITING)
            return true;
    return false;
}

uint64_t rg_grants_look(struct rg_agent *agent)
{
    const uint64_t now = rg_now_ns();
    if (!has_waiting(agent))
        return UINT64_MAX;
    if (!rg_agent_is_in(agent)) {
        look_cut_off(agent);
        return now + SECOND;
    }
    if (agent->granting || agent->mirror.revision < agent->granted || !rg_scope_is_whole(agent))
        return UINT64_MAX; /* their answers, and the watch, bring it on */
    if (rg_scope_is_settling(agent))
        return agent->settles_ns;
    if (agent->decided == agent->changes && now < agent->look_ns)
        return agent->look_ns;
    agent->decided = agent->changes;
    look_unsure(agent);
    look_crowded(agent);
    look_lost(agent);
    agent->look_ns = UINT64_MAX;
    const uint64_t due = decide(agent);
    agent->look_ns =
        due < agent->look_ns ? due : agent->look_ns; /* one that could not even be begun comes again */
    return agent->look_ns;
}
