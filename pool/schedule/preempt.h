/* preempt.h - which leases would have to be suspended for a request of higher priority. */
#ifndef RG_POOL_SCHEDULE_PREEMPT_H
#define RG_POOL_SCHEDULE_PREEMPT_H

#include "pool/schedule/reserve.h"

/**
 * Finds the cheapest leases to suspend on one server: of the lowest priority, then the fewest GPUs, then the youngest.
 * Writes their indices to `leases` (room for all leases) and `*n` of them, 0 if there are none, and where the request
 * would go then into `reservation`, to start at once. RG_ERR_NO_MEMORY.
 */
RG_MUST_CHECK enum rg_status rg_pool_find_victims(struct rg_pool_plan *plan,
                                                  const struct rg_pool_class *class,
                                                  const struct rg_pool_request *request, uint32_t *leases,
                                                  uint32_t *n, struct rg_pool_reservation *reservation);

#endif
