/*
 * environment.h - the environment that `remote-gpu run` gives a command, for tasks that Slurm starts.
 *
 * `remote-gpu run … -- env -0` is run as the job's user in the job's environment, and what it prints is what the tasks get. So there
 * is one place that knows how a program finds the GPUs (client/cli/base/environment.h), and the tasks see what they would see if the
 * user had put the command in front of them.
 */
#ifndef RG_PLACES_SLURM_ENVIRONMENT_H
#define RG_PLACES_SLURM_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/** Variables, NAME=VALUE, each with a 0 behind it. */
struct rg_slurm_environment {
    char *text;
    size_t size;
};

/**
 * Runs argv in the environment `envp` and takes what it prints. If this process has put its rights as root aside for a user, the
 * command is that user's for good. False: it failed, or took longer than `timeout_ms`; `why` is the last that it said on its standard
 * error, or a sentence. No more variables than a program is likely to have are taken, here and in `envp`: the user has chosen both, and
 * who compares them is root's.
 */
bool rg_slurm_environment_ask(struct rg_slurm_environment *out, char *const argv[], char *const envp[],
                              int timeout_ms, char *why, size_t why_size);
/**
 * Calls `set` for each variable that `before` does not have like this, and with a NULL value for each that is only in `before`.
 * `before` may be what `set` changes: it is looked at before the first call alone. False: `set` returned false, or there is no memory.
 */
bool rg_slurm_environment_compare(const struct rg_slurm_environment *now, char *const before[],
                                  bool (*set)(void *context, const char *name, const char *value),
                                  void *context);
void rg_slurm_environment_fini(struct rg_slurm_environment *environment);

#endif
