/*
 * question.h - whether a packet of the frontend is a question that there is.
 *
 * This is all that the monitor parses of what a frontend, which may have been taken over, sends: sizes, kinds, numbers and how many
 * descriptors came with it. Texts are ended. What is right by its form may still be refused by who somebody is (who.h).
 */
#ifndef RG_SERVER_DAEMON_MONITOR_QUESTION_H
#define RG_SERVER_DAEMON_MONITOR_QUESTION_H

#include "server/daemon/shared/monitor_protocol.h"

/** False: the frontend is not to be believed any more. Any thread. */
bool rg_question_check(struct rg_monitor_question *question, unsigned n_fds);

#endif
