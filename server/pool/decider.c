/*
 * decider.c - one server of the pool decides for those at rest: they need not be told of all the pool when a client asks them for GPUs.
 *
 * A server that knows all of the pool, since it was asked, claims the key `decider`, which is bound to its place in the pool. A decider that
 * nobody asks any more gives the key back before it comes to rest. What servers at rest hand to it: handing.c. Two who take themselves for
 * the decider are no more than two servers that decide.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_NS 1000000000ull

/* --- who it is ----------------------------------------------------------------------------------------------------- */

void rg_decider_told(struct rg_agent *agent, const struct rg_etcd_pair *pair)
{
    struct rg_agent_decider *decider = &agent->decider;
    json_t *value = pair ? json_loads(pair->value, 0, NULL) : NULL;
    decider->changed = pair ? pair->changed : 0;
    snprintf(decider->server, sizeof decider->server, "%.16s", rg_json_get_text(value, "server"));
    snprintf(decider->run, sizeof decider->run, "%.16s", rg_json_get_text(value, "agent"));
    json_decref(value);
}

bool rg_decider_is_us(const struct rg_agent *agent)
{
    return strcmp(agent->decider.run, agent->run) == 0;
}

static void done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)reply;
    agent->decider.writing = false;
    agent->decider.again_ns = rg_now_ns() + AGAIN_NS; /* what has come of it, the watch tells sooner */
    if (status != RG_OK)
        rg_debug("who decides for servers at rest is not written yet: %s", why);
}

static void change(struct rg_agent *agent, json_t *operation)
{
    agent->decider.writing = true;
    rg_etcd_call(agent->etcd, "/v3/kv/txn",
                 json_pack("{s:[o], s:[o]}", "compare",
                           rg_agent_compare(agent->decider.changed, rg_agent_key(agent, RG_DECIDER_KEY)),
                           "success", operation),
                 done, agent);
}

uint64_t rg_decider_look(struct rg_agent *agent)
{
    struct rg_agent_decider *decider = &agent->decider;
    const bool ours = rg_decider_is_us(agent);
    /* an agent of this server that is gone decides nothing, until its key is gone as well */
    const bool vacant = !*decider->server || (!ours && strcmp(decider->server, agent->id) == 0);
    const bool claims = vacant && agent->scope.lingers && !agent->membership.draining &&
                        rg_scope_is_whole(agent) && rg_agent_is_in(agent);
    const bool resigns = ours && (!agent->scope.lingers || agent->membership.draining);
    if (decider->writing || (!claims && !resigns))
        return UINT64_MAX;
    if (rg_now_ns() < decider->again_ns)
        return decider->again_ns;
    if (claims)
        change(agent, rg_agent_put(rg_agent_key(agent, RG_DECIDER_KEY),
                                   json_pack("{s:s, s:s}", "server", agent->id, "agent", agent->run),
                                   agent->membership.etcd_lease));
    else
        change(agent, rg_agent_remove(rg_agent_key(agent, RG_DECIDER_KEY)));
    return UINT64_MAX;
}

/* --- for others ---------------------------------------------------------------------------------------------------- */

bool rg_decider_decides(const struct rg_agent *agent, const struct rg_pool_entry *request)
{
    const char *server = rg_json_get_text(request->value, "holder_server");
    const struct rg_pool_member *member = *server ? rg_pool_mirror_member(&agent->mirror, server) : NULL;
    /* an agent that is gone has nobody to tell */
    return rg_decider_is_us(agent) && member && member->agent &&
           strcmp(member->agent, rg_json_get_text(request->value, "agent")) == 0;
}

bool rg_decider_is_asked(const struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->mirror.n_requests; i++)
        if (rg_decider_decides(agent, agent->mirror.requests[i]))
            return true;
    return false;
}
