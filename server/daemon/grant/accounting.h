/*
 * accounting.h - whose account a session goes to, and what it has used so far, as the monitor measures it. Main thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_ACCOUNTING_H
#define RG_SERVER_DAEMON_GRANT_ACCOUNTING_H

#include "server/accounts/accounts.h"
#include "server/daemon/grant/shares.h"
#include "server/daemon/grant/who.h"

/**
 * A certificate's name, "uid:1000", or RG_USAGE_UNAUTHENTICATED with the address, without its port. `project`: "" for none.
 */
void rg_accounting_owner(const struct rg_who *who, const char *address, const char *project,
                         struct rg_account_owner *out);
/** GPU memory that a session keeps from others: its limits, or where it has none all of the device. */
uint64_t rg_accounting_memory(const struct rg_shares *shares, const struct rg_shares_session *session);
/** What its worker has counted, with what the monitor knows better. */
void rg_accounting_sample(const struct rg_shares *shares, const struct rg_shares_session *session,
                          struct rg_figures_sample *out);

#endif
