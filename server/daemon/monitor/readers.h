/*
 * readers.h - who reads the status page or its API, what they may see, and what they may have done: the monitor's answers to the process
 * that answers HTTP.
 *
 * With each question that process says by what its reader shows who that is (struct rg_monitor_page); rights are found out here, anew
 * each time, so who is revoked sees nothing any more. A reader's sessions are those that the same identity has begun. Operators are
 * those of the pool (--pool-operators) and, by a link that a command has printed, root and the server's user. Main thread.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_READERS_H
#define RG_SERVER_DAEMON_MONITOR_READERS_H

#include "server/daemon/monitor/monitor.h"
#include "server/daemon/shared/snapshot.h"

/** Whether that is an operator: root and the server's user by a unix socket, and holders of certificates that the settings name. */
bool rg_reader_is_operator(const struct rg_monitor *monitor, const struct rg_who *who);

/** RG_ASK_LOOK: answers with a file that has a struct rg_snapshot, or refuses. */
void rg_reader_look(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                    struct rg_monitor_answer *answered);
/** RG_ASK_LIST, RG_ASK_LINKS. */
void rg_reader_list(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                    struct rg_monitor_answer *answered);
/** RG_ASK_LOGIN and RG_ASK_LOGOUT. */
void rg_reader_login(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                     struct rg_monitor_answer *answered);
void rg_reader_logout(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      struct rg_monitor_answer *answered);
/**
 * RG_ASK_ACT. RG_OK, with what came of it in words; RG_ERR_REFUSED: it is not known who that is; RG_ERR_UNSUPPORTED: who it is may not;
 * RG_ERR_NOT_FOUND: no such session, or it is another's; RG_ERR_TIMEOUT: not now. May answer later.
 */
void rg_reader_act(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                   struct rg_monitor_answer *answered);

/** RG_ASK_LINK, the frontend's. */
void rg_reader_link(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                    struct rg_monitor_answer *answered);
/** The page's address with a secret for somebody; false: `out` says why there is none. `from`: for the audit log. */
RG_MUST_CHECK bool rg_reader_make_link(struct rg_monitor *monitor, const struct rg_who *who, const char *from,
                                       char *out, size_t size);

#endif
