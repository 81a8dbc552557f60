/*
 * predecessors.c - a GPU is in the pool once: runs of this server that have died leave before this one comes, and where a server that lives
 * has a GPU of this one's, this one stays outside.
 *
 * Which runs have died the monitor knows for sure (server/daemon/pool/runs.h). One that etcd still has, with a GPU of this machine's, leaves
 * by its etcd lease: with that goes what goes when etcd itself notices that a server has died. So nobody is granted what it had, and
 * who held leases of it is told at once.
 *
 * A server with the same GPU whose end is not proved may be one that was started twice by mistake, or one that has died and has left no
 * trace here: it is waited for, which etcd ends within the time of a server's lease if it is dead. Software devices are not looked at: a
 * machine has as many as it likes, and they are called the same.
 */
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/uuid_text.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define AGAIN_NS 300000000ull

static const struct rg_driver *look_at_driver(const struct rg_agent *agent)
{
    static struct rg_driver driver; /* large */
    (void)rg_board_driver(agent->board, &driver);
    return &driver;
}

/* The first GPU of a member that is one of ours; NULL: none is. */
static const char *shared_gpu(const struct rg_driver *driver, const struct rg_pool_member *member)
{
    for (uint32_t i = 0; i < member->n_gpus; i++)
        for (uint32_t j = 0; j < driver->n_devices; j++) {
            char own[RG_UUID_TEXT];
            rg_uuid_text(driver->devices[j].uuid, driver->devices[j].mig, own, sizeof own);
            if (strcasecmp(member->gpus[i]->uuid, own) == 0)
                return member->gpus[i]->uuid;
        }
    return NULL;
}

/* Its place in settings.dead; n_dead: it is none of them. */
static uint32_t number_of(const struct rg_agent *agent, const char *id)
{
    uint32_t i = 0;
    for (; i < agent->settings.n_dead; i++) {
        char dead[RG_POOL_ID];
        snprintf(dead, sizeof dead, "%016" PRIx64, agent->settings.dead[i]);
        if (strcmp(dead, id) == 0)
            break;
    }
    return i;
}

/* --- runs of this server ---------------------------------------------------------------------------------------------- */

/* One that has died and is in the pool yet; NULL: there is none. *number: its place in settings.dead. */
static const struct rg_pool_member *find_dead(const struct rg_agent *agent, uint32_t *number)
{
    const struct rg_driver *driver = look_at_driver(agent);
    for (uint32_t i = 0; i < agent->mirror.n_members; i++) {
        const struct rg_pool_member *member = agent->mirror.members[i];
        *number = number_of(agent, member->id);
        if (*number < agent->settings.n_dead && !(agent->membership.left >> *number & 1) &&
            member->etcd_lease && shared_gpu(driver, member))
            return member;
    }
    return NULL;
}

static void has_left(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    struct rg_membership *membership = &agent->membership;
    (void)reply;
    if (status != RG_OK && status != RG_ERR_NOT_FOUND) { /* etcd may have forgotten it meanwhile */
        rg_membership_out(agent, why, AGAIN_NS);
        return;
    }
    membership->state = RG_MEMBER_OUT;
    membership->next_ns = 0;
    membership->left |= 1u << membership->parting;
    rg_info("pool %s: the run of this server that was %016" PRIx64 " there has died, and has left",
            agent->settings.pool, agent->settings.dead[membership->parting]);
}

/* --- other servers ---------------------------------------------------------------------------------------------------- */

/* One that has a GPU of ours, *uuid; NULL: there is none. */
static const struct rg_pool_member *find_twin(const struct rg_agent *agent, const char **uuid)
{
    const struct rg_driver *driver = look_at_driver(agent);
    for (uint32_t i = 0; i < agent->mirror.n_members && strcmp(driver->info.kind, "soft") != 0; i++) {
        const struct rg_pool_member *member = agent->mirror.members[i];
        if (member->value && strcmp(member->id, agent->id) != 0 &&
            number_of(agent, member->id) == agent->settings.n_dead &&
            (*uuid = shared_gpu(driver, member)) != NULL)
            return member;
    }
    return NULL;
}

static void stay_outside(struct rg_agent *agent, const struct rg_pool_member *twin, const char *uuid)
{
    char text[RG_ETCD_WHY];
    snprintf(
        text, sizeof text,
        "the server %.100s (%.16s) on %.60s has this server's %.47s in the pool: stop one of the two, or "
        "show each GPUs of its own (CUDA_VISIBLE_DEVICES); if it has crashed, etcd forgets it within %u s",
        twin->address ? twin->address : "?", twin->id, twin->host ? twin->host : "?", uuid, RG_AGENT_TTL_S);
    rg_printable_clean(text); /* names are what the other one has written */
    rg_membership_out(agent, text, AGAIN_NS);
}

bool rg_predecessors_hinder(struct rg_agent *agent)
{
    const char *uuid;
    const struct rg_pool_member *dead = find_dead(agent, &agent->membership.parting), *twin;
    if (dead) {
        rg_etcd_call(agent->etcd, "/v3/lease/revoke",
                     json_pack("{s:o}", "ID", rg_etcd_number(dead->etcd_lease)), has_left, agent);
        return true;
    }
    twin = rg_scope_is_whole(agent) ? find_twin(agent, &uuid) : NULL;
    if (twin)
        stay_outside(agent, twin, uuid);
    return twin != NULL;
}

void rg_predecessors_check(struct rg_agent *agent)
{
    struct rg_membership *membership = &agent->membership;
    const struct rg_pool_member *self = rg_pool_mirror_member(&agent->mirror, agent->id), *twin;
    const char *uuid;
    if (membership->alone || !self || !rg_agent_is_in(agent) || !rg_scope_is_whole(agent))
        return;
    membership->alone = true;
    twin = find_twin(agent, &uuid);
    if (!twin || twin->created > self->created)
        return;
    rg_agent_revoke(agent, membership->etcd_lease);
    membership->etcd_lease = 0;
    stay_outside(agent, twin, uuid);
}
