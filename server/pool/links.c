/*
 * links.c - what users have measured between their machines and the pool's servers (remote-gpu netperf --pool), by which their requests go
 * to near servers.
 *
 * One value for each user and machine, links/ID with an id that is made of both, so that nobody writes of another: the round trip and the
 * bandwidth to each server by its address. What comes again replaces what was there of the same server; servers that are not in the pool
 * are left out. It is bound to an etcd lease of KEPT_S, so that what nobody measures again is forgotten. What a machine is called is the
 * client's word: it is asked about by the same user alone.
 */
#include "common/base/printable.h"
#include "common/cache/digest.h"
#include "server/pool/agent.h"
#include "server/pool/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_S    (30 * 86400)
#define DRAWN_MAX 256u /* different machines in one decision; of others nothing is known */

/* By a digest: nobody finds another machine's name that has the id of somebody else, and the id tells nothing of either. */
static void id_of(const char *key, const char *machine, char id[RG_POOL_ID])
{
    const struct rg_digest_part parts[] = {{key, strlen(key)}, {machine, strlen(machine)}};
    const struct rg_digest digest = rg_digest_of(parts, 2);
    uint64_t number;
    memcpy(&number, digest.bytes, sizeof number);
    snprintf(id, RG_POOL_ID, "%016" PRIx64, number);
}

const json_t *rg_links_of(const struct rg_pool_mirror *mirror, const char *key, const char *machine)
{
    char id[RG_POOL_ID];
    id_of(key, machine, id);
    const struct rg_pool_entry *found = rg_pool_mirror_links(mirror, id);
    const bool same = found && strcmp(rg_json_get_text(found->value, "user"), key) == 0 &&
                      strcmp(rg_json_get_text(found->value, "machine"), machine) == 0;
    return same ? found->value : NULL;
}

const struct rg_pool_link *rg_links_draw(const struct rg_pool_mirror *mirror, struct rg_picture *picture,
                                         const char *key, const char *machine)
{
    const json_t *value = *machine ? rg_links_of(mirror, key, machine) : NULL,
                 *servers = json_object_get(value, "servers");
    for (uint32_t i = 0; i < picture->n_links; i++)
        if (picture->links[i].value == value)
            return picture->links[i].links;
    if (!value || picture->n_links == DRAWN_MAX)
        return NULL;
    struct rg_picture_links *grown = realloc(picture->links, (picture->n_links + 1) * sizeof *grown);
    struct rg_pool_link *links = grown ? calloc(picture->snapshot.n_servers + 1u, sizeof *links) : NULL;
    if (grown)
        picture->links = grown;
    if (!links)
        return NULL;
    for (uint32_t i = 0; i < picture->snapshot.n_servers; i++) {
        const json_t *one = json_object_get(servers, picture->servers[i].address);
        const json_int_t latency = json_integer_value(json_array_get(one, 0)),
                         bandwidth = json_integer_value(json_array_get(one, 1));
        links[i] = (struct rg_pool_link){.latency = latency > 0 ? (uint64_t)latency : RG_POOL_UNKNOWN,
                                         .bandwidth = bandwidth > 0 ? (uint64_t)bandwidth : 0};
    }
    picture->links[picture->n_links++] = (struct rg_picture_links){value, links};
    return links;
}

static bool is_member(const struct rg_agent *agent, const char *address)
{
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        if (agent->mirror.members[i]->address && strcmp(agent->mirror.members[i]->address, address) == 0)
            return true;
    return false;
}

/* Adds figures of servers that are in the pool; returns of how many. */
static unsigned add(const struct rg_agent *agent, json_t *servers, const json_t *figures)
{
    const char *address;
    json_t *one;
    unsigned n = 0;
    json_object_foreach((json_t *)(uintptr_t)figures, address, one)
    {
        const json_int_t latency = json_integer_value(json_array_get(one, 0)),
                         bandwidth = json_integer_value(json_array_get(one, 1));
        if (json_array_size(one) == 2 && latency > 0 && bandwidth >= 0 && is_member(agent, address))
            n += json_object_set_new(servers, address, json_pack("[I, I]", latency, bandwidth)) == 0;
    }
    return n;
}

/* False: whoever asks has measured from as many machines as one may, or all have. */
static bool has_room(const struct rg_agent *agent, const char *key)
{
    uint32_t own = 0;
    for (uint32_t i = 0; i < agent->mirror.n_links; i++)
        own += strcmp(rg_json_get_text(agent->mirror.links[i]->value, "user"), key) == 0;
    return own < RG_POOL_LINKS_OF_ONE_MAX && agent->mirror.n_links < RG_POOL_LINKS_MAX;
}

static void written(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status != RG_OK) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot be reached: %s; try again later", why);
        return;
    }
    if (!json_is_true(json_object_get(reply, "succeeded"))) {
        rg_ask_refuse_as(ask, "lease-busy",
                         "somebody else tells of the same machine at this moment; try again");
        return;
    }
    rg_agent_revoke(ask->agent, ask->etcd_lease_before);
    ask->etcd_lease = 0; /* the value's from now on */
    json_t *answer = json_pack("{s:s, s:i}", "state", "measured", "servers",
                               (int)json_object_size(json_object_get(ask->request, "servers")));
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

static void timed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    ask->etcd_lease = rg_etcd_get_number(reply, "ID");
    if (status != RG_OK) {
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot be reached: %s; try again later", why);
        return;
    }
    (void)json_object_set_new(ask->request, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o]}", "compare",
                           rg_agent_compare(ask->changed, rg_agent_key(agent, "links/%s", ask->id)),
                           "success",
                           rg_agent_put(rg_agent_key(agent, "links/%s", ask->id), json_incref(ask->request),
                                        ask->etcd_lease)),
                 written, ask);
}

void rg_links_take(struct rg_agent_ask *ask, const json_t *question)
{
    struct rg_agent *agent = ask->agent;
    char machine[RG_CONTROL_TEXT];
    snprintf(machine, sizeof machine, "%s", rg_json_get_text(question, "machine"));
    rg_printable_clean(machine);
    id_of(ask->key, machine, ask->id);
    const struct rg_pool_entry *before = rg_pool_mirror_links(&agent->mirror, ask->id);
    if (before && !rg_links_of(&agent->mirror, ask->key, machine)) {
        rg_ask_refuse_as(
            ask, "lease-question",
            "what this machine is called stands for another one in the pool: call it differently");
        return;
    }
    json_t *known = json_object_get(before ? before->value : NULL, "servers"), *servers = json_object();
    (void)add(agent, servers, known);
    if (!*machine || !servers || add(agent, servers, json_object_get(question, "servers")) == 0) {
        json_decref(servers);
        rg_ask_refuse_as(ask, "lease-question", "nothing was measured of servers that are in the pool");
        return;
    }
    if (!before && !has_room(agent, ask->key)) {
        json_decref(servers);
        rg_ask_refuse_as(ask, "links-too-many",
                         "measured figures are kept of %u machines of a user and %u in all; those that "
                         "nobody measures again are "
                         "forgotten after %d days",
                         RG_POOL_LINKS_OF_ONE_MAX, RG_POOL_LINKS_MAX, KEPT_S / 86400);
        return;
    }
    ask->changed = before ? before->changed : 0;
    ask->etcd_lease_before = before ? strtoll(rg_json_get_text(before->value, "etcd_lease"), NULL, 10) : 0;
    ask->request = json_pack("{s:s, s:s, s:I, s:o}", "user", ask->key, "machine", machine, "as_of",
                             (json_int_t)rg_agent_time(agent), "servers", servers);
    rg_agent_get_time(agent, KEPT_S, timed, ask);
}
