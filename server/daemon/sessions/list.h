/* list.h - the inside of struct rg_sessions, for the files of this folder. Main thread. */
#ifndef RG_SERVER_DAEMON_SESSIONS_LIST_H
#define RG_SERVER_DAEMON_SESSIONS_LIST_H

#include "server/daemon/sessions/sessions.h"

/** NULL: there is no session of that number. */
struct rg_session_entry *rg_sessions_find(const struct rg_sessions *sessions, uint64_t id);
/** The board shows them in the order of the entries; that of one place has changed. */
void rg_sessions_show(struct rg_sessions *sessions, uint32_t place);

#endif
