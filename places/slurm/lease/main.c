/*
 * main.c - slurm-lease: takes a lease of the pool for each job that asks for GPUs, and gives it back. For Slurm's controller:
 * PrologSlurmctld and EpilogSlurmctld name it, and `slurm-lease sweep` runs every few minutes.
 *
 * What goes wrong is said on standard error and to syslog, since slurmctld shows nothing of what these programs print.
 */
#include "common/base/log.h"
#include "places/slurm/lease/lease.h"
#include "places/slurm/lease/slurmctld.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

static const struct {
    const char *name, *context; /* the word, and Slurm's name of the occasion */
    int (*run)(const struct rg_lease_settings *settings);
} actions[] = {
    {"prolog", "prolog_slurmctld", rg_lease_prolog},
    {"epilog", "epilog_slurmctld", rg_lease_epilog},
    {"sweep", "", rg_lease_sweep},
};

static void say(enum rg_log_level level, const char *text, size_t size)
{
    syslog(level == RG_LOG_ERROR ? LOG_ERR : LOG_WARNING, "%.*s", (int)size, text);
}

static void help(const struct rg_lease_settings *settings)
{
    printf("usage: slurm-lease [OPTION…] [prolog|epilog|sweep]\n\n"
           "Takes a lease of a pool for each job of Slurm that asks for GPUs (prolog), gives it back "
           "(epilog), and gives back\n"
           "those of jobs that run no more (sweep). Without a word it does what SLURM_SCRIPT_CONTEXT says: "
           "PrologSlurmctld and\n"
           "EpilogSlurmctld of slurm.conf name it. Exit status: 0, or 1 if it could not be done.\n\n");
    rg_options_help(&settings->options, stdout);
}

static int act(const struct rg_lease_settings *settings, const char *word)
{
    const char *context = getenv("SLURM_SCRIPT_CONTEXT");
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (word ? strcmp(word, actions[i].name) != 0
                 : !context || !*context || strcmp(context, actions[i].context) != 0)
            continue;
        rg_slurmctld_init();
        const int status = actions[i].run(settings);
        rg_slurmctld_fini();
        return status;
    }
    rg_error("what is to be done? say prolog, epilog or sweep; see slurm-lease --help");
    return 1;
}

int main(int argc, char **argv)
{
    struct rg_lease_settings settings;
    int next = argc, status = 1;
    rg_log_name("slurm-lease");
    openlog("slurm-lease", LOG_PID, LOG_DAEMON);
    rg_log_tap(say);
    switch (rg_lease_settings_load(&settings, argc, argv, &next)) {
    case RG_LEASE_GO:
        status = act(&settings, next < argc ? argv[next] : NULL);
        break;
    case RG_LEASE_HELP:
        help(&settings);
        status = 0;
        break;
    case RG_LEASE_WRONG:
        break;
    }
    rg_lease_settings_fini(&settings);
    return status;
}
