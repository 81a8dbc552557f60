/*
 * quotas.h - the quotas that hold for a session: of its user, of the user's groups and of its project, by the operator's rules
 * (server/shares/rules.h); what of them is used, by the sessions that run and the accounts. Main thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_QUOTAS_H
#define RG_SERVER_DAEMON_GRANT_QUOTAS_H

#include "server/accounts/quota.h"
#include "server/daemon/sessions/sessions.h"
#include "server/pool/protocol.h"

/** Before the first rules are read: how what they say of quotas is checked. `accounts`: whether GPU hours are counted at all. */
void rg_quotas_init(bool accounts);

/** Whether a session with that many GPUs and bytes of their memory may begin. RG_ERR_REFUSED with `answer`. */
RG_MUST_CHECK enum rg_status rg_quotas_admit(const struct rg_sessions *sessions,
                                             const struct rg_account_owner *owner, uint32_t gpus,
                                             uint64_t memory, struct rg_monitor_answer *answer);
/**
 * Whether a lease of a pool may be granted to somebody, by what they and their project hold in the whole pool; groups count what runs
 * here. RG_ERR_REFUSED with the sentence, or with *counts: what they hold matters, and was not counted.
 */
RG_MUST_CHECK enum rg_status rg_quotas_admit_lease(const struct rg_sessions *sessions,
                                                   const struct rg_account_owner *owner,
                                                   const struct rg_agent_judge *judge, bool *counts,
                                                   char *why, size_t why_size);
/** Whether the GPU hours of somebody are used up; `why` is the sentence. */
bool rg_quotas_are_exhausted(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                             char *why, size_t why_size);
/** What then becomes of sessions that run. */
struct rg_quota_exhausted rg_quotas_exhausted(const struct rg_sessions *sessions);
/** What somebody who asks is told: RG_QUOTA_SCOPES_MAX quotas at most. */
void rg_quotas_tell(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                    struct rg_quota_answer *out);

#endif
