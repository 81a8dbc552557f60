/*
 * worker_process.h - the process that serves a session, or answers a measurement: its arguments, descriptors and sandbox.
 *
 * The monitor's main thread.
 */
#ifndef RG_SERVER_DAEMON_WORKER_PROCESS_H
#define RG_SERVER_DAEMON_WORKER_PROCESS_H

#include "server/daemon/sessions.h"

/**
 * Starts the process of `entry`, whose devices and share are decided: its process id, its lease of a sandbox and the socket for
 * further connections are entered. The caller keeps its own descriptors, but for that of the slot, which the worker has now.
 */
RG_MUST_CHECK enum rg_status rg_worker_process_start(struct rg_sessions *sessions,
                                                     const struct rg_driver *driver,
                                                     struct rg_session_entry *entry, enum rg_purpose purpose,
                                                     const struct rg_session_files *files, char *why,
                                                     size_t why_size);
/** The server's numbers of a session's devices: "0,1". */
void rg_worker_process_devices(const struct rg_session_info *info, char *out, size_t size);

#endif
