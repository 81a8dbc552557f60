/* settings.c - see settings.h. */
#include "places/slurm/lease/settings.h"

#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG "/etc/remote-gpu/slurm.conf"
#define OPTION(name, type, field, help, ...)                                                                 \
    RG_OPTION_ROW(struct rg_lease_settings, name, type, field, help, __VA_ARGS__)

static const struct rg_option table[] = {
    OPTION("server", LIST, servers, "servers of the pool, of which the first that answers is asked",
           .letter = 's', .argument = "HOST[:PORT]"),
    OPTION("credentials", TEXT, credentials,
           "ca.crt, tls.crt and tls.key of an operator of the pool, which SlurmUser can read",
           .argument = "FOLDER", .value = "/etc/remote-gpu/slurm"),
    OPTION("user", TEXT, user,
           "by which name the servers know a job's user; %u is the name that Slurm has, %a the account",
           .argument = "PATTERN", .value = "%u"),
    OPTION("project", TEXT, project, "whose share of the pool a job counts to; the same letters",
           .argument = "PATTERN"),
    OPTION("cluster", TEXT, cluster, "ClusterName of slurm.conf, for sweep", .argument = "NAME",
           .environment = "SLURM_CLUSTER_NAME"),
    OPTION("wait", SECONDS, wait_ns, "how long a job waits in the pool's queue before it does not start",
           .argument = "TIME", .value = "5min"),
    OPTION("grace", SECONDS, grace_ns, "how long a lease is kept behind its job's time limit",
           .argument = "TIME", .value = "10min"),
    OPTION("timeout", SECONDS, timeout_ns, "how long a server may take to answer", .argument = "TIME",
           .value = "10"),
    OPTION("config", TEXT, config, "file with these options", .argument = "FILE", .value = CONFIG,
           .not_in_file = true),
    OPTION("help", FLAG, help, "show this", .letter = 'h', .not_in_file = true),
};

enum rg_lease_load rg_lease_settings_load(struct rg_lease_settings *settings, int argc, char **argv,
                                          int *next)
{
    char why[512] = "";
    memset(settings, 0, sizeof *settings);
    rg_options_init(&settings->options, table, sizeof table / sizeof table[0], settings, 0);
    enum rg_status status = rg_options_load_arguments(&settings->options, argc, argv, next, why, sizeof why);
    if (status == RG_OK && settings->help)
        return RG_LEASE_HELP;
    if (status == RG_OK)
        status = rg_options_load_environment(&settings->options, why, sizeof why);
    if (status == RG_OK)
        status = rg_options_load_file(&settings->options, settings->config, why, sizeof why);
    if (status != RG_OK && status != RG_ERR_NOT_FOUND) {
        rg_error("%s", why);
        return RG_LEASE_WRONG;
    }
    if (settings->servers.n == 0) {
        rg_error("no server is named: put a line 'server = HOST' into %s", settings->config);
        return RG_LEASE_WRONG;
    }
    if (setenv("REMOTE_GPU_CREDENTIALS", settings->credentials, 1) == 0)
        return RG_LEASE_GO;
    rg_error("out of memory");
    return RG_LEASE_WRONG;
}

void rg_lease_settings_fini(struct rg_lease_settings *settings)
{
    rg_options_fini(&settings->options);
}
