/*
 * idle.c - when a session that does not use the device is suspended by itself. See suspend.h.
 *
 * It is told before the time-out ends, and goes when it has; what cannot go is tried again later, and later each time. The module's
 * thread.
 */
#include "server/suspend/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/suspend/checkpoint.h"

#define WARN_PARTS    4                    /* of the time-out, the last is after the warning */
#define AGAIN_MOST_NS (600 * RG_SUSPEND_S) /* between attempts to suspend a session that could not be */

uint64_t rg_suspend_timeout(const struct rg_suspend *suspend)
{
    const uint64_t granted = rg_suspend_granted_ns();
    return granted ? granted : suspend->policy.idle_ns;
}

/* Looks whether the device was used; then it is not idle. */
static bool is_used(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const uint64_t uses = rg_device_uses(&worker->device_gate);
    if (uses == suspend->uses && !rg_device_used(&worker->device_gate))
        return false;
    suspend->uses = uses;
    suspend->used_ns = rg_now_ns();
    if (suspend->warned)
        rg_suspend_show(RG_SHARE_RUNNING);
    suspend->warned = false;
    return true;
}

/* It stays as it is, and is tried again later, and later each time: what keeps it from being suspended may pass. */
static void put_off(struct rg_suspend *suspend, enum rg_suspend_result result)
{
    const uint64_t again = suspend->again_ns ? 2 * suspend->again_ns : rg_suspend_timeout(suspend);
    suspend->again_ns = again < AGAIN_MOST_NS ? again : AGAIN_MOST_NS;
    suspend->used_ns = rg_now_ns();
    suspend->not_before_ns =
        result == RG_SUSPEND_IMPOSSIBLE ? UINT64_MAX : suspend->used_ns + suspend->again_ns;
}

/* Work that is still running is use; and who cannot be suspended as things are is not told that it will be. */
static bool can_go(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    if (!rg_device_close(worker)) {
        suspend->used_ns = rg_now_ns();
        return false;
    }
    const char *never = rg_suspend_why_not(worker);
    rg_device_open(worker);
    if (!never)
        return true;
    rg_info("session %llu is idle, and cannot be suspended: %s", (unsigned long long)worker->session, never);
    put_off(suspend, RG_SUSPEND_SHARED);
    return false;
}

/* The time-out is over. What keeps the session from it has been logged. */
static void go_idle(struct rg_worker *worker, double seconds)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const enum rg_suspend_result result = rg_suspend_put_away(worker, 0);
    suspend->used_ns = rg_now_ns();
    if (result != RG_SUSPEND_DONE) {
        if (result != RG_SUSPEND_BUSY)
            put_off(suspend, result);
        return;
    }
    suspend->again_ns = 0;
    rg_suspend_say(
        worker, "this session did not use the GPU for %.1f s: its GPU memory is others' until its next call",
        seconds);
}

void rg_suspend_idle(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const uint64_t timeout = rg_suspend_timeout(suspend);
    rg_suspend_ask_guarantees(&suspend->charges);
    if (!timeout || is_used(worker) || !suspend->uses || rg_now_ns() < suspend->not_before_ns)
        return;
    if (!rg_checkpoint_possible()) { /* before anything is told */
        put_off(suspend, rg_suspend_put_away(worker, 0));
        return;
    }
    const uint64_t idle_ns = rg_now_ns() - suspend->used_ns;
    if (suspend->warned && idle_ns >= timeout) {
        go_idle(worker, (double)idle_ns / 1e9);
    } else if (!suspend->warned && idle_ns >= timeout - timeout / WARN_PARTS) {
        if (!can_go(worker))
            return;
        suspend->warned = true; /* first, however late it is */
        rg_suspend_show(RG_SHARE_IDLE);
        rg_suspend_say(
            worker,
            "this session does not use the GPU; after %.1f s others get its GPU memory until its next call",
            (double)timeout / 1e9);
    }
}
