/*
 * worker_process.h - the process that serves a session, or answers a measurement: its arguments, descriptors and sandbox.
 *
 * The monitor's main thread.
 */
#ifndef RG_SERVER_DAEMON_WORKERS_WORKER_PROCESS_H
#define RG_SERVER_DAEMON_WORKERS_WORKER_PROCESS_H

#include "server/daemon/sessions/sessions.h"

/**
 * Starts the process of `entry`, whose devices and share are decided: its process id, its lease of a sandbox and the socket for
 * further connections are entered. The caller keeps its own descriptors, but for that of the slot, which the worker has now.
 */
RG_MUST_CHECK enum rg_status
rg_worker_process_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                        struct rg_session_entry *entry, const struct rg_monitor_start *wanted,
                        const struct rg_session_files *files, char *why, size_t why_size);
/** The process of a warm worker, whose kind and share are decided; `socket` is its end of the one that it waits at. */
RG_MUST_CHECK enum rg_status rg_worker_process_warm(struct rg_sessions *sessions,
                                                    const struct rg_driver *driver,
                                                    struct rg_warm_worker *worker, int socket, char *why,
                                                    size_t why_size);
/** Whether sessions may go on over RDMA: what goes by it is not encrypted. */
bool rg_worker_process_may_use_rdma(const struct rg_sessions *sessions, bool encrypted);
/** The server's numbers of a session's devices: "0,1". */
void rg_worker_process_devices(const struct rg_session_info *info, char *out, size_t size);

#endif
