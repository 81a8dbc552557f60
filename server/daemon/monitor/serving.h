/* serving.h - what answers single questions of the frontend's, for monitor.c. `answered` has the question's number. Main thread. */
#ifndef RG_SERVER_DAEMON_MONITOR_SERVING_H
#define RG_SERVER_DAEMON_MONITOR_SERVING_H

#include "server/daemon/monitor/monitor.h"

/** Why nothing of that kind begins; NULL: it may. */
const char *rg_monitor_why_closed(const struct rg_monitor *monitor, enum rg_purpose purpose);
void rg_monitor_start_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                              const struct rg_session_files *files, struct rg_monitor_answer *answered);
/** Whether another session of somebody may wait for room: all who wait are few, and one user is not all of them. */
bool rg_monitor_may_wait(const struct rg_monitor *monitor, const struct rg_who *who, const char *address);
/** Nobody waits for room any more. */
void rg_monitor_forget_admissions(struct rg_monitor *monitor);

/** Whether whoever has shown that certificate may come at all. */
void rg_monitor_check_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                  struct rg_monitor_answer *answered);
/** A certificate that was renewed, for a session that runs (rg_sessions_stay). */
void rg_monitor_stay(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                     struct rg_monitor_answer *answered);
void rg_monitor_make_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                 struct rg_monitor_answer *answered);

#endif
