/*
 * keeping.c - a lease that is to be kept, of a request that was handed to the decider (handing.c): it is granted as one that ends with its
 * client, which takes no time of its own, and gets that here.
 *
 * Happy path: the lease is there (rg_commit_finish); etcd gives a time, and a transaction that compares the lease's revision binds the lease to
 * it and makes it one that is kept; its client is told. Until then this agent holds it: with the agent it would end. Whoever has gone
 * meanwhile, or cannot be told, has no lease. One thread.
 */
#include "server/pool/agent.h"

static void kept(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    if (status == RG_OK && rg_leases_is_bound(ask, reply)) {
        rg_commit_finish(ask, ask->grant);
        return;
    }
    rg_ask_undo_lease(ask);
    if (status == RG_OK)
        rg_ask_refuse_as(ask, "lease-gone",
                         "the lease was granted and has gone at this moment, as its server has; ask again");
    else
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later", why);
}

/* The lease as it was granted, which has a time from now on. */
static void timed(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_ask *ask = data;
    struct rg_agent *agent = ask->agent;
    ask->etcd_lease = status == RG_OK ? rg_etcd_get_number(reply, "ID") : 0;
    if (!ask->etcd_lease || ask->socket < 0) {
        rg_ask_undo_lease(ask);
        rg_ask_refuse_as(ask, "pool-unreachable", "the pool cannot grant GPUs now: %s; try again later", why);
        return;
    }
    (void)json_object_set_new(ask->grant, "kept", json_true());
    (void)json_object_set_new(ask->grant, "since", json_integer((json_int_t)rg_agent_time(agent)));
    (void)json_object_set_new(ask->grant, "etcd_lease", rg_etcd_number(ask->etcd_lease));
    (void)json_object_del(ask->grant, "hold");
    rg_leases_bind(ask, ask->grant, kept);
}

void rg_keeping_begin(struct rg_agent_ask *ask, const json_t *value)
{
    json_t *own = json_copy((json_t *)(uintptr_t)value);
    json_decref(ask->grant); /* which may be the value */
    ask->grant = own;
    ask->state = RG_ASK_ENDING;
    rg_agent_get_time(ask->agent, rg_json_get_number(ask->request, "seconds", 1), timed, ask);
}
