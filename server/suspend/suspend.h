/*
 * suspend.h - a session that does not use the device gives its memory to others, and gets it back at its next call.
 *
 * A thread of the module's own looks whether anybody has entered the device gate (core/device_gate.h) since it looked last. Who has
 * not for the time-out is told (RG_NOTICE_SAY), and then suspended: the gate is closed, the driver puts the process's device memory
 * away (checkpoint.h), and what was charged for it is given back. The next record, or the next access of the client's to memory that
 * it shares with the device, comes to the closed gate and waits while the thread brings all back: the program sees a call that takes
 * longer. What the client answers by itself, and its signs of life, do not come here and wake nothing.
 *
 * What can come in between: work that is still running, or a call that waits for some, means that the session is not idle, and it is
 * not suspended; memory that others have a part in or that a network adapter knows stays where it is, and the session with it; if the
 * device's memory is not to be had when the session comes back, it waits, nothing is lost, and the client is told; if the driver
 * cannot bring it back at all the session ends with the reason. A client that goes meanwhile is noticed as always.
 *
 * States: RUNNING -> SUSPENDING -> SUSPENDED -> RESUMING -> RUNNING; from SUSPENDING also back to RUNNING.
 */
#ifndef RG_SERVER_SUSPEND_SUSPEND_H
#define RG_SERVER_SUSPEND_SUSPEND_H

#include "server/core/worker.h"
#include "server/suspend/command.h"

enum rg_suspend_state {
    RG_SUSPEND_RUNNING,
    RG_SUSPEND_SUSPENDING,
    RG_SUSPEND_SUSPENDED,
    RG_SUSPEND_RESUMING
};

struct rg_suspend_policy {
    uint64_t idle_ns; /* suspended after so long without use; 0: never by itself */
    uint64_t end_ns;  /* ended after so long in suspension; 0: never */
    bool tells;       /* the client knows RG_NOTICE_SAY */
};

/** How long a session may be suspended on this server (REMOTE_GPU_SUSPENDED_TIMEOUT); 0: for ever. */
uint64_t rg_suspend_end_ns(void);
/** Says when the session is suspended by itself. Before the worker is started. */
void rg_suspend_set_policy(struct rg_worker *worker, const struct rg_suspend_policy *policy);
/** Does what the monitor wants, in a moment. Any thread. */
void rg_suspend_command(struct rg_worker *worker, enum rg_suspend_command command);
/** How the session is. Any thread. */
enum rg_suspend_state rg_suspend_state(struct rg_worker *worker);

#endif
