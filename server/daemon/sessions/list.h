/* list.h - the inside of struct rg_sessions, for the files of this folder. Main thread. */
#ifndef RG_SERVER_DAEMON_SESSIONS_LIST_H
#define RG_SERVER_DAEMON_SESSIONS_LIST_H

#include "server/daemon/sessions/sessions.h"

/** NULL: there is no session of that number. */
struct rg_session_entry *rg_sessions_find(const struct rg_sessions *sessions, uint64_t id);
/** The board shows them in the order of the entries; that of one place has changed. */
void rg_sessions_show(struct rg_sessions *sessions, uint32_t place);
/** Whether a session is over whose worker still has what it was given; `info`: of those devices, NULL: of any. */
bool rg_sessions_any_leaves(const struct rg_sessions *sessions, const struct rg_session_info *info);
/**
 * Whether the connection may be measured: so that places for sessions are left, and the way here to others, whoever measures. Else `answer`
 * has what to tell the client.
 */
RG_MUST_CHECK enum rg_status rg_sessions_admit_netperf(const struct rg_sessions *sessions,
                                                       const struct rg_who *who, const char *address,
                                                       struct rg_monitor_answer *answer);

/** A session is no more; `end` as wait(2) has it. */
void rg_ended_remember(struct rg_sessions *sessions, const struct rg_session_entry *entry, int end);
/** "the session has ended on the server", and why, if that is remembered and `who` began it. NULL: nobody is known. */
void rg_ended_explain(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who, char *out,
                      size_t size);

#endif
