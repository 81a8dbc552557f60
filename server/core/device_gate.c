/* device_gate.c - see device_gate.h. */
#include "server/core/device_gate.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "server/core/worker.h"

void rg_device_gate_init(struct rg_device_gate *gate)
{
    pthread_mutex_init(&gate->lock, NULL);
    rg_cond_init(&gate->changed);
}

void rg_device_gate_fini(struct rg_device_gate *gate)
{
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

void rg_device_gate_wake(struct rg_device_gate *gate)
{
    RG_SCOPED_LOCK(&gate->lock);
    pthread_cond_broadcast(&gate->changed);
}

bool rg_device_enter(struct rg_worker *worker)
{
    struct rg_device_gate *gate = &worker->device_gate;
    while (!rg_device_try(gate)) {
        rg_device_want(worker);
        RG_SCOPED_LOCK(&gate->lock);
        while (atomic_load(&gate->state) != RG_DEVICE_OPEN && atomic_load(&gate->passes) <= 0 &&
               !rg_worker_over(worker))
            pthread_cond_wait(&gate->changed, &gate->lock);
        rg_device_unwant(gate);
        if (rg_worker_over(worker))
            return false;
    }
    return true;
}

bool rg_device_try_out_of_order(struct rg_device_gate *gate)
{
    atomic_fetch_add(&gate->entered, 1);
    if (atomic_load(&gate->state) != RG_DEVICE_CLOSED)
        return true;
    atomic_fetch_add(&gate->left, 1);
    return false;
}

bool rg_device_enter_out_of_order(struct rg_worker *worker, uint64_t until_ns)
{
    struct rg_device_gate *gate = &worker->device_gate;
    if (rg_device_try_out_of_order(gate))
        return true;
    rg_device_want(worker);
    RG_SCOPED_LOCK(&gate->lock);
    const struct timespec until = rg_timespec(until_ns);
    bool entered = rg_device_try_out_of_order(gate);
    for (int error = 0; !entered && !error && !rg_worker_over(worker);) {
        error = pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
        entered = rg_device_try_out_of_order(gate);
    }
    rg_device_unwant(gate);
    return entered;
}

void rg_device_want(struct rg_worker *worker)
{
    atomic_fetch_add(&worker->device_gate.waiting, 1);
    RG_MODULES_CALL(worker, wanted, worker);
}

void rg_device_unwant(struct rg_device_gate *gate)
{
    atomic_fetch_sub(&gate->waiting, 1);
}

bool rg_device_used(const struct rg_device_gate *gate)
{
    /* what has left before what has entered: equal numbers mean that nobody was inside when the first was read */
    const uint64_t left = atomic_load(&gate->left);
    return atomic_load(&gate->entered) != left;
}

static void set_state(struct rg_device_gate *gate, enum rg_device_gate_state state, int passes)
{
    RG_SCOPED_LOCK(&gate->lock);
    atomic_store(&gate->passes, passes);
    atomic_store(&gate->state, state);
    pthread_cond_broadcast(&gate->changed);
}

void rg_device_hold(struct rg_device_gate *gate)
{
    set_state(gate, RG_DEVICE_HELD, 0);
}

void rg_device_let_pass(struct rg_device_gate *gate, int records)
{
    set_state(gate, RG_DEVICE_HELD, records);
}

bool rg_device_close(struct rg_worker *worker)
{
    struct rg_device_gate *gate = &worker->device_gate;
    const enum rg_device_gate_state before = atomic_load(&gate->state);
    set_state(gate, RG_DEVICE_CLOSED, 0);
    bool busy = rg_device_used(gate);
    for (const struct rg_server_module *const *module = worker->modules; *module && !busy; module++)
        busy = (*module)->busy && (*module)->busy(worker);
    if (!busy)
        return true;
    rg_device_reopen(worker);
    if (before == RG_DEVICE_OPEN)
        rg_device_open(worker);
    return false;
}

void rg_device_reopen(struct rg_worker *worker)
{
    set_state(&worker->device_gate, RG_DEVICE_HELD, 0);
    RG_MODULES_CALL(worker, reopened, worker);
}

void rg_device_open(struct rg_worker *worker)
{
    if (atomic_load(&worker->device_gate.state) == RG_DEVICE_CLOSED)
        rg_device_reopen(worker);
    set_state(&worker->device_gate, RG_DEVICE_OPEN, 0);
}
