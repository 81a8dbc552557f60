/*
 * device_gate.h - who uses the driver, so that the session can be suspended while nobody does (server/suspend/).
 *
 * Whoever executes a record, or moves contents of memory outside of their order, enters before it calls the driver and leaves when
 * it is done; a record that waits for the device is inside all that time. Who closes the gate holds up those who come and knows
 * that nobody is inside. Before that it *holds* records, so that those who are inside come to their end and no more work is given
 * to the device, while what comes outside of the order of records, on which that end may depend, still passes. A gate that does not
 * let everybody in has somebody who opens it: the modules' hook `wanted` tells them.
 *
 * Threads of modules that work on what records have left to do (module.h, `busy`) do not enter: the gate is closed only when they
 * have nothing to do. Any thread. Entering and leaving cost an addition each.
 */
#ifndef RG_SERVER_CORE_DEVICE_GATE_H
#define RG_SERVER_CORE_DEVICE_GATE_H

#include "common/base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_worker;

enum rg_device_gate_state {
    RG_DEVICE_OPEN,
    RG_DEVICE_HELD,   /* records wait, but for `passes` */
    RG_DEVICE_CLOSED, /* everybody does */
};

struct rg_device_gate {
    _Atomic uint64_t entered, left;
    _Atomic(enum rg_device_gate_state) state;
    atomic_int passes;   /* so many records still enter while it is held */
    atomic_uint waiting; /* for it to open */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* opened, or the session is over */
};

/** The gate is open. At its end nobody may be inside or wait. */
void rg_device_gate_init(struct rg_device_gate *gate);
void rg_device_gate_fini(struct rg_device_gate *gate);
/** Wakes everybody who waits: the session is over. */
void rg_device_gate_wake(struct rg_device_gate *gate);

/** For a record. True: the caller is inside. False: it has to wait. */
static inline bool rg_device_try(struct rg_device_gate *gate)
{
    /* Sequentially consistent, as is what closes: one of the two sees the other. */
    atomic_fetch_add(&gate->entered, 1);
    const enum rg_device_gate_state state = atomic_load(&gate->state);
    if (state == RG_DEVICE_OPEN ||
        (state == RG_DEVICE_HELD && atomic_load(&gate->passes) > 0 && atomic_fetch_sub(&gate->passes, 1) > 0))
        return true;
    atomic_fetch_add(&gate->left, 1);
    return false;
}
/** For a record: enters, and waits until it may. False: the session is over. */
RG_MUST_CHECK bool rg_device_enter(struct rg_worker *worker);
/** For what comes outside of the order of records. True: the caller is inside. False: it is closed. */
RG_MUST_CHECK bool rg_device_try_out_of_order(struct rg_device_gate *gate);
/** The same, and waits until it may, or until then of rg_now_ns. */
RG_MUST_CHECK bool rg_device_enter_out_of_order(struct rg_worker *worker, uint64_t until_ns);
/** What could not enter so will do so as soon as it is not closed (module.h, `reopened`), and wants that. */
void rg_device_want(struct rg_worker *worker);
/** It has entered. */
void rg_device_unwant(struct rg_device_gate *gate);
static inline void rg_device_leave(struct rg_device_gate *gate)
{
    atomic_fetch_add(&gate->left, 1);
}

/** How often somebody has entered: it changes with every use. */
static inline uint64_t rg_device_uses(const struct rg_device_gate *gate)
{
    return atomic_load_explicit(&gate->entered, memory_order_relaxed);
}
/** Whether anybody is inside. */
bool rg_device_used(const struct rg_device_gate *gate);

/** Whether anybody waits for it to open. */
static inline bool rg_device_wanted(const struct rg_device_gate *gate)
{
    return atomic_load(&gate->waiting) != 0;
}

/** From now on records wait; who is inside stays so. One thread at a time, as with all that follow. */
void rg_device_hold(struct rg_device_gate *gate);
/** So many records may enter although it is held: what is inside may need them to come to its end. */
void rg_device_let_pass(struct rg_device_gate *gate, int records);
/** Closes it if nobody is inside; false: somebody is, and it is as it was. */
RG_MUST_CHECK bool rg_device_close(struct rg_worker *worker);
/** After closing: records still wait, what comes outside of their order does no longer, and what has come meanwhile is done. */
void rg_device_reopen(struct rg_worker *worker);
void rg_device_open(struct rg_worker *worker);

#endif
