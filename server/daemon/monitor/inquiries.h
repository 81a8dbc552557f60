/*
 * inquiries.h - what clients ask that begins no session: who they are, what was used, quotas, and what there is in the pool.
 *
 * Who asks is found out first, as for a session (who.h). The accountant and the pool's agent answer by sockets of their own, so that
 * the monitor waits for neither. The monitor's, main thread; descriptors stay the caller's.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_INQUIRIES_H
#define RG_SERVER_DAEMON_MONITOR_INQUIRIES_H

#include "server/daemon/monitor/monitor.h"

/** A day may have begun since something was measured, and with it GPU hours of quotas. */
void rg_inquiry_see_time(const struct rg_monitor *monitor);

/** RG_ASK_OWNS. */
void rg_inquiry_owns(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                     struct rg_monitor_answer *answered);
/**
 * What users ask of accounts: who asks is found out by the `connection` that the question came with. Each sends its answer to the
 * frontend itself, be it a refusal; rows of usage are written later by the accountant, so the monitor waits for nothing.
 */
void rg_inquiry_usage(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                      struct rg_monitor_answer *answered);
void rg_inquiry_quotas(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                       struct rg_monitor_answer *answered);
/** fds: the connection, and a file with the question, which the agent alone reads. */
void rg_inquiry_pool(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds,
                     struct rg_monitor_answer *answered);
/**
 * Whether quotas and rules allow a lease of the pool, or that it is to last longer, and its priority; `data`: the monitor. out->counts: that
 * depends on what is held already, which was not counted.
 */
void rg_inquiry_judge(void *data, const struct rg_agent_judge *judge, struct rg_agent_judged *out);
/** Whether a client of the pool may stay, whose certificate may have been revoked; likewise. */
bool rg_inquiry_stays(void *data, const struct rg_agent_client *client, char *why, size_t why_size);
/** Whether a lease of the pool is known here, which the agent may have to find out first: rg_inquiry_checked. */
void rg_inquiry_lease(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      struct rg_monitor_answer *answered);
/** The agent's answer to that question; `data`: the monitor, `why`: where the lease is not there. */
void rg_inquiry_checked(void *data, uint64_t question, bool there, const char *why);

#endif
