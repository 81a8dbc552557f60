/*
 * device_gate.h - who uses the driver, so that the session can be suspended while nobody does (server/suspend/).
 *
 * Whoever executes a record, or moves contents of memory outside of their order, enters before it calls the driver and leaves when
 * it is done; a record that waits for the device is inside all that time. Who closes the gate holds up those who come and knows
 * that nobody is inside. A closed gate has somebody who opens it: the modules' hook `wanted` tells them.
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

struct rg_device_gate {
    _Atomic uint64_t entered, left;
    atomic_bool closed;
    atomic_uint waiting; /* before the closed gate */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* opened, or the session is over */
};

void rg_device_gate_init(struct rg_device_gate *gate);
void rg_device_gate_fini(struct rg_device_gate *gate);
/** Wakes everybody who waits: the session is over. */
void rg_device_gate_wake(struct rg_device_gate *gate);

/** True: the caller is inside. False: it is closed. */
static inline bool rg_device_try(struct rg_device_gate *gate)
{
    /* Sequentially consistent, as is what closes: one of the two sees the other. */
    atomic_fetch_add(&gate->entered, 1);
    if (!atomic_load(&gate->closed))
        return true;
    atomic_fetch_add(&gate->left, 1);
    return false;
}
/** Enters, and waits as long as it is closed. False: the session is over. */
RG_MUST_CHECK bool rg_device_enter(struct rg_worker *worker);
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

/** Closes it if nobody is inside; false: somebody is, and it is open. One thread at a time. */
RG_MUST_CHECK bool rg_device_close(struct rg_worker *worker);
void rg_device_open(struct rg_device_gate *gate);

#endif
