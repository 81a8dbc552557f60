/*
 * gauges.h - counts of what has happened since the server began, for those who watch it (server/http/).
 *
 * The monitor adds when something happens, and brings what changes by itself up to date when somebody wants to look
 * (rg_gauges_look): nobody's server wakes up for figures that nobody reads. What workers count of themselves is bounded by the time
 * that they have run, and never goes down: a worker that lies spoils the figures of its own devices alone, and counters stay
 * counters. Main thread.
 */
#ifndef RG_SERVER_DAEMON_SESSIONS_GAUGES_H
#define RG_SERVER_DAEMON_SESSIONS_GAUGES_H

#include "server/daemon/monitor/monitor.h"

/** A session has ended, as waitpid says; before its slot is closed. */
void rg_gauges_end(struct rg_sessions *sessions, struct rg_session_entry *entry, int end);
/** Clients that the frontend has refused. */
void rg_gauges_refused(struct rg_sessions *sessions, const struct rg_monitor_refused *refused);
/** Shows on the board how everything is now, but for the sessions' own figures (rg_sessions_show_usage). */
void rg_gauges_look(struct rg_monitor *monitor);

/** Makes a point of the last hour's history, if it is time and somebody may want to see it. Returns when the next one is due. */
uint64_t rg_gauges_sample(struct rg_monitor *monitor);

#endif
