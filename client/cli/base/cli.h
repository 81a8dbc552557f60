/*
 * cli.h - the parts of the command remote-gpu: one file a subcommand, and what they share.
 *
 * Every message of its own goes to stderr through the log; stdout holds what was asked for. One thread.
 */
#ifndef RG_CLIENT_CLI_BASE_CLI_H
#define RG_CLIENT_CLI_BASE_CLI_H

#include "client/cli/base/settings.h"
#include "proto/control/control.h"

/* Exit statuses of remote-gpu's own, as of a shell's. */
#define RG_EXIT_FAILURE        125
#define RG_EXIT_NOT_EXECUTABLE 126
#define RG_EXIT_NOT_FOUND      127

struct rg_subcommand {
    const char *name;
    unsigned bit; /* enum rg_cli_command: which options it takes */
    const char *usage;
    const char *summary;
    const char *details;
    /* argv[0] is the first word behind the options; returns the exit status */
    int (*run)(const struct rg_cli_settings *settings, int argc, char **argv);
    bool file_first; /* its word may stand before or among the options */
};

/** The commands, one a page of docs/man: `run` of their rows in the table of main.c. */
int rg_cli_run(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_join(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_list(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_smi(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_compare(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_doctor(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_netperf(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_predict(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_usage(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_health(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_request(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_renew(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_release(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_quota(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_page(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_cdi(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_verify_limits(const struct rg_cli_settings *settings, int argc, char **argv);
int rg_cli_version(const struct rg_cli_settings *settings, int argc, char **argv);

#endif
