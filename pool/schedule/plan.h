/*
 * plan.h - what one decision knows while it is made: what of each device is taken and reserved so far, and what the
 * requests have in common.
 *
 * Nothing becomes free while a decision is made. So what has been found not to fit need not be looked at again, and
 * requests that ask for the same are a *class* whose answer is found once.
 */
#ifndef RG_POOL_SCHEDULE_PLAN_H
#define RG_POOL_SCHEDULE_PLAN_H

#include "common/base/limits.h"
#include "pool/schedule.h"
#include "pool/schedule/arena.h"

/** What holds memory of a device: a part of a lease. */
struct rg_pool_holder {
    uint32_t lease;
    uint64_t memory;
    uint64_t ends; /* of the lease, unless it is being suspended: rg_pool_holder_end */
};

struct rg_pool_device_plan {
    uint64_t taken;         /* by leases, grants, and outside */
    uint64_t granted;       /* of that, in this decision */
    uint64_t granted_until; /* the latest end of these grants */
    uint64_t reserved;      /* for requests that wait */
    uint64_t soon;          /* of that, for requests for which others are about to be gone */
    uint64_t reserved_from; /* the earliest of their starts; RG_POOL_UNKNOWN: none */
    uint32_t reserved_by;   /* index of the first of these requests */
    uint32_t first_holder, n_holders;
};

struct rg_pool_server_plan {
    uint32_t first, n;     /* devices */
    uint64_t idle;         /* bits of those that nobody has anything of */
    uint64_t reserved;     /* … of which something is reserved */
    uint64_t memory_least; /* of a device, however much of it is taken */
    uint64_t free_most;    /* of one of them */
    bool has_instances;    /* of GPUs that MIG has divided */
};

/** Requests that ask for the same from the same place. */
struct rg_pool_class {
    const struct rg_pool_request *request; /* one of them */
    uint64_t
        *matching; /* for each server, a bit for each of its devices that would do if nothing were taken */
    uint32_t most; /* of these on one server, or on as many as a grant may lie on */
    uint32_t most_draining; /* the same, if draining servers were not */
    uint64_t
        failed_limit; /* requests with this time limit, or a longer one, do not fit; starts behind RG_POOL_UNKNOWN */
    bool failed; /* failed_limit is set */
    bool looked; /* the figures for those that wait are set: */
    enum rg_pool_reason reason;
    uint32_t have, server, behind, filter, left;
    uint64_t most_memory;
};

struct rg_pool_plan {
    const struct rg_pool_snapshot *snapshot;
    const struct rg_pool_policy *policy;
    uint64_t now;
    struct rg_pool_arena arena;
    struct rg_pool_device_plan *devices;
    struct rg_pool_server_plan *servers;
    struct rg_pool_holder *holders; /* by device; of a device by the end of their leases, unknown ones last */
    bool *suspending;               /* of each lease: it is, or is proposed to be */
    struct rg_pool_class *classes;
    uint32_t n_classes;
    uint32_t *class_of; /* each request's */
};

/** Fills a zeroed plan. Statuses and `why` as rg_pool_schedule. */
RG_MUST_CHECK enum rg_status rg_pool_plan_init(struct rg_pool_plan *plan,
                                               const struct rg_pool_snapshot *snapshot,
                                               const struct rg_pool_policy *policy, uint64_t now, char *why,
                                               size_t why_size);
/** Frees all; also of one that is half filled. */
void rg_pool_plan_fini(struct rg_pool_plan *plan);

/** Memory of a device that a request needs there. */
uint64_t rg_pool_need(const struct rg_pool_request *request, const struct rg_pool_device *device);
/** What nobody has of it, whatever is reserved. */
static inline uint64_t rg_pool_free(const struct rg_pool_plan *plan, uint32_t device)
{
    return plan->snapshot->devices[device].memory - plan->devices[device].taken;
}
/** What of that somebody may have who holds it for `limit` (RG_POOL_UNKNOWN: who knows how long). */
uint64_t rg_pool_free_for(const struct rg_pool_plan *plan, uint32_t device, uint64_t limit);
/**
 * The same for a lease that comes back to it: what is kept for a request that cannot begin yet is its own until then, since the
 * request may have it suspended again.
 */
uint64_t rg_pool_free_for_return(const struct rg_pool_plan *plan, uint32_t device);
/** Takes memory of a device, which is free, until a time (RG_POOL_UNKNOWN). */
void rg_pool_take(struct rg_pool_plan *plan, uint32_t device, uint64_t memory, uint64_t until);
/** Reserves memory of a device for a request, from a time on. */
void rg_pool_reserve(struct rg_pool_plan *plan, uint32_t device, uint64_t memory, uint64_t from,
                     uint32_t request);
/** `limit` from now on; RG_POOL_UNKNOWN if it is. */
uint64_t rg_pool_until(const struct rg_pool_plan *plan, uint64_t limit);
/**
 * When a lease ends that holds memory of a device, as far as is known, or RG_POOL_UNKNOWN. After now: a lease whose time is
 * over ends any moment, and so does one that is being suspended.
 */
static inline uint64_t rg_pool_holder_end(const struct rg_pool_plan *plan,
                                          const struct rg_pool_holder *holder)
{
    return plan->suspending[holder->lease] ? plan->now + 1 : holder->ends;
}

#endif
