/* confined.h - starting the daemon's child processes in sandboxes. */
#ifndef RG_SERVER_DAEMON_PROCESS_CONFINED_H
#define RG_SERVER_DAEMON_PROCESS_CONFINED_H

#include "server/daemon/process/process.h"
#include "server/sandbox/identities.h"

struct rg_confined {
    enum rg_sandbox_program program;
    const char *identity; /* whose session; "": the server's own program */
    const char *driver;   /* what it loads, or NULL */
    bool soft;            /* that is the software device */
    uint64_t gpus;        /* device files, as of rg_sandboxes_lease */
    const char *runtime;  /* its runtime folder; NULL: its identity's */
    struct rg_sandbox_extra extra;
};

/**
 * rg_process_start in a sandbox: the program gets --sandbox after its arguments, and only the environment that is for
 * it (process->environment is not used). *lease is to be released by the caller when the process has ended.
 */
RG_MUST_CHECK enum rg_status rg_confined_start(struct rg_sandboxes *sandboxes,
                                               const struct rg_confined *confined,
                                               const struct rg_process *process,
                                               struct rg_sandbox_lease **lease, pid_t *pid, char *why,
                                               size_t why_size);

#endif
