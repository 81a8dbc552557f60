/*
 * pool.h - the command's dealings with a pool: GPUs for `run`, leases that are kept, what `list` shows of it. One thread.
 */
#ifndef RG_CLIENT_CLI_POOL_POOL_H
#define RG_CLIENT_CLI_POOL_POOL_H

#include "client/cli/base/settings.h"
#include "client/pool/pool.h"

/** Whether options were given that mean something in a pool alone. */
bool rg_pool_is_asked_for(const struct rg_cli_settings *settings);
/** Whether the command line itself has one of them: environment and files may be meant for other commands. */
bool rg_pool_is_asked_for_here(const struct rg_cli_settings *settings);
/** Asks `member` for GPUs as the settings want them, and waits as they say. False: it was said why there are none. */
RG_MUST_CHECK bool rg_cli_pool_acquire(const struct rg_cli_settings *settings, const char *member, bool kept,
                                       struct rg_pool_lease_of *out);
/** Finds a lease that is kept. False: it was said that there is none. */
RG_MUST_CHECK bool rg_cli_pool_find(const struct rg_cli_settings *settings, const char *member,
                                    const char *id, struct rg_pool_lease_of *out);
struct rg_lease_holder;
/**
 * Watches the connection that holds a lease while a command runs; where it is lost, the lease is held by another one, for a minute asked of
 * `member` and the lease's servers in turn. A thread of its own. NULL: no memory; then the lease lasts as long as its connection.
 */
struct rg_lease_holder *rg_lease_holder_begin(const char *member, struct rg_pool_lease_of *lease,
                                              uint64_t timeout_ns);
/** Ends that; `lease` is the caller's again. False: it is being asked for at this moment, and only the process's end ends that. */
RG_MUST_CHECK bool rg_lease_holder_end(struct rg_lease_holder *holder);
/** Sets what the client library reads of it. */
RG_MUST_CHECK bool rg_pool_set_environment(const struct rg_pool_lease_of *lease);

/**
 * The servers of the settings, and where one of them is in a pool, the pool's other servers, unless --server-only. To be cleared. False: no
 * memory; a pool that does not answer is warned of.
 */
RG_MUST_CHECK bool rg_cli_pool_members(const struct rg_cli_settings *settings, struct rg_text_list *out);
/** The name of a server's pool; "": it is in none, or does not answer. */
const char *rg_cli_pool_name(const struct rg_cli_settings *settings, const char *server, char *out,
                             size_t size);

/** Prints what rg_pool_list gives, for people. */
void rg_pool_print(const json_t *pool);
/** Of it, within a line, what was measured between this machine and a server; nothing where that was not. */
void rg_pool_print_link(const json_t *pool, const json_t *member);

#endif
