/*
 * share.h - what a suspension means for the session's share: its state in the slot, and its memory in the devices' ledgers.
 *
 * While the session is suspended it is charged nothing and guaranteed nothing, so that others can have its memory; what it had is
 * charged again before its memory is brought back, and its guarantee comes back with it or, if others have been given it, as soon as
 * there is room. Where no share is attached (server/shares/worker/share.h) nothing is charged. The module's thread.
 */
#ifndef RG_SERVER_SUSPEND_SHARE_H
#define RG_SERVER_SUSPEND_SHARE_H

#include "common/base/limits.h"
#include "server/shares/worker/share.h"
#include "server/suspend/command.h"

/** Of one device each: what the session is charged and guaranteed when it is not suspended. Starts zeroed. */
struct rg_suspend_charges {
    uint64_t held[RG_DEVICES_MAX];
    uint64_t guaranteed[RG_DEVICES_MAX]; /* and has not got back */
};

/** Shows the state in the session's slot, where there is one. */
void rg_suspend_show(enum rg_share_state state);
/** A command has been done. */
void rg_suspend_answer(enum rg_suspend_result result);
/** Whether a session of higher priority is to have its memory, or has it: as the monitor says now. Any thread. */
bool rg_suspend_is_preempted(void);
/** What came of that. */
void rg_suspend_answer_preemption(enum rg_suspend_result result);
/** The time-out that the monitor has granted, as it is now; 0: none. */
uint64_t rg_suspend_granted_ns(void);
/** Gives the session's memory back to the devices' accounts, and notes in `charges` what that was. */
void rg_suspend_give(struct rg_suspend_charges *charges);
/** Charges all of it again, or nothing: false. */
RG_MUST_CHECK bool rg_suspend_take(const struct rg_suspend_charges *charges);
/** Asks for guarantees that it has not got back. */
void rg_suspend_ask_guarantees(struct rg_suspend_charges *charges);

#endif
