/*
 * run.c - remote-gpu run: a command whose CUDA calls go to servers.
 *
 * With servers: check that they answer, set the environment, exec; nothing of remote-gpu stays but the
 * libraries in the command's process. With --local: start a private server, run the command as a child, stop
 * the server.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/command.h"
#include "client/cli/base/environment.h"
#include "client/cli/base/local_server.h"
#include "client/cli/pool/pool.h"
#include "client/query/query.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "transport/address.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FULL_PATIENCE_NS 2000000000ull
#define FULL_PAUSE_NS    50000000

/* What is known of a server that will do. */
struct found {
    uint32_t gpus;
    char pool[RG_CONTROL_TEXT]; /* "": it is in none */
    bool soft;                  /* its devices are the software device's */
};

/*
 * Whether the server answers and takes sessions, and what it has. `why` says why not. One that has
 * as many sessions as it takes is asked again for a moment if there is no other: what ran before has perhaps
 * just ended.
 */
static bool serves(const struct rg_cli_settings *settings, const char *server, bool last, struct found *found,
                   char *why, size_t why_size)
{
    const struct timespec pause = {.tv_nsec = FULL_PAUSE_NS};
    const uint64_t end = rg_now_ns() + (last ? FULL_PATIENCE_NS : 0);
    bool full = true;
    while (full) {
        struct rg_control answer;
        if (rg_query(server, RG_PURPOSE_INVENTORY, settings->timeout_ns, &answer, why, why_size) != RG_OK)
            return false;
        found->gpus = answer.inventory.n_devices;
        found->soft = strcmp(answer.inventory.driver.kind, "soft") == 0;
        snprintf(found->pool, sizeof found->pool, "%s", answer.inventory.pool);
        full = answer.inventory.limits.sessions && !found->pool[0] &&
               answer.inventory.sessions_running >= answer.inventory.limits.sessions;
        rg_control_fini(&answer);
        if (full && rg_now_ns() >= end)
            break;
        if (full)
            nanosleep(&pause, NULL);
    }
    if (full)
        rg_explain(why, why_size, "the server %s runs as many sessions as it takes; try again later", server);
    return !full;
}

/* A server that is the only one must have all the GPUs that are wanted. */
static bool has_enough(const struct rg_cli_settings *settings, const char *server, uint32_t gpus, char *why,
                       size_t why_size)
{
    if (settings->gpus <= gpus)
        return true;
    rg_explain(why, why_size,
               "the server %s has %u GPU%s, and %d were asked for; ask for fewer, or another server", server,
               gpus, gpus == 1 ? "" : "s", (int)settings->gpus);
    return false;
}

/* Whether a server may be handed to the command: with --no-check it need only be an address. */
static bool will_do(const struct rg_cli_settings *settings, const char *server, bool last, bool alone,
                    struct found *found, char *why, size_t why_size)
{
    struct rg_address address;
    if (settings->no_check)
        return rg_address_parse(server, &address, why, why_size) == RG_OK;
    return serves(settings, server, last, found, why, why_size) &&
           (!alone || found->pool[0] || has_enough(settings, server, found->gpus, why, why_size));
}

/* The first of alternatives that will do; NULL with `why`: none will. */
static const char *choose(const struct rg_cli_settings *settings, char *alternatives, bool alone,
                          struct found *found, char *why, size_t why_size)
{
    char *rest = alternatives, *server;
    rg_explain(why, why_size, "'%s' names no server", alternatives);
    while (rest && (server = rg_servers_next(&rest))) {
        if (will_do(settings, server, !rest, alone, found, why, why_size))
            return server;
        if (rest)
            rg_warn("%s", why);
    }
    return NULL;
}

/* Servers of a pool are not chosen by name, and what a pool alone can do is asked of no other server. */
static bool suits(const struct rg_cli_settings *settings, const char *server, const struct found *found)
{
    if (found->pool[0] && settings->server.n > 1)
        rg_error("the server %s is in the pool %s, which chooses among its servers: name one of them alone "
                 "(or several with | between them, of which the first that answers is asked)",
                 server, found->pool);
    else if (!found->pool[0] && rg_pool_is_asked_for(settings))
        rg_error("the server %s is in no pool, and --filter, --wait-for, --spread and --lease are for pools",
                 server);
    else
        return true;
    return false;
}

/*
 * The servers that the command will use, with commas between them; NULL: it was said why not. The caller frees it. `found`: what
 * is known of the last of them, and whether all are the software device's.
 */
static char *choose_servers(const struct rg_cli_settings *settings, struct found *found)
{
    const struct rg_text_list *servers = &settings->server;
    size_t room = 1;
    uint32_t total = 0;
    for (size_t i = 0; i < servers->n; i++)
        room += strlen(servers->items[i]) + 1;
    RG_CLEANUP_FREE char *chosen = calloc(1, room);
    if (servers->n == 0)
        rg_error("the list of servers is empty; name one with -s HOST or REMOTE_GPU_SERVER, or use --local");
    else if (servers->n > RG_SERVERS_MAX)
        rg_error("more than %u servers are named; name fewer", RG_SERVERS_MAX);
    else if (!chosen)
        rg_error("out of memory");
    if (servers->n == 0 || servers->n > RG_SERVERS_MAX || !chosen)
        return NULL;
    bool all_soft = true;
    bool named = rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, server));
    for (size_t i = 0; i < servers->n; i++) {
        char why[1024] = "";
        const char *server = choose(settings, servers->items[i], servers->n == 1, found, why, sizeof why);
        if (!server) {
            rg_error(
                "%s%s", why,
                !named && !settings->joined ? " (no server was named: -s HOST names one, --local starts one)"
                : servers->n > 1 ? " (all servers of the list are needed: name only those that are there)"
                                 : "");
            return NULL;
        }
        if (!settings->no_check && !suits(settings, server, found))
            return NULL;
        total += found->gpus;
        all_soft &= found->soft;
        sprintf(chosen + strlen(chosen), "%s%s", i ? "," : "", server);
    }
    if (!settings->no_check && !found->pool[0] && settings->gpus > total) {
        rg_error("the servers %s have %u GPUs together, and %d were asked for; ask for fewer, or name more "
                 "servers",
                 chosen, total, (int)settings->gpus);
        return NULL;
    }
    found->soft = all_soft;
    char *result = chosen;
    chosen = NULL;
    return result;
}

/* As long as the command runs, the lease is held; unless it is kept, and needs nobody. */
static int run_holding(const struct rg_cli_settings *settings, const char *member,
                       struct rg_pool_lease_of *lease, char **argv)
{
    struct rg_lease_holder *holder =
        lease->talk.conn ? rg_lease_holder_begin(member, lease, settings->timeout_ns) : NULL;
    const int status = rg_local_server_run(argv);
    if (rg_lease_holder_end(holder))
        rg_pool_lease_fini(lease);
    return status;
}

/* Runs it as a child: the lease is held by this process's connection to the pool, and is given back when the command has ended. */
static int run_in_pool(const struct rg_cli_settings *settings, const char *member, char **argv)
{
    struct rg_pool_lease_of lease;
    struct rg_cli_settings granted = *settings;
    const bool got = settings->lease ? rg_cli_pool_find(settings, member, settings->lease, &lease)
                                     : rg_cli_pool_acquire(settings, member, false, &lease);
    if (!got)
        return RG_EXIT_FAILURE;
    granted.gpus =
        settings->lease && settings->gpus && settings->gpus < lease.n_gpus ? settings->gpus : lease.n_gpus;
    if (rg_cli_set_environment(&granted, lease.servers) == RG_OK && rg_pool_set_environment(&lease))
        return run_holding(settings, member, &lease, argv);
    rg_pool_lease_fini(&lease);
    return RG_EXIT_FAILURE;
}

static int run_on(const struct rg_cli_settings *settings, char **argv)
{
    struct found found = {0};
    RG_CLEANUP_FREE char *servers = choose_servers(settings, &found);
    if (servers && (found.pool[0] || (settings->no_check && rg_pool_is_asked_for(settings))))
        return run_in_pool(settings, servers, argv);
    if (!servers || rg_cli_set_environment(settings, servers) != RG_OK ||
        (found.soft && rg_cli_offer_ptxas() != RG_OK))
        return RG_EXIT_FAILURE;
    execvp(argv[0], argv);
    int error = errno;
    rg_error("cannot run %s: %s", argv[0], strerror(error));
    return error == ENOENT || error == ENOTDIR ? RG_EXIT_NOT_FOUND : RG_EXIT_NOT_EXECUTABLE;
}

static int run_local(const struct rg_cli_settings *settings, char **argv)
{
    struct rg_local_server server;
    if (rg_local_server_start(&server, settings->driver) != RG_OK)
        return RG_EXIT_FAILURE;
    int status = RG_EXIT_FAILURE;
    struct found found = {0};
    char why[1024];
    const bool soft =
        !settings->no_check && serves(settings, server.address, true, &found, why, sizeof why) && found.soft;
    if (rg_cli_set_environment(settings, server.address) == RG_OK && (!soft || rg_cli_offer_ptxas() == RG_OK))
        status = rg_local_server_run(argv);
    rg_local_server_stop(&server);
    return status;
}

int rg_cli_run(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (argc == 0) {
        rg_error("which command? see remote-gpu run --help");
        return RG_EXIT_FAILURE;
    }
    if (!rg_cli_check_share(settings))
        return RG_EXIT_FAILURE;
    if (settings->local && rg_pool_is_asked_for_here(settings)) {
        rg_error("--filter, --tolerate, --wait-for, --spread and --lease are for pools, and the server that "
                 "--local starts "
                 "is in none; leave them out, or name a server of the pool with -s");
        return RG_EXIT_FAILURE;
    }
    if (!rg_cli_can_preload(argv[0]))
        return RG_EXIT_NOT_EXECUTABLE;
    rg_cli_warn_of_rights(argv[0]);
    return settings->local ? run_local(settings, argv) : run_on(settings, argv);
}
