/*
 * slot.h - a session's slot: memory that the monitor and the session's worker share.
 *
 * Two parts. The *grant* is what the monitor has decided; it alone writes it, and may change it while the session runs: a
 * sequence number that is odd while it writes tells the worker to read again. The *usage* is counted by the worker, and read
 * by the monitor, which believes nothing of it that it has not checked: a worker that was taken over can tell lies about its
 * own session, and about no other's. The worker's descriptor cannot change the size.
 *
 * Happy path: the monitor creates a slot for each session and gives the descriptor to the worker (--share-fd), which maps it.
 * All that is in it is of fixed size: there are no pointers or lengths.
 */
#ifndef RG_SERVER_SHARES_SLOT_H
#define RG_SERVER_SHARES_SLOT_H

#include "proto/control/control.h"

#include <stdalign.h>
#include <stdatomic.h>

/** What a session has of one device. */
struct rg_share_grant_device {
    uint32_t ordinal;      /* on the server */
    uint32_t place;        /* of the session on the device's page (device_page.h) */
    uint64_t memory_limit; /* bytes; 0: none but the device's own */
};

/** What a session has. */
struct rg_share_grant {
    uint32_t
        compute_millionths; /* at most this part of each device's time, by MPS of its multiprocessors; 0: no cap */
    uint32_t weight;        /* 1 to RG_SHARE_WEIGHT_MAX */
    enum rg_share_priority priority;
    bool overcommitted;       /* the memory limits are no guarantees */
    bool exclusive;           /* no other session is on its devices */
    bool mps;                 /* its work goes through NVIDIA's multi-process service, and takes no turns */
    bool preempts;            /* others of lower priority are suspended for its memory */
    bool preempted;           /* its own is another's: it is to be suspended as long as this is so */
    uint64_t idle_timeout_ns; /* 0: none */
    char project[RG_CONTROL_TEXT];
    uint32_t n_devices;
    struct rg_share_grant_device devices[RG_DEVICES_MAX]; /* in the order in which the session sees them */
};

static inline enum rg_sharing rg_share_grant_sharing(const struct rg_share_grant *grant)
{
    return grant->exclusive ? RG_SHARING_EXCLUSIVE : grant->mps ? RG_SHARING_MPS : RG_SHARING_TURNS;
}

/** What a worker counts of one device. Times are of the monotonic clock, in nanoseconds. */
struct rg_share_usage_device {
    _Atomic uint64_t memory, memory_peak; /* bytes charged */
    _Atomic uint64_t busy_ns;             /* of the device, measured */
    _Atomic uint64_t throttled_ns;        /* that work has waited for its turn */
    _Atomic uint64_t launches; /* kernels and whole graphs (worker/count.h); of all devices, at the first */
    _Atomic uint64_t refusals; /* of memory, for the limit's sake */
};

struct rg_share_usage {
    _Atomic uint32_t state;       /* enum rg_share_state, but RG_SHARE_WAITING */
    _Atomic uint32_t waits;       /* it has no connection, and waits for its client */
    _Atomic uint32_t leaves;      /* it is over, and its process gives back what it has */
    _Atomic uint32_t suspended;   /* enum rg_suspend_result: what came of the last command to suspend it */
    _Atomic uint32_t suspensions; /* such commands that have been done */
    _Atomic uint32_t preempted;   /* enum rg_suspend_result: what came of it when it was last preempted */
    _Atomic uint32_t preemptions; /* how often something has come of that */
    _Atomic uint64_t last_use_ns; /* when the session last gave a device work */
    _Atomic uint64_t bytes_in, bytes_out; /* bulk data from and to the client */
    struct rg_share_usage_device devices[RG_DEVICES_MAX];
};

struct rg_share_slot {
    uint32_t size; /* of this: both ends are of one build */
    _Atomic uint32_t sequence;
    struct rg_share_grant grant;
    alignas(4096) struct rg_share_usage usage;
};

/** Makes one with `grant`. *fd: to be given to the worker, and closed. NULL: no memory or descriptors. */
struct rg_share_slot *rg_share_slot_create(const struct rg_share_grant *grant, int *fd);
/** Maps one that was received; the descriptor stays the caller's. NULL: it is none. */
struct rg_share_slot *rg_share_slot_open(int fd);
void rg_share_slot_close(struct rg_share_slot *slot); /* NULL is fine */

/** The monitor's: changes what the session has, while it runs. */
void rg_share_slot_set(struct rg_share_slot *slot, const struct rg_share_grant *grant);
/** The worker's: what it has now. `sequence` (may be NULL) tells one state from the next. */
void rg_share_slot_get(const struct rg_share_slot *slot, struct rg_share_grant *out, uint32_t *sequence);
/** Without copying: the number that rg_share_slot_get gave, as long as nothing has changed. */
static inline uint32_t rg_share_slot_sequence(const struct rg_share_slot *slot)
{
    return atomic_load_explicit(&slot->sequence, memory_order_acquire);
}

/** The monitor's: takes what a worker has counted, as far as it can be true, into what is shown of the session. */
void rg_share_slot_show(const struct rg_share_slot *slot, const struct rg_share_grant *grant,
                        struct rg_session_info *info);

#endif
