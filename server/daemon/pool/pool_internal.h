/* pool_internal.h - between the files that are the monitor's side of the pool's agent. Main thread. */
#ifndef RG_SERVER_DAEMON_POOL_POOL_INTERNAL_H
#define RG_SERVER_DAEMON_POOL_POOL_INTERNAL_H

#include "server/daemon/pool/pool_process.h"

/** Tells the agent something; false: there is none, or it takes no words. */
bool rg_pool_say(const struct rg_pool_process *pool, const struct rg_agent_word *word);
/** Whether the settings let leases be suspended; *seconds: not before they have had their GPUs for so long. */
bool rg_pool_preempts(const struct rg_daemon_settings *settings, uint32_t *seconds);
/** Tells it how many sessions run by a lease. */
void rg_pool_say_sessions(const struct rg_pool_process *pool, const struct rg_pool_known *known);

/** What is known of a lease; NULL: nothing. */
struct rg_pool_known *rg_pool_find(const struct rg_pool_process *pool, uint64_t lease);
/** A lease is new, or has changed. */
void rg_pool_take_lease(struct rg_pool_process *pool, const struct rg_agent_lease *lease);

#endif
