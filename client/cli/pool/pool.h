/*
 * pool.h - the command's dealings with a pool: GPUs for `run`, leases that are kept, what `list` shows of it. One thread.
 */
#ifndef RG_CLIENT_CLI_POOL_POOL_H
#define RG_CLIENT_CLI_POOL_POOL_H

#include "client/cli/base/settings.h"
#include "client/query/pool.h"

#include <jansson.h>

/** GPUs that were granted. */
struct rg_pool_lease_of {
    char id[24];
    char *servers;  /* addresses with commas between them, for REMOTE_GPU_SERVER */
    char *variable; /* of REMOTE_GPU_LEASE */
    unsigned n_gpus, n_servers;
    struct rg_pool_talk talk; /* it is held by this connection; of a kept lease there is none */
};

/** Whether options were given that mean something in a pool alone. */
bool rg_pool_is_asked_for(const struct rg_cli_settings *settings);
/** Asks `member` for GPUs as the settings want them, and waits as they say. False: it was said why there are none. */
RG_MUST_CHECK bool rg_pool_acquire(const struct rg_cli_settings *settings, const char *member, bool kept,
                                   struct rg_pool_lease_of *out);
/** Finds a lease that is kept. False: it was said that there is none. */
RG_MUST_CHECK bool rg_pool_find(const struct rg_cli_settings *settings, const char *member, const char *id,
                                struct rg_pool_lease_of *out);
/** Sets what the client library reads of it. */
RG_MUST_CHECK bool rg_pool_set_environment(const struct rg_pool_lease_of *lease);
/** Gives it back, unless it is kept. */
void rg_pool_lease_fini(struct rg_pool_lease_of *lease);

/** What a server's pool has: {"pool": NAME, "servers": […], …}. NULL: `why` is a sentence for the user. */
json_t *rg_pool_ask_list(const char *member, uint64_t timeout_ns, char *why, size_t why_size);
/** Prints it for people. */
void rg_pool_print(const json_t *pool);

#endif
