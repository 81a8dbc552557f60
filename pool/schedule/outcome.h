/* outcome.h - growing arrays of an outcome. */
#ifndef RG_POOL_SCHEDULE_OUTCOME_H
#define RG_POOL_SCHEDULE_OUTCOME_H

#include "pool/schedule.h"

/** Adds one; RG_ERR_NO_MEMORY, and the outcome is as it was. */
RG_MUST_CHECK enum rg_status rg_pool_outcome_grant(struct rg_pool_outcome *outcome,
                                                   const struct rg_pool_grant *grant);
RG_MUST_CHECK enum rg_status rg_pool_outcome_part(struct rg_pool_outcome *outcome,
                                                  const struct rg_pool_part *part);
RG_MUST_CHECK enum rg_status rg_pool_outcome_waiting(struct rg_pool_outcome *outcome,
                                                     const struct rg_pool_waiting *waiting);
RG_MUST_CHECK enum rg_status rg_pool_outcome_propose(struct rg_pool_outcome *outcome, uint32_t request,
                                                     const uint32_t *leases, uint32_t n);

#endif
