/*
 * reply.h - what the monitor answers the frontend, one packet a question, and answers that another process gives.
 *
 * The monitor's, main thread. What a frontend that has ended does not take is dropped; it is then replaced.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_REPLY_H
#define RG_SERVER_DAEMON_MONITOR_REPLY_H

#include "server/daemon/process/frontend_process.h"

/** Answers with n_fds descriptors, which stay the caller's. */
void rg_reply(struct rg_frontend_process *frontend, const struct rg_monitor_answer *answered, const int *fds,
              unsigned n_fds);
/** Answers with one descriptor, which is closed here; -1: with none. */
void rg_reply_with(struct rg_frontend_process *frontend, const struct rg_monitor_answer *answered, int fd);
/** Fills in a refusal and answers with it. */
void rg_reply_refuse(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered,
                     enum rg_refusal_code code, const char *why);

/** Makes a socket by which another process is to answer, however long that takes it. False: refused, as there is no memory. */
bool rg_reply_open(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered, int ends[2]);
/** Answers with ends[0] if that process has taken ends[1]; refuses if it has not. Both are closed here. */
void rg_reply_by(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered, const int ends[2],
                 bool taken, const char *why_not);

#endif
