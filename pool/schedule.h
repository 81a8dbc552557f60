/*
 * schedule.h - who gets which GPUs of the pool: a pure function from what the pool looks like to what is granted.
 *
 * `rg_pool_schedule` takes a snapshot (servers, devices, leases, waiting requests, usage of users and projects) and
 * the time, and says which requests are granted which devices, and of every other its position and what it waits for.
 * It does no input or output, reads no clock, keeps nothing between calls and uses no random numbers: the same snapshot
 * gives the same outcome. What it decides becomes true only when the caller has written it down (in a transaction over
 * the devices); if that fails, the next snapshot tells.
 *
 *     struct rg_pool_policy policy;
 *     rg_pool_policy_default(&policy);
 *     struct rg_pool_outcome outcome;
 *     RG_TRY(rg_pool_schedule(&snapshot, &policy, now, &outcome, why, sizeof why));
 *     for each of outcome.grants: lease outcome.parts[grant.first .. + grant.n] to requests[grant.request]
 *     for each of outcome.waiting: rg_pool_explain(&snapshot, &outcome, i, text, sizeof text)
 *     rg_pool_outcome_clear(&outcome);
 *
 * How it decides (docs/pool-scheduling.md tells it for operators):
 *   1. Order: higher priority first; within a priority, who has waited longer than `patience` by time of arrival; then
 *      the project, and in it the user, with the least decayed usage for its weight; then by time of arrival.
 *   2. In that order each request gets all of its GPUs or none. The first `reservations` of those that do not fit
 *      reserve the devices where they fit first, from the time on when these are free.
 *      A lease that is suspended comes back as a request for its own GPUs, which is the first of its priority.
 *   3. What comes later may start at once on what is free, if it ends before a reservation begins or leaves enough for it.
 *   4. Among the devices that fit: closest to each other, then by measured latency, then packed (or spread).
 *
 * Times are nanoseconds of one clock, whichever the caller has; sizes are bytes. Pointers in a snapshot are the
 * caller's, and must stay as long as the outcome is used. Any thread; nothing is shared.
 */
#ifndef RG_POOL_SCHEDULE_H
#define RG_POOL_SCHEDULE_H

#include "common/base/status.h"
#include "pool/filter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_POOL_UNKNOWN UINT64_MAX /* a time, latency or limit that nobody knows */
#define RG_POOL_NONE    UINT32_MAX /* no index */

/** A server: a member of the pool. */
struct rg_pool_server {
    const char *address;  /* "gpu1.example:7600" */
    const char *hostname; /* as it calls itself */
    const struct rg_pool_label *labels;
    const struct rg_pool_label
        *taints; /* only requests that tolerate all of them come here; value "" if it has none */
    uint32_t n_labels, n_taints;
    bool draining; /* takes nothing new */
    bool has_rdma;
    const char *cuda_version;   /* "12.8"; NULL: unknown */
    const char *driver_version; /* "570.86.15"; NULL: unknown */
};

/** A GPU. Devices lie in the snapshot in the order of their servers, so that those of a server are side by side. */
struct rg_pool_device {
    uint32_t server; /* index */
    uint32_t index;  /* on its server, as the driver counts */
    const char *uuid;
    const char *name;
    uint64_t memory;         /* that sessions can have: without what the driver reserves */
    uint64_t memory_outside; /* guaranteed to sessions that hold no lease of `leases` */
    int32_t numa_node;       /* -1: unknown */
    /* Devices of a server with the same number are connected by NVLink (with each other), or below the same PCIe switch.
       -1: no such connection, or unknown. */
    int32_t nvlink_group, pcie_group;
};

/** So much of a device. */
struct rg_pool_part {
    uint32_t device; /* index */
    uint64_t memory; /* bytes of it; of a whole device its `memory` */
};

/** GPUs that somebody has. */
struct rg_pool_lease {
    const char *id, *user;
    const char *project; /* NULL or "": none */
    int32_t priority;
    const struct rg_pool_part *parts; /* n of them, of different devices */
    uint32_t n;
    uint64_t started;
    uint64_t ends;         /* by its time limit or an estimate; RG_POOL_UNKNOWN: nobody knows */
    bool suspendable;      /* may be suspended for a request of higher priority */
    uint64_t spared_until; /* not before then; 0: the policy says alone */
    bool suspending;       /* somebody has begun to suspend it: its parts are about to become free */
    bool suspended;        /* its parts are free for others */
};

/** What was measured between the asker of a request and a server. */
struct rg_pool_link {
    uint64_t latency;   /* a round trip, nanoseconds; RG_POOL_UNKNOWN */
    uint64_t bandwidth; /* bytes a second; 0: unknown */
};

enum rg_pool_strategy {
    RG_POOL_AS_POLICY, /* of a request: as the pool does */
    RG_POOL_PACK,      /* fill servers and devices that are in use, to keep others free for large requests */
    RG_POOL_SPREAD,    /* use what is least used */
};

/** Somebody who asks for GPUs. */
struct rg_pool_request {
    const char *id, *user;
    const char *project; /* NULL or "": none; the user counts by itself then */
    int32_t priority;    /* higher comes first; 0 unless said */
    uint32_t n;          /* GPUs: all of them or none */
    /* Of each GPU: bytes, or millionths of its memory, whichever is more; both 0: the whole device, shared with nobody. */
    uint64_t memory;
    uint32_t fraction;
    const struct rg_pool_filter *filters; /* of rg_pool_filters_parse; all must hold */
    uint32_t n_filters;
    const char *const *devices; /* UUIDs: only these GPUs will do; none: any */
    uint32_t n_devices;
    const struct rg_pool_label
        *tolerations; /* taints that do not matter: value NULL for any value of the key */
    uint32_t n_tolerations;
    bool several_servers; /* may lie on several servers, at most `servers_max` of them */
    enum rg_pool_strategy strategy;
    uint64_t submitted;
    uint64_t time_limit; /* after which it ends, from its start; RG_POOL_UNKNOWN */
    const struct rg_pool_link
        *links;  /* one for each server; NULL: nothing was measured. May be shared by requests. */
    bool spares; /* nobody is suspended for it, whatever the policy says */
    /* It is a lease that is suspended and comes back to these n parts and no others, also where its server drains or has taints;
       before others of its priority, and nobody is suspended for it. NULL: it is none. */
    const struct rg_pool_part *returns;
};

/** What a user or a project has used, and may use in relation to others. */
struct rg_pool_account {
    const char *name;
    bool project; /* a project's; else a user's, over all projects */
    uint32_t
        weight; /* of its share; 0 counts as 1. Without an account: RG_POOL_WEIGHT_DEFAULT, nothing used */
    uint64_t usage; /* GPU milliseconds, decayed as of `as_of`; see rg_pool_account_charge */
    uint64_t as_of;
};
#define RG_POOL_WEIGHT_DEFAULT 100u

struct rg_pool_snapshot {
    const struct rg_pool_server *servers;
    const struct rg_pool_device *devices;
    const struct rg_pool_lease *leases;
    const struct rg_pool_request *requests;
    const struct rg_pool_account *accounts; /* names once each */
    uint32_t n_servers, n_devices, n_leases, n_requests, n_accounts;
};

struct rg_pool_policy {
    enum rg_pool_strategy strategy; /* of requests that do not say */
    uint64_t half_life;             /* after which usage counts half */
    uint64_t
        charge_ahead; /* each GPU that somebody holds, or is before in the queue, counts as used for so long */
    uint64_t patience;      /* who has waited longer goes by time of arrival alone; RG_POOL_UNKNOWN: never */
    uint32_t reservations;  /* requests that nothing may delay by starting before them; at least 1 */
    uint32_t servers_max;   /* of one grant */
    bool preempt;           /* propose to suspend leases for requests of higher priority */
    uint64_t preempt_after; /* a lease is left alone for so long after its start */
};
/** Packing; a half-life of 7 days, an hour ahead, a day's patience, 8 reservations; nobody is suspended. */
void rg_pool_policy_default(struct rg_pool_policy *policy);

/** How close the devices of a grant are to each other, closest first. */
enum rg_pool_closeness {
    RG_POOL_NVLINK, /* also of a single device */
    RG_POOL_PCIE,   /* below one switch */
    RG_POOL_NUMA,   /* on one node */
    RG_POOL_SERVER,
    RG_POOL_SEVERAL_SERVERS,
};

struct rg_pool_grant {
    uint32_t request;  /* index */
    uint32_t first, n; /* in outcome.parts; in the order of the devices' indices */
    enum rg_pool_closeness closeness;
};

/** What a request waits for. The numbers stay as they are: they are shown to users and counted. */
enum rg_pool_reason {
    RG_POOL_WAITS_FOR_GPUS = 1,       /* others have the GPUs that would do */
    RG_POOL_WAITS_FOR_TURN = 2,       /* it would fit, but what is free is kept for requests before it */
    RG_POOL_WAITS_FOR_SUSPENSION = 3, /* leases are being suspended, or are proposed to be */
    RG_POOL_WAITS_FOR_DRAINED = 4,    /* only servers that are draining have what it asks for */
    RG_POOL_NEVER_TOO_MANY = 10,      /* matching servers have fewer GPUs, even when all are free */
    RG_POOL_NEVER_MEMORY = 11,        /* no matching GPU has as much memory */
    RG_POOL_NEVER_FILTERS = 12,       /* no GPU of the pool matches its filters */
    RG_POOL_NEVER_TAINTS = 13,        /* all matching servers have taints that it does not tolerate */
    RG_POOL_NEVER_EMPTY = 14,         /* the pool has no GPU */
};
/** Whether only a change of the pool itself (a server comes) could help: a caller may refuse such a request at once. */
static inline bool rg_pool_reason_is_final(enum rg_pool_reason reason)
{
    return reason >= RG_POOL_NEVER_TOO_MANY;
}

struct rg_pool_waiting {
    uint32_t request;  /* index */
    uint32_t position; /* from 1, among those that wait */
    enum rg_pool_reason reason;
    uint64_t start; /* when it is expected to start, if it has a reservation; else RG_POOL_UNKNOWN */
    uint32_t
        have; /* GPUs: free now and fitting on the best server (or on all); of NEVER_TOO_MANY: there are at most */
    uint32_t server; /* that best server, or where it has its reservation; RG_POOL_NONE */
    uint32_t behind; /* index of the request whose reservation is in the way; RG_POOL_NONE */
    uint32_t filter; /* of NEVER_FILTERS: the filter that excludes what the ones before it leave */
    uint32_t left;   /* devices that those before it leave */
    uint64_t most;   /* of NEVER_MEMORY: the most that a matching device has, in bytes */
};

/** To suspend these leases would let a request start. To be done by the caller, who then marks them as `suspending`. */
struct rg_pool_proposal {
    uint32_t request;  /* index */
    uint32_t first, n; /* in outcome.suspend: indices of leases */
};

/** In the order of decision. All arrays belong to the outcome. */
struct rg_pool_outcome {
    struct rg_pool_grant *grants;
    struct rg_pool_part *parts;
    struct rg_pool_waiting *waiting; /* by position */
    struct rg_pool_proposal *proposals;
    uint32_t *suspend;
    uint32_t n_grants, n_parts, n_waiting, n_proposals, n_suspend;
};

/**
 * Decides. Every request is in the outcome once: granted, or waiting with a reason. RG_ERR_INVALID if the snapshot
 * contradicts itself (an index out of range, devices not in the order of servers, a request for no GPU, a lease of
 * more memory than a device has, …), with the reason in `why`; RG_ERR_NO_MEMORY. On failure the outcome is empty and
 * nothing was decided.
 */
RG_MUST_CHECK enum rg_status rg_pool_schedule(const struct rg_pool_snapshot *snapshot,
                                              const struct rg_pool_policy *policy, uint64_t now,
                                              struct rg_pool_outcome *outcome, char *why, size_t why_size);
/** Frees its arrays; it is empty then. A zeroed outcome is empty. */
void rg_pool_outcome_clear(struct rg_pool_outcome *outcome);

/**
 * One sentence about what waiting[i] waits for: "waits for 4 GPUs with 20 GiB on one server: gpu3 has 2 free now, all 4
 * in about 12 min". For a final reason it says what to do instead.
 */
void rg_pool_explain(const struct rg_pool_snapshot *snapshot, const struct rg_pool_outcome *outcome,
                     uint32_t i, uint64_t now, char *text, size_t size);

/**
 * Whether the pool could give this request what it asks for if nothing else were there: to be asked before it is
 * queued. RG_ERR_UNSUPPORTED if not, with one sentence in `why` (as rg_pool_explain). `request` need not be in the snapshot.
 */
RG_MUST_CHECK enum rg_status rg_pool_admissible(const struct rg_pool_snapshot *snapshot,
                                                const struct rg_pool_policy *policy,
                                                const struct rg_pool_request *request, char *why,
                                                size_t why_size);

/** What is left of `usage` after `elapsed` nanoseconds with this half-life (0: nothing decays). */
uint64_t rg_pool_usage_decayed(uint64_t usage, uint64_t elapsed, uint64_t half_life);
/**
 * Brings an account to `now` and adds what was used since it was last charged: `gpu_millionths` of GPUs (half of a
 * GPU's memory counts as 500000) for `held` nanoseconds that end now. A `now` before as_of (the clock was set back)
 * decays nothing.
 */
void rg_pool_account_charge(struct rg_pool_account *account, uint64_t gpu_millionths, uint64_t held,
                            uint64_t now, uint64_t half_life);

#endif
