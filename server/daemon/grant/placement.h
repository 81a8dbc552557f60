/*
 * placement.h - which devices a session gets: those that the client has named, or as many as it wants of those that the fewest use.
 *
 * A session may have its devices alone (run --exclusive, or the operator's rule `mode`): then it gets only such that nobody else is on,
 * and nobody else gets them until it has ended. A session that is suspended is still there. On one device all others share in the same
 * way: by turns, or by MPS. Main thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_PLACEMENT_H
#define RG_SERVER_DAEMON_GRANT_PLACEMENT_H

#include "server/daemon/sessions/sessions.h"

/** Fills in the devices of `info`, in the client's order. RG_ERR_REFUSED: `answer` has what to tell the client. */
RG_MUST_CHECK enum rg_status rg_placement(const struct rg_sessions *sessions, const struct rg_driver *driver,
                                          const struct rg_monitor_start *wanted, const struct rg_who *who,
                                          struct rg_session_info *info, struct rg_monitor_answer *answer);

#endif
