/*
 * transition.c - a session's memory goes away and comes back: suspension itself, and its end. See suspend.h.
 *
 * The happy path: the gate is closed, the driver puts the memory away, what was charged is given; and the other way round. What fails is
 * said in suspend.h. The module's thread.
 */
#include "server/suspend/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/export/export.h"
#include "server/suspend/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MS 1000000ull

/*
 * Who is told to suspend a busy session gives it no more work until it has come to rest. What runs may need a later call to end, so
 * after some time a few records pass, then, twice as much later, some more.
 */
#define ATTEMPT_MS   250 /* that the driver waits for what it has */
#define LOOK_NS      (2 * MS)
#define WINDOW_NS    (250 * MS) /* the first; then twice as long … */
#define PASSES       1          /* … and four times as many */
#define PASSING_NS   (20 * MS)
#define RETRY_NS     (100 * MS)   /* for memory that is not there yet */
#define SAY_AFTER_NS RG_SUSPEND_S /* that it is waited for */

static void set_state(struct rg_suspend *suspend, enum rg_suspend_state state)
{
    static const enum rg_share_state shown[] = {
        [RG_SUSPEND_RUNNING] = RG_SHARE_RUNNING,
        [RG_SUSPEND_SUSPENDING] = RG_SHARE_SUSPENDING,
        [RG_SUSPEND_SUSPENDED] = RG_SHARE_SUSPENDED,
        [RG_SUSPEND_RESUMING] = RG_SHARE_RESUMING,
    };
    RG_SCOPED_LOCK(&suspend->lock);
    suspend->state = state;
    rg_suspend_show(shown[state]);
}

void rg_suspend_say(struct rg_worker *worker, const char *format, ...)
{
    char text[RG_NOTICE_SAY_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_info("session %llu: %s", (unsigned long long)worker->session, text);
    const struct rg_notice notice = {.type = RG_NOTICE_SAY, .arg = {strlen(text)}};
    if (rg_suspend_of(worker)->policy.tells)
        (void)rg_worker_notice(worker, &notice, text, strlen(text), NULL, 0);
}

/* Sleeps until something is told or the time has come. False: the session is over. */
static bool sleep_until(struct rg_worker *worker, uint64_t until_ns)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const struct timespec until = rg_timespec(until_ns);
    RG_SCOPED_LOCK(&suspend->lock);
    if (!rg_worker_over(worker))
        (void)pthread_cond_timedwait(&suspend->changed, &suspend->lock, &until);
    return !rg_worker_over(worker);
}

/* --- away ----------------------------------------------------------------------------------------------- */

const char *rg_suspend_why_not(struct rg_worker *worker)
{
    if (rg_export_shared())
        return "it shares memory or events with other sessions";
    for (const struct rg_server_module *const *module = worker->modules; *module; module++) {
        const char *why = (*module)->unsuspendable ? (*module)->unsuspendable(worker) : NULL;
        if (why)
            return why;
    }
    return NULL;
}

/* One attempt. What keeps the session from it has been logged, but that it is busy. The gate opens again, but not for records. */
static enum rg_suspend_result attempt(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    char why[200] = "";
    if (rg_device_used(&worker->device_gate) || !rg_device_close(worker))
        return RG_SUSPEND_BUSY;
    const char *never = rg_suspend_why_not(worker);
    const enum rg_status status =
        never ? RG_ERR_UNSUPPORTED : rg_checkpoint_away(ATTEMPT_MS, why, sizeof why);
    if (status == RG_OK) {
        rg_suspend_give(&suspend->charges);
        suspend->away_ns = rg_now_ns();
        set_state(suspend, RG_SUSPEND_SUSPENDED);
        return RG_SUSPEND_DONE;
    }
    if (status == RG_ERR_IO)
        rg_worker_end(worker, 1, "the session could not be suspended, and cannot go on: %s", why);
    else if (status == RG_ERR_UNSUPPORTED)
        rg_warn("session %llu cannot be suspended: %s", (unsigned long long)worker->session,
                never ? never : why);
    rg_device_reopen(worker);
    return never ? RG_SUSPEND_SHARED : status == RG_ERR_TIMEOUT ? RG_SUSPEND_BUSY : RG_SUSPEND_REFUSED;
}

/* Gives the device no more work until it is at rest, or `deadline`. */
static enum rg_suspend_result attempt_until(struct rg_worker *worker, uint64_t deadline)
{
    uint64_t window = WINDOW_NS;
    for (int passes = PASSES;; window *= 2, passes *= 4) {
        const uint64_t now = rg_now_ns(), end = deadline - now < window ? deadline : now + window;
        rg_device_hold(&worker->device_gate);
        enum rg_suspend_result result;
        while ((result = attempt(worker)) == RG_SUSPEND_BUSY && rg_now_ns() < end)
            if (!sleep_until(worker, rg_now_ns() + LOOK_NS))
                break;
        if (result != RG_SUSPEND_BUSY || rg_now_ns() >= deadline || rg_worker_over(worker))
            return result;
        rg_device_let_pass(&worker->device_gate, passes);
        (void)sleep_until(worker, rg_now_ns() + PASSING_NS);
    }
}

enum rg_suspend_result rg_suspend_put_away(struct rg_worker *worker, uint64_t deadline)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    if (!rg_checkpoint_possible()) {
        rg_warn("session %llu cannot be suspended: that takes NVIDIA's driver 570 or later, or the software "
                "device",
                (unsigned long long)worker->session);
        return RG_SUSPEND_IMPOSSIBLE;
    }
    set_state(suspend, RG_SUSPEND_SUSPENDING);
    const enum rg_suspend_result result = deadline ? attempt_until(worker, deadline) : attempt(worker);
    if (result != RG_SUSPEND_DONE) {
        set_state(suspend, RG_SUSPEND_RUNNING);
        rg_device_open(worker);
    }
    suspend->warned = suspend->told_held = false;
    return result;
}

/* --- back ----------------------------------------------------------------------------------------------- */

/* A driver whose Restore has failed may never succeed again: it is asked once the ledger has the memory. */
static enum rg_status try_back(struct rg_suspend *suspend, bool *taken, char *why, size_t why_size)
{
    *taken = *taken || rg_suspend_take(&suspend->charges);
    return *taken ? rg_checkpoint_back(why, why_size) : RG_ERR_NO_MEMORY;
}

/* Waits for the device's memory as long as it takes. */
static enum rg_status bring_back(struct rg_worker *worker, char *why, size_t why_size)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const uint64_t began = rg_now_ns();
    bool said = false, taken = false;
    enum rg_status status;
    while ((status = try_back(suspend, &taken, why, why_size)) == RG_ERR_NO_MEMORY) {
        if (!said && rg_now_ns() - began > SAY_AFTER_NS) {
            rg_suspend_say(worker,
                           "this session was suspended, and waits until the GPU has memory for it again");
            said = true;
        }
        if (!sleep_until(worker, rg_now_ns() + RETRY_NS))
            return RG_ERR_CLOSED;
    }
    return status;
}

void rg_suspend_resume(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const uint64_t began = rg_now_ns();
    char why[200] = "";
    set_state(suspend, RG_SUSPEND_RESUMING);
    const enum rg_status status = bring_back(worker, why, sizeof why);
    if (status == RG_ERR_IO)
        rg_worker_end(worker, 1, "the session was suspended, and its GPU memory cannot be brought back: %s",
                      why);
    if (status != RG_OK)
        return;
    suspend->used_ns = rg_now_ns();
    rg_info("session %llu: is back after %.1f s, in %.3f s", (unsigned long long)worker->session,
            (double)(began - suspend->away_ns) / 1e9, (double)(suspend->used_ns - began) / 1e9);
    rg_suspend_ask_guarantees(&suspend->charges);
    pthread_mutex_lock(&suspend->lock);
    suspend->held = false;
    pthread_mutex_unlock(&suspend->lock);
    set_state(suspend, RG_SUSPEND_RUNNING);
    rg_device_open(worker);
}
