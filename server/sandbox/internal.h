/* internal.h - what the files of server/sandbox/ share. */
#ifndef RG_SERVER_SANDBOX_INTERNAL_H
#define RG_SERVER_SANDBOX_INTERNAL_H

#include "server/sandbox/sandbox.h"

/* Those that need a user namespace where the server is not root. */
#define RG_SANDBOX_NAMESPACED (RG_SANDBOX_MOUNTS | RG_SANDBOX_IPC | RG_SANDBOX_NETWORK)

/** Waits for a child of ours; its status as of waitpid. */
int rg_sandbox_reap(pid_t child);

/* Each takes one measure in this process; 0, or an errno with what failed in `why`. */
int rg_sandbox_confine_files(const struct rg_sandbox_policy *policy, char *why, size_t why_size);
int rg_sandbox_confine_calls(const struct rg_sandbox_policy *policy, char *why, size_t why_size);

/**
 * Whether the folder, which is named by its own name, lies in one that is covered in a mount namespace of its own, and is not that itself.
 * Async-signal-safe.
 */
bool rg_sandbox_is_below_cover(const char *path);

/** Loads the filter, a libseccomp context, with a process beside that names what it would refuse; 0 or an errno. */
int rg_sandbox_learn(void *filter, const struct rg_sandbox_policy *policy);

/** Whether the policy lets the file be opened for reading, or for writing; by name alone (log mode). */
bool rg_sandbox_file_allowed(const struct rg_sandbox_policy *policy, const char *path, bool write);

#endif
