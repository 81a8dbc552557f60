/*
 * settings.h - what slurm-lease is told: by its file, /etc/remote-gpu/slurm.conf, and on the command line.
 */
#ifndef RG_PLACES_SLURM_LEASE_SETTINGS_H
#define RG_PLACES_SLURM_LEASE_SETTINGS_H

#include "common/base/options.h"

struct rg_lease_settings {
    struct rg_text_list servers; /* of the pool; any of them is asked */
    char *credentials;           /* folder */
    char *user, *project;        /* patterns (job.h); project NULL: none */
    char *cluster;               /* NULL: SLURM_CLUSTER_NAME */
    uint64_t wait_ns, grace_ns, timeout_ns;
    char *config;
    bool help;
    struct rg_options options;
};

enum rg_lease_load { RG_LEASE_GO, RG_LEASE_HELP, RG_LEASE_WRONG };

/** Loads argv[1..] and the file. RG_LEASE_WRONG: it was said what is wrong. *next: the first word behind the options. */
enum rg_lease_load rg_lease_settings_load(struct rg_lease_settings *settings, int argc, char **argv,
                                          int *next);
/** Also after a load that went wrong: what its texts point at goes with it. */
void rg_lease_settings_fini(struct rg_lease_settings *settings);

#endif
