/* reserve.h - when and where a request that has to wait could start first. */
#ifndef RG_POOL_SCHEDULE_RESERVE_H
#define RG_POOL_SCHEDULE_RESERVE_H

#include "pool/schedule/plan.h"

struct rg_pool_reservation {
    uint64_t start;    /* RG_POOL_UNKNOWN: some of what is in the way ends nobody knows when */
    uint32_t unknown;  /* leases like that */
    uint32_t n;        /* devices */
    uint32_t *devices; /* in the arena */
    bool waits;        /* something is in the way that is not being suspended already */
};

/**
 * Finds the devices on which the fewest leases of unknown end are in the way, and of these the ones that are free first,
 * beside all earlier reservations. `*found` says whether there are any. RG_ERR_NO_MEMORY.
 */
RG_MUST_CHECK enum rg_status rg_pool_find_reservation(struct rg_pool_plan *plan,
                                                      const struct rg_pool_class *class,
                                                      struct rg_pool_reservation *reservation, bool *found);
/** Keeps these devices for a request. */
void rg_pool_keep_reservation(struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t request,
                              const struct rg_pool_reservation *reservation);

#endif
