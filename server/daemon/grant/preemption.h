/*
 * preemption.h - sessions are suspended for the memory that one of higher priority asks for, where the operator's rules allow that.
 *
 * Happy path: a session cannot be begun for want of memory, and may preempt (rules.h). Of the sessions of lower priority on its
 * devices, idle ones first, then those of the lowest priority, then the youngest, as many as that takes are told by their slots to be
 * suspended, and how that goes is looked at until they are; then there is room. As long as somebody waits for room nobody comes back.
 * After that they come back one after the other, of the highest priority first, then who was suspended first, each when what it had
 * fits; nobody passes one that does not fit yet, and the next one waits until it has its memory. If no set of them is enough nobody is
 * suspended; one that does not come to rest, or cannot be suspended, goes on, and is let alone for a while.
 *
 * In a pool, leases are suspended for requests of higher priority: then all sessions by one are, in the same way, and come back when the
 * pool says so (rg_preemption_of_lease).
 *
 * The monitor's, main thread. What a worker says of itself is not believed beyond its own session: a session that says that it is
 * suspended and keeps its memory makes no room, as room is what the ledger has (server/shares/ledger.h).
 */
#ifndef RG_SERVER_DAEMON_GRANT_PREEMPTION_H
#define RG_SERVER_DAEMON_GRANT_PREEMPTION_H

#include "server/shares/slot.h"
#include "server/suspend/command.h"

struct rg_sessions;
struct rg_session_entry;

/** Of one session. Starts zeroed. */
struct rg_preemption {
    enum rg_preemption_state {
        RG_PREEMPTION_NONE,
        RG_PREEMPTION_ASKED, /* to be suspended */
        RG_PREEMPTION_AWAY,  /* it is */
        RG_PREEMPTION_BACK,  /* it may come back */
    } state;
    uint32_t count;    /* of the worker's answers before it was asked */
    uint32_t of_lease; /* the number by which the pool wants its lease suspended; 0: it does not */
    enum rg_suspend_result result;  /* of that, where it could not be; 0: it could, or is not known */
    uint64_t since_ns;              /* in this state; NONE: since it could not be suspended, or 0 */
    uint64_t bytes[RG_DEVICES_MAX]; /* what it had, in the order of its devices */
};

/** Sees to room for what is granted so far but the memory. True: it is being made. False: there cannot be enough. */
bool rg_preemption_make_room(struct rg_sessions *sessions, const struct rg_share_grant *grant);
/**
 * Sees to it that all sessions by a lease of the pool are suspended, `number` (not 0) each time it is wanted anew, or with 0 that they
 * may come back. What has come of it; 0: nothing yet, or it is not wanted. If it is not RG_SUSPEND_DONE some may be suspended all the same.
 */
enum rg_suspend_result rg_preemption_of_lease(struct rg_sessions *sessions, uint64_t lease, uint32_t number);
/** Whether a session has given its GPUs to others of the pool. */
bool rg_preemption_is_away(const struct rg_session_entry *entry);
/**
 * Goes on with all that are preempted; `wanted`: somebody waits for room. Returns when to come again; UINT64_MAX: nobody is
 * preempted.
 */
uint64_t rg_preemption_continue(struct rg_sessions *sessions, bool wanted);

#endif
