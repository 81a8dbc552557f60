/*
 * process.h - starting the daemon's child processes with exactly what they are meant to have.
 */
#ifndef RG_SERVER_DAEMON_PROCESS_PROCESS_H
#define RG_SERVER_DAEMON_PROCESS_PROCESS_H

#include "common/base/limits.h"
#include "common/base/status.h"
#include "server/sandbox/sandbox.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RG_PROCESS_FDS (5 + RG_DEVICES_MAX) /* a worker has most: one of each device */

struct rg_process {
    const char *path;
    char *const *arguments;
    char *const *environment;
    int fds[RG_PROCESS_FDS]; /* become 3, 4, …; 0, 1, 2 are inherited, all others are closed */
    int n_fds;
    int death_signal;     /* what the child gets when the calling thread ends; 0: nothing */
    uint64_t stack_limit; /* the child's RLIMIT_STACK, as far as the hard one allows; 0: the daemon's */
    const struct rg_sandbox
        *sandbox; /* what it takes before exec; the program does the rest. NULL: nothing */
};

/**
 * Starts a child by exec. RG_ERR_NOT_FOUND, RG_ERR_IO: `why` says why the program could not be executed. The
 * caller reaps *pid. With a death signal the caller must be a thread that lives as long as the process.
 */
RG_MUST_CHECK enum rg_status rg_process_start(const struct rg_process *process, pid_t *pid, char *why,
                                              size_t why_size);

/**
 * Whether a child that has a successor has ended by itself, which is said: who it was, and what that means for others. *end: waitpid's
 * status.
 */
RG_MUST_CHECK bool rg_process_has_ended(pid_t pid, const char *who, const char *lost, int *end);

/**
 * Waits up to `grace_ms` for a child to end, then kills it and waits a moment more. False: it hangs in the kernel, as a process
 * that uses a GPU's driver may, and there is no waiting for it; another call may find that it has ended. *end: waitpid's status.
 */
RG_MUST_CHECK bool rg_process_end(pid_t pid, unsigned grace_ms, int *end);

#endif
