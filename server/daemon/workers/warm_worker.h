/*
 * warm_worker.h - one warm worker: its process, and the session that it becomes (see warm.h). Main thread.
 */
#ifndef RG_SERVER_DAEMON_WORKERS_WARM_WORKER_H
#define RG_SERVER_DAEMON_WORKERS_WARM_WORKER_H

#include "server/daemon/sessions/sessions.h"

/** Starts one, with places on the devices' pages. False: it was said why not, and it may still have to be reaped. */
RG_MUST_CHECK bool rg_warm_worker_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                        struct rg_warm_worker *worker, struct rg_warm_kind *kind);
/** Takes note of those that are ready, or say that they are no more. */
void rg_warm_workers_listen(struct rg_warm *warm);
/** Kills it: it has nothing that needs saving. Its places are free when it has been reaped. */
void rg_warm_worker_end(struct rg_warm_worker *worker);
/** Releases all that it has; it has been reaped, or was never there. */
void rg_warm_worker_forget(struct rg_sessions *sessions, struct rg_warm_worker *worker);

/** Whether what it holds of the devices' memory leaves the session as much as that may have. */
bool rg_warm_worker_fits(const struct rg_sessions *sessions, const struct rg_driver *driver,
                         const struct rg_warm_worker *worker, const struct rg_session_entry *entry);
/** Makes process and places a session's, as rg_warm_adopt. False: nothing has changed. */
RG_MUST_CHECK bool rg_warm_worker_adopt(struct rg_sessions *sessions, struct rg_warm_worker *worker,
                                        struct rg_session_entry *entry, const struct rg_session_files *files,
                                        int theirs);

#endif
