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
    struct rg_device_gate *gate = &worker->device;
    while (!rg_device_try(gate)) {
        atomic_fetch_add(&gate->waiting, 1);
        RG_MODULES_CALL(worker, wanted, worker);
        RG_SCOPED_LOCK(&gate->lock);
        while (atomic_load(&gate->closed) && !rg_worker_over(worker))
            pthread_cond_wait(&gate->changed, &gate->lock);
        atomic_fetch_sub(&gate->waiting, 1);
        if (rg_worker_over(worker))
            return false;
    }
    return true;
}

bool rg_device_used(const struct rg_device_gate *gate)
{
    /* what has left before what has entered: equal numbers mean that nobody was inside when the first was read */
    const uint64_t left = atomic_load(&gate->left);
    return atomic_load(&gate->entered) != left;
}

bool rg_device_close(struct rg_worker *worker)
{
    struct rg_device_gate *gate = &worker->device;
    atomic_store(&gate->closed, true);
    bool busy = rg_device_used(gate);
    for (const struct rg_server_module *const *module = worker->modules; *module && !busy; module++)
        busy = (*module)->busy && (*module)->busy(worker);
    if (busy)
        rg_device_open(gate);
    return !busy;
}

void rg_device_open(struct rg_device_gate *gate)
{
    RG_SCOPED_LOCK(&gate->lock);
    atomic_store(&gate->closed, false);
    pthread_cond_broadcast(&gate->changed);
}
