/*
 * handing.c - a client's request for GPUs that a server at rest hands to the decider (decider.c), and what the decider does with it.
 *
 * Happy path: the request is written with the number by which its client's connection will hold the lease (rg_handing_begin). The
 * decider is told of it, as of everything, and carries it out in the name of who wrote it (grants.c, commit.c): the lease that it writes is
 * held there; one that is to be kept becomes that afterwards (keeping.c). Ids of such requests begin as the id of their server, which watches what begins so, is told of the lease, and tells its client.
 *
 * Nothing depends on the decider. What it has not granted in HANDED_NS, since it is gone or slow or the request has to wait, its own
 * server decides, which reads all of the pool then; both may try, and the transactions' comparisons let one of them succeed.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDED_NS 250000000ull

/* --- at the decider --------------------------------------------------------------------------------------------------- */

struct rg_agent_ask *rg_handing_stand_in(struct rg_agent *agent, const struct rg_pool_entry *request)
{
    struct rg_agent_ask *ask = agent->n_asks < RG_POOL_CLIENTS_MAX ? calloc(1, sizeof *ask) : NULL;
    if (!ask)
        return NULL;
    *ask = (struct rg_agent_ask){
        .agent = agent, .state = RG_ASK_WAITING, .socket = -1, .handed = true, .stands_in = true};
    snprintf(ask->id, sizeof ask->id, "%s", request->id);
    snprintf(ask->hold, sizeof ask->hold, "%.16s", rg_json_get_text(request->value, "hold"));
    ask->request = json_incref(request->value);
    if (rg_ask_add(agent, ask))
        return ask;
    json_decref(ask->request);
    free(ask);
    return NULL;
}

/* --- at the server that was asked --------------------------------------------------------------------------------------- */

bool rg_handing_can(const struct rg_agent *agent, const json_t *question)
{
    /* which GPUs there are is looked up in all of the pool; a lease by an id of its client's choice is not watched */
    return agent->scope.narrow && agent->mirror.revision && rg_agent_is_in(agent) &&
           !rg_scope_is_settling(agent) && *agent->decider.server &&
           strcmp(agent->decider.server, agent->id) != 0 && !json_object_get(question, "id") &&
           !json_object_get(question, "devices");
}

void rg_handing_begin(struct rg_agent_ask *ask)
{
    memcpy(ask->id, ask->agent->id, RG_POOL_ID_START);
    memcpy(ask->lease, ask->id, sizeof ask->lease);
    ask->keeps = json_is_true(json_object_get(ask->request, "kept"));
    (void)json_object_set_new(ask->request, "kept", json_false());
    (void)json_object_set_new(ask->request, "holder_server", json_string(ask->agent->id));
    (void)json_object_set_new(ask->request, "hold", json_string(ask->hold));
    ask->unsure = true; /* from now on its lease may be there */
    rg_ask_queue(ask);
}

/* Whether its lease is there, or it is not to be waited for any longer. Returns when to come again. The ask may be no more. */
static uint64_t look_handed(struct rg_agent_ask *ask)
{
    const struct rg_agent *agent = ask->agent;
    const struct rg_pool_entry *lease = rg_pool_mirror_lease(&agent->mirror, ask->lease);
    const uint64_t end = ask->since_ns + HANDED_NS;
    if (lease) {
        ask->changed = lease->changed;
        rg_commit_finish(ask, lease->value);
        return UINT64_MAX;
    }
    if (agent->scope.narrow && *agent->decider.server && rg_now_ns() < end)
        return end;
    rg_debug("request %s: this server decides itself", ask->id);
    ask->whole = true;
    return 0;
}

uint64_t rg_handing_look(struct rg_agent *agent)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        uint64_t next = UINT64_MAX;
        if (ask->handed && !ask->whole && ask->state == RG_ASK_WAITING)
            next = look_handed(ask);
        due = next < due ? next : due;
        i += i < agent->n_asks && agent->asks[i] == ask; /* else another has taken its place in the list */
    }
    return due;
}
