/*
 * membership.c - the server's place in the pool: an etcd lease of RG_AGENT_TTL_S, kept alive, to which its keys are bound.
 *
 * Joining waits until the pool's state is known, because what is there of this server is kept: another agent of this server may
 * have been here, or the lease was lost while etcd could not be reached. GPUs come back with what is granted of them, and leases
 * by which sessions run come back with the new etcd lease, all in one transaction that compares what it is based on. Runs of
 * this server that have died leave first, and no other may have its GPUs (predecessors.c).
 *
 * Times count from when a sign of life was sent, which is before etcd got it: this server stops earlier than etcd forgets it.
 */
#include "common/base/clock.h"
#include "common/base/hash_table.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AGAIN_NS     300000000ull
#define UNFIT_NS     5000000000ull /* what is wrong has to be mended by somebody */
#define CLOCK_MOST_S 60

static void tell_standing(struct rg_agent *agent)
{
    const struct rg_membership *membership = &agent->membership;
    struct rg_agent_answer answer = {.kind = RG_AGENT_STANDING};
    answer.standing.valid_until_ns = membership->state == RG_MEMBER_IN ? membership->valid_until_ns : 0;
    snprintf(answer.standing.why, sizeof answer.standing.why, "%.*s", (int)sizeof answer.standing.why - 1,
             membership->why);
    answer.standing.queue = rg_agent_history_queue(agent);
    rg_agent_tell(agent, &answer);
}

/* Whether the log has it already, since all was well. */
static bool is_said(struct rg_membership *membership, const char *why)
{
    const uint64_t hash = rg_hash_text(why);
    for (uint32_t i = 0; i < membership->n_said; i++)
        if (membership->said[i] == hash)
            return true;
    if (membership->n_said < sizeof membership->said / sizeof *membership->said)
        membership->said[membership->n_said++] = hash;
    return false;
}

static void all_is_well(struct rg_agent *agent)
{
    agent->membership.why[0] = '\0';
    agent->membership.n_said = 0;
    tell_standing(agent);
}

/* Something is wrong: said once. */
static void complain(struct rg_agent *agent, const char *why, uint64_t pause_ns)
{
    struct rg_membership *membership = &agent->membership;
    membership->next_ns = rg_now_ns() + pause_ns;
    if (strcmp(membership->why, why) == 0)
        return;
    snprintf(membership->why, sizeof membership->why, "%s", why);
    if (!is_said(membership, why))
        rg_error("pool %s: %s", agent->settings.pool, why);
    tell_standing(agent);
}

void rg_membership_out(struct rg_agent *agent, const char *why, uint64_t pause_ns)
{
    agent->membership.state = RG_MEMBER_OUT;
    complain(agent, why, pause_ns);
    tell_standing(agent);
}

/* --- joining ---------------------------------------------------------------------------------------------------- */

static void other_pools(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    char names[256] = "";
    const json_t *pair;
    size_t i;
    (void)why;
    if (status != RG_OK)
        return;
    json_array_foreach(json_object_get(reply, "kvs"), i, pair)
    {
        json_t *name = rg_etcd_plain(json_object_get(pair, "key"));
        const char *text = json_string_value(name);
        char found[64];
        if (text && sscanf(text, "/remote-gpu/pools/%63[^/]/", found) == 1 &&
            strcmp(found, agent->settings.pool) != 0 && !strstr(names, found) &&
            strlen(names) + strlen(found) + 3 < sizeof names)
            sprintf(names + strlen(names), "%s%s", *names ? ", " : "", found);
        json_decref(name);
    }
    if (*names)
        rg_warn("this is the first server of the pool %s; this etcd also has: %s. If one of these was meant, "
                "correct --pool",
                agent->settings.pool, names);
}

/* Who is alone in a pool may have misspelt its name. */
static void look_for_others(struct rg_agent *agent)
{
    if (!rg_scope_is_whole(agent))
        return;
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        if (strcmp(agent->mirror.members[i]->id, agent->id) != 0)
            return;
    rg_etcd_call(agent->etcd, "/v3/kv/range",
                 json_pack("{s:o, s:o, s:b, s:s}", "key", rg_etcd_bytes("/remote-gpu/pools/"), "range_end",
                           rg_etcd_prefix_end("/remote-gpu/pools/"), "keys_only", 1, "limit", "1000"),
                 other_pools, agent);
}

static void check_clock(const struct rg_agent *agent)
{
    const int64_t ahead = rg_etcd_clock_ahead(agent->etcd);
    if (ahead > CLOCK_MOST_S || ahead < -CLOCK_MOST_S)
        rg_warn("this machine's clock is %" PRId64
                " s %s that of etcd at %s: the pool goes by etcd's; set the clock "
                "(NTP), since certificates and accounts go by this one",
                ahead < 0 ? -ahead : ahead, ahead < 0 ? "ahead of" : "behind", rg_etcd_endpoint(agent->etcd));
}

static void put_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_membership *membership = &agent->membership;
    if (status != RG_OK || !json_is_true(json_object_get(reply, "succeeded"))) {
        if (status == RG_ERR_NOT_FOUND)
            membership->etcd_lease = 0; /* etcd has forgotten it meanwhile */
        membership->state = RG_MEMBER_OUT;
        membership->next_ns = rg_now_ns() + AGAIN_NS;
        if (status != RG_OK && status != RG_ERR_NOT_FOUND)
            complain(agent, why, AGAIN_NS);
        return;
    }
    membership->state = RG_MEMBER_IN;
    membership->alone = false;
    membership->joined = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
    membership->valid_until_ns = membership->sent_ns + RG_AGENT_TTL_NS;
    membership->next_ns = membership->sent_ns + RG_AGENT_BEAT_NS;
    rg_info("in the pool %s as %s (etcd %s)", agent->settings.pool, agent->settings.address,
            rg_etcd_endpoint(agent->etcd));
    all_is_well(agent);
    check_clock(agent);
    look_for_others(agent);
}

static void put_everything(struct rg_agent *agent)
{
    json_t *compare = json_array(), *puts = json_array();
    json_array_append_new(puts, rg_agent_put(rg_agent_key(agent, "servers/%s", agent->id),
                                             rg_self_server(agent), agent->membership.etcd_lease));
    rg_self_add_gpus(agent, compare, puts);
    rg_self_add_leases(agent, compare, puts);
    agent->membership.dirty = false;
    rg_etcd_call(agent->etcd, "/v3/kv/txn", json_pack("{s:o, s:o}", "compare", compare, "success", puts),
                 put_done, agent);
}

static void lease_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_membership *membership = &agent->membership;
    membership->etcd_lease = rg_etcd_get_number(reply, "ID");
    if (status == RG_OK && membership->etcd_lease) {
        put_everything(agent);
        return;
    }
    membership->state = RG_MEMBER_OUT;
    complain(agent, *why ? why : "etcd has given no lease", status == RG_ERR_REFUSED ? UNFIT_NS : AGAIN_NS);
}

static void version_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_membership *membership = &agent->membership;
    const char *version = rg_json_get_text(reply, "etcdserver");
    unsigned major = 0, minor = 0;
    char text[RG_ETCD_WHY];
    membership->state = RG_MEMBER_OUT;
    if (status != RG_OK) {
        complain(agent, why, status == RG_ERR_UNREACHABLE ? AGAIN_NS : UNFIT_NS);
    } else if (sscanf(version, "%u.%u", &major, &minor) != 2 || major != 3 || minor < 4) {
        snprintf(text, sizeof text,
                 "etcd at %s is of version %.20s; 3.4 or a later 3 is needed: update it, or name another by "
                 "--etcd",
                 rg_etcd_endpoint(agent->etcd), *version ? version : "unknown");
        complain(agent, text, UNFIT_NS);
    } else {
        membership->version_known = true;
        membership->next_ns = 0;
    }
}

static void join(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    membership->state = RG_MEMBER_JOINING;
    membership->sent_ns = rg_now_ns();
    if (!membership->version_known) {
        rg_etcd_call(agent->etcd, "/version", NULL, version_done, agent);
    } else if (rg_predecessors_hinder(agent)) {
        return;
    } else if (membership->etcd_lease) {
        put_everything(agent);
    } else {
        rg_agent_get_time(agent, RG_AGENT_TTL_S, lease_done, agent);
    }
}

/* --- staying ---------------------------------------------------------------------------------------------------- */

static void beat_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_membership *membership = &agent->membership;
    membership->beating = false;
    if (membership->state != RG_MEMBER_IN)
        return;
    if (status != RG_OK) {
        complain(agent, why, AGAIN_NS);
        return;
    }
    if (rg_etcd_get_number(json_object_get(reply, "result"), "TTL") == 0) {
        membership->etcd_lease = 0;
        rg_membership_out(agent, "etcd has forgotten this server, since it was not heard for too long", 0);
        return;
    }
    membership->valid_until_ns = membership->sent_ns + RG_AGENT_TTL_NS;
    membership->next_ns = membership->sent_ns + RG_AGENT_BEAT_NS;
    if (membership->why[0])
        rg_info("pool %s: etcd answers again (%s)", agent->settings.pool, rg_etcd_endpoint(agent->etcd));
    all_is_well(agent);
}

static void beat(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    membership->beating = true;
    membership->sent_ns = rg_now_ns();
    rg_etcd_call(agent->etcd, "/v3/lease/keepalive",
                 json_pack("{s:o}", "ID", rg_etcd_number(membership->etcd_lease)), beat_done, agent);
}

/* Whether the pool knows what is wanted, is found out by what the watch brings. */
static void look_drained(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id);
    if (membership->drained_told || !self || self->draining != membership->draining)
        return;
    struct rg_agent_answer answer = {.kind = RG_AGENT_DRAINED};
    answer.drained.on = membership->draining;
    membership->drained_told = true;
    rg_agent_tell(agent, &answer);
}

static void write_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)reply;
    (void)why;
    agent->membership.writing = false;
    if (status == RG_OK)
        return;
    agent->membership.dirty = true;
    agent->membership.next_ns = rg_now_ns() + AGAIN_NS;
}

static void write_self(struct rg_agent *agent)
{
    agent->membership.dirty = false;
    agent->membership.writing = true;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o]}", "success",
                           rg_agent_put(rg_agent_key(agent, "servers/%s", agent->id), rg_self_server(agent),
                                        agent->membership.etcd_lease)),
                 write_done, agent);
}

void rg_membership_drain(struct rg_agent *agent, bool on)
{
    struct rg_membership *membership = &agent->membership;
    membership->draining = on;
    membership->drained_told = false;
    membership->dirty = true;
}

/* Whether the server is still in the pool, by what etcd has told. */
static void check(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    if (membership->state == RG_MEMBER_IN && rg_scope_is_settled(agent) &&
        agent->mirror.revision >= membership->joined && !rg_pool_mirror_member(&agent->mirror, agent->id)) {
        if (agent->scope.narrow && !agent->scope.read) { /* of several ranges, one is told before the other */
            rg_scope_again(agent);
            return;
        }
        membership->etcd_lease = 0;
        rg_membership_out(agent, "etcd has forgotten this server, since it was not heard for too long", 0);
    }
    rg_predecessors_check(agent);
    look_drained(agent);
}

/* What etcd had of this server may be older than what it has: it comes anew, with what runs here. Not before what is under way has ended. */
static void see_to_past(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    if (!agent->rewound || membership->state == RG_MEMBER_JOINING || membership->beating ||
        membership->writing)
        return;
    agent->rewound = false;
    membership->etcd_lease = 0; /* what is bound to the one before and is not put anew goes with it */
    membership->joined = 0;
    rg_membership_out(agent, "etcd has another past than before, as when a backup has been restored", 0);
}

uint64_t rg_membership_look(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    const uint64_t now = rg_now_ns();
    see_to_past(agent);
    check(agent);
    if (membership->state == RG_MEMBER_JOINING || membership->beating)
        return UINT64_MAX;
    if (membership->state == RG_MEMBER_OUT) {
        if (now < membership->next_ns)
            return membership->next_ns;
        if (membership->version_known && !rg_scope_is_settled(agent)) { /* the watch brings it */
            if (*rg_etcd_watch_why(agent->etcd))
                complain(agent, rg_etcd_watch_why(agent->etcd), AGAIN_NS);
            return UINT64_MAX;
        }
        join(agent);
        return membership->state == RG_MEMBER_OUT ? membership->next_ns : UINT64_MAX;
    }
    if (membership->dirty && !membership->writing)
        write_self(agent);
    look_drained(agent);
    if (now >= membership->next_ns) {
        beat(agent);
        return UINT64_MAX;
    }
    return membership->next_ns;
}

static void left(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)reply;
    (void)why;
    agent->membership.leaving = false;
    if (status == RG_OK)
        rg_info("has left the pool %s", agent->settings.pool);
}

void rg_membership_leave(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    if (!membership->etcd_lease)
        return;
    membership->leaving = true;
    membership->state = RG_MEMBER_OUT;
    rg_etcd_call(agent->etcd, "/v3/lease/revoke",
                 json_pack("{s:o}", "ID", rg_etcd_number(membership->etcd_lease)), left, agent);
}
