/*
 * persistence.h - what the server keeps in its state folder: its identity (server/identity/), and the accounts of what sessions have
 * used (server/accounts/). At the start only; what fails was said. Main thread.
 */
#ifndef RG_SERVER_DAEMON_PERSISTENCE_H
#define RG_SERVER_DAEMON_PERSISTENCE_H

#include "server/daemon/monitor/monitor.h"
#include "server/daemon/settings/settings.h"

/** Opens the identity, where there is to be one: monitor->policy.identity. `open`: other machines can reach the server. */
RG_MUST_CHECK bool rg_persistence_open_identity(struct rg_monitor *monitor,
                                                const struct rg_daemon_settings *settings, bool open);
/** Whether accounts are kept: where there is an identity, and so a folder, unless the operator says otherwise. */
bool rg_persistence_wants_accounts(const struct rg_monitor *monitor,
                                   const struct rg_daemon_settings *settings);
/** Starts the accountant if accounts are kept. Before sessions can begin: what was used earlier must be known by then. */
RG_MUST_CHECK bool rg_persistence_start_accounts(struct rg_monitor *monitor,
                                                 const struct rg_daemon_settings *settings);

#endif
