/* order.h - in which order requests are looked at: priority, then patience, then fair shares, then arrival. */
#ifndef RG_POOL_SCHEDULE_ORDER_H
#define RG_POOL_SCHEDULE_ORDER_H

#include "pool/schedule/plan.h"

/** Writes the indices of all requests into `order` (room for all) as they come. RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_pool_order(struct rg_pool_plan *plan, uint32_t *order);

#endif
